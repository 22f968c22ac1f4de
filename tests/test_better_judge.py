"""The line that names a better judge for this machine, under a verdict of a bundled one."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from terminals import Terminal

from vrt_lite import Judgement, compare
from vrt_lite.interfaces import TimeRange
from vrt_lite.model_list import ListedModel
from vrt_lite.models.library import recipes
from vrt_lite.show import show_verdict
from vrt_lite.show.better_judge import find_better_judge, suggest_judge

EXAMPLES = Path(__file__).parent.parent / "examples"
GB = 10**9
BEST, QUICK, UNTIMED = (
    ListedModel(
        name=name,
        state="can be pulled",
        disk_bytes=GB,
        memory_bytes=gigabytes * GB,
        seconds=seconds,
        answers="a clip: VQ" if name == "quick" else "a pair, in rounds: VQ OA",
    )
    for name, gigabytes, seconds in (
        ("best", 8, TimeRange(3000, 12_000)),
        ("quick", 3, TimeRange(120, 300)),
        ("untimed", 8, None),
    )
)


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    return compare(EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4", prompt="A blue star moves up.")


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
        ([replace(QUICK, state="here")], 9, "A larger judge is here: quick, 2 to 5 min a clip: --model quick"),
        ([], 9, ""),
    ],
)
def test_the_best_that_fits_is_named(models: list[ListedModel], free_gb: int, named: str) -> None:
    line = suggest_judge(models, free_gb * GB)
    assert line.endswith(named)
    assert bool(line) == bool(named)
    if "pull" in named:
        assert f" {free_gb}.00 GB of free memory" in line


def test_it_stands_once_under_a_verdict_on_a_terminal(judgement: Judgement) -> None:
    line = find_better_judge()
    assert not line or any(f"vrt-lite pull {name}" in line for name in recipes())  # a small machine has none
    other = replace(judgement, model=replace(judgement.model, name="vr-thinker-7b"))
    for shown, stream, advise, times in (
        (judgement, Terminal(), True, bool(line)),
        (judgement, Terminal(), False, 0),
        (judgement, io.StringIO(), True, 0),
        (other, Terminal(), True, 0),
    ):
        show_verdict(shown, advise=advise, stream=stream)
        assert stream.getvalue().count("vrt-lite pull") == times
