"""The line that names a better judge for this machine, under a verdict of a bundled one."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from terminals import Terminal

from vrt_lite import compare
from vrt_lite.interfaces import TimeRange
from vrt_lite.model_list import list_model
from vrt_lite.models.library import recipes
from vrt_lite.show import show_verdict
from vrt_lite.show.better_judge import UNKNOWN, Candidate, keep_candidates, suggest_judge

EXAMPLES = Path(__file__).parent.parent / "examples"
GB = 10**9
BEST = Candidate("best", 8 * GB, TimeRange(3000, 12_000), "a pair")
QUICK = Candidate("quick", 3 * GB, TimeRange(120, 300), "a clip")
UNTIMED = Candidate("untimed", 8 * GB, None, "a pair")


@pytest.mark.parametrize(
    ("models", "free_gb", "named"),
    [
        ([BEST, QUICK], 2, ""),
        ([BEST, QUICK], 6, "quick, 2 to 5 min a clip: vrt-lite pull quick"),
        ([BEST, QUICK], 9, "quick, 2 to 5 min a clip: vrt-lite pull quick"),  # an hour and more is too long
        ([BEST], 9, "best, 50 min to 3.3 h a pair: vrt-lite pull best"),  # unless all take as long
        ([BEST, replace(BEST, name="alike", seconds=TimeRange(2900, 11_000))], 9, "vrt-lite pull best"),
        ([replace(BEST, seconds=TimeRange(600, 1200)), QUICK], 9, "best, 10 to 20 min a pair: vrt-lite pull best"),
        ([UNTIMED, QUICK], 9, "memory: untimed: vrt-lite pull untimed"),
        ([], 9, ""),
    ],
)
def test_the_best_that_fits_is_named(models: list[Candidate], free_gb: int, named: str) -> None:
    line = suggest_judge(models, free_gb * GB)
    assert line.endswith(named)
    assert (f" {free_gb}.00 GB of free memory" in line) == bool(line) == bool(named)


def test_a_judge_that_is_here_is_named_as_such() -> None:
    line = suggest_judge([QUICK], 9 * GB, find=lambda name: name == "quick")
    assert line == "A larger judge is here: quick, 2 to 5 min a clip: --model quick"


def test_it_stands_once_under_a_verdict_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    judgement = compare(EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4", prompt="A blue star moves up.")

    def lines(
        *, model: str = judgement.model.name, advise: bool = True, stream: io.StringIO | None = None
    ) -> list[str]:
        to = stream or Terminal()
        shown = replace(judgement, model=replace(judgement.model, name=model))
        show_verdict(shown, advise=advise, stream=to)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", to.getvalue())
        return [line for line in plain.splitlines() if "arger judge" in line]

    monkeypatch.setenv("COLUMNS", "200")
    # What each takes here is not added up after a verdict: until it is known, the line says how to know it.
    assert lines() == [UNKNOWN]
    assert lines(advise=False) == lines(stream=io.StringIO()) == lines(model="vr-thinker-7b") == []
    keep_candidates([list_model("vr-thinker-7b"), list_model("videoreward-2b")])
    said = lines()
    assert len(said) <= 1  # a small machine has none
    assert not said or any(said[0].endswith(f": vrt-lite pull {name}") for name in recipes())
