"""Strong faults make a real clip plainly worse; both orders of a pair give one result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from clips import write_clip
from numpy.typing import NDArray

from train.assessment.strong_faults import (
    FAULTS,
    Fault,
    JudgedPair,
    StrongPair,
    describe_results,
    judge_pairs,
    make_worse,
    write_pairs,
)
from train.footage.survey import load_survey, survey
from vrt_lite import Judge

PAIR = StrongPair("clip", "blur", Path("a.mp4"), Path("b.mp4"))


def _pictures(count: int) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(3)
    ground = rng.integers(0, 256, (72, 200, 3), np.uint8)
    return [np.ascontiguousarray(ground[:, i : i + 128]) for i in range(count)]


def _gradient(pictures: Sequence[NDArray[np.uint8]]) -> float:
    return float(np.mean([np.abs(np.diff(p.astype(float), axis=1)).mean() for p in pictures]))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_pictures_as_its_name_says(fault: Fault) -> None:
    clean = [p // 2 + 60 for p in _pictures(48)]
    smooth = make_worse(clean, "blur", fps=24, rng=np.random.default_rng(0))
    worse = make_worse(smooth if fault == "noise" else clean, fault, fps=24, rng=np.random.default_rng(0))
    assert [p.shape for p in worse] == [p.shape for p in clean]
    match fault:
        case "blur":
            assert _gradient(worse) < 0.5 * _gradient(clean)
        case "noise":
            assert _gradient(worse) > 2 * _gradient(smooth)
        case "stutter":
            assert len({p.tobytes() for p in worse}) == 48 // 10 + 1
        case "flicker":
            light = [p.mean() for p in worse]
            assert max(light) > 1.5 * min(light)
            assert np.ptp([p.mean() for p in clean]) < 5


@pytest.mark.parametrize(
    ("orders", "together", "result"),
    [
        ((1, 1), 1, "right"),
        ((-1, -1), -1, "wrong"),
        ((1, -1), 0, "undecided"),
        ((0, 1), 1, "right"),
        ((0, 0), 0, "tie"),
    ],
)
def test_both_orders_have_one_result(orders: tuple[int, int], together: int, result: str) -> None:
    assert JudgedPair(PAIR, orders, together).result == result


def test_results_are_counted_by_fault() -> None:
    noise = StrongPair("clip", "noise", Path("a.mp4"), Path("c.mp4"))
    judged = [JudgedPair(PAIR, (1, 1), 1), JudgedPair(PAIR, (1, 0), 0), JudgedPair(noise, (-1, -1), -1)]
    told = describe_results(judged).splitlines()
    assert told[:3] == [
        "6 verdicts, each in one order: 3 right, 2 wrong, 1 ties",
        "3 pairs: 1 right in both orders, 1 wrong in both",
        "both orders together, all: 1 right, 1 wrong, 1 tie, 0 undecided",
    ]
    assert "both orders together, noise: 0 right, 1 wrong, 0 tie, 0 undecided" in told


def test_held_back_clips_are_written_once_and_judged_in_both_orders(tmp_path: Path) -> None:
    clip = tmp_path / "footage" / "test" / "toy" / "clip.mp4"
    clip.parent.mkdir(parents=True)
    write_clip(clip, frames=60, fps=24, size=(128, 72), pictures=_pictures(60))
    survey(tmp_path / "footage")
    known, out = load_survey(tmp_path / "footage", "test"), tmp_path / "strong"
    pairs = list(write_pairs(tmp_path / "footage", known, out))
    assert [pair.fault for pair in pairs] == list(FAULTS)
    written = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert len(written) == 1 + len(FAULTS)
    assert list(write_pairs(tmp_path / "footage", known, out)) == pairs
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == written
    judged = list(judge_pairs(pairs[:2], "vrt-tiny-2"))
    side = {0: 0, 1: 1, 2: -1}
    with Judge("vrt-tiny-2", measures=False) as judge:
        for one in judged:
            assert one.orders[0] == side[judge.compare(one.pair.clean, one.pair.faulty).winner]
            assert one.orders[1] == -side[judge.compare(one.pair.faulty, one.pair.clean).winner]
