"""What a judge writes of alignment is kept back where it does not judge that, wherever the pieces of a text end."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.interfaces import Event, RoundEnded, Wrote
from vrt_lite.withholding import observe_without_alignment, withhold_alignment

PARTS = ("TA", "T", "A", "X", "=", ":", " ", "\t", "\n", "0", "12", " by ", "b", ",", "VQ=1", "DATA 5", "é")
TEXTS = st.lists(st.sampled_from(PARTS)).map("".join)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Sum: TA=2 by 3, VQ=1 by 2.", "Sum: TA not judged, VQ=1 by 2."),
        ("clear blur. TA 0.\nTA : 1", "clear blur. TA not judged.\nTA not judged"),
        ("DATA 5, VTA=1, TAB 1, TA is", "DATA 5, VTA=1, TAB 1, TA is"),
    ],
)
def test_only_values_of_alignment_are_withheld(text: str, shown: str) -> None:
    assert withhold_alignment(text) == shown


@given(TEXTS, st.lists(st.integers(0, 60)))
def test_the_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    told: list[Event] = []
    observe = observe_without_alignment(told.append)
    places = [0, *sorted(cuts), len(text)]
    for start, end in pairwise(places):
        observe(Wrote(text[start:end]))
        assert not re.search(r"\bTA[ \t]*[=:]?[ \t]*\d", "".join(e.text for e in told if isinstance(e, Wrote)))
    assert all(event.text for event in told if isinstance(event, Wrote))
    ended = RoundEnded(0, 1, "final")
    observe(ended)
    assert told[-1] is ended
    assert "".join(event.text for event in told if isinstance(event, Wrote)) == withhold_alignment(text)
