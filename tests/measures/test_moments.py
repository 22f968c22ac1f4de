"""A clip's worst moments: where they are found, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.measures.moments import MOST_MOMENTS, FindingMoments

FRAMES = 60
Pictures = NDArray[np.float32]


def panned() -> Pictures:
    ground = np.random.default_rng(5).uniform(0, 255, (60, 60 + 2 * FRAMES)).astype(np.float32)
    ground = (ground[:, 2:] + ground[:, 1:-1] + ground[:, :-2]) / 3
    return np.stack([ground[:, frame : frame + 100 - FRAMES // 2] for frame in range(FRAMES)])


def blur(pictures: Pictures) -> Pictures:
    blurred = sum(np.roll(pictures, by, axis=2) for by in range(-4, 5)) / 9
    return np.concatenate([pictures[:20], blurred[20:30], pictures[30:]])


def flash(pictures: Pictures, lights: dict[int, float]) -> Pictures:
    return pictures + np.array([lights.get(frame, 0) for frame in range(FRAMES)], np.float32)[:, None, None]


def find(pictures: Pictures) -> tuple[float, ...]:
    finding = FindingMoments(len(pictures))
    finding.add(range(len(pictures)), pictures)
    return finding.worst()


@pytest.mark.parametrize(
    "spoiled", [panned()[np.r_[0:20, [19] * 10, 30:FRAMES]], blur(panned()), flash(panned(), {25: 60})]
)
def test_a_short_fault_is_a_moment(spoiled: Pictures) -> None:
    moments = find(spoiled)
    assert 1 <= len(moments) <= MOST_MOMENTS
    assert 19 / 59 <= moments[0] <= 31 / 59


def test_an_even_clip_has_none() -> None:
    assert find(panned()) == ()
    assert find(np.full((30, 20, 30), 90, np.float32)) == ()
    assert find(panned()[:2]) == ()


def test_moments_are_apart_and_the_worst_is_first() -> None:
    moments = find(flash(panned(), {5: 30, 20: 90, 22: 80, 40: 40, 50: 20}))
    assert len(moments) == MOST_MOMENTS
    assert abs(moments[0] - 20 / 59) < 0.02
    assert min(abs(a - b) for a in moments for b in moments if a != b) >= 1 / 8
