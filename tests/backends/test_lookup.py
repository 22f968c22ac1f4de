"""Guesses: fixed text is known, prose and digits are not, and nothing depends on them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.backends.llamacpp.decoding import PromptLookup

ONE, TWO = 1, 2
DIGITS = range(10)
FIXED = [50, 51, 52, 53, 54, 55, 56]


def test_two_witnesses_are_believed_and_one_is_not() -> None:
    lookup = PromptLookup(DIGITS)
    lookup.learn(FIXED)
    for token in FIXED[:4]:
        lookup.add(token)
    assert lookup.guess(7) == []
    lookup.learn(FIXED, times=2)
    for token in FIXED[:4]:
        lookup.add(token)
    assert lookup.guess(7) == FIXED[4:]
    assert lookup.guess(2) == FIXED[4:6]
    assert lookup.guess(0) == []


def test_a_digit_is_a_slot() -> None:
    lookup = PromptLookup(DIGITS)
    lookup.learn([60, 61, 62, ONE, 63, 64, 65, TWO, 66], times=2)
    for token in (60, 61, 62):
        lookup.add(token)
    assert lookup.guess(7) == []
    lookup.add(7)
    assert lookup.guess(7) == [63, 64, 65]
    for token in (63, 64, 65):
        lookup.add(token)
    assert lookup.guess(7) == []
    lookup.add(TWO)
    assert lookup.guess(7) == [66]


@given(st.lists(st.integers(0, 14), max_size=300), st.integers(0, 9))
def test_guesses_are_bounded_and_never_digits(tokens: list[int], most: int) -> None:
    lookup = PromptLookup(DIGITS)
    for token in tokens:
        lookup.add(token)
        guessed = lookup.guess(most)
        assert len(guessed) <= most
        assert not set(guessed) & {*DIGITS, -1}
