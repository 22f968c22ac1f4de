# ruff: noqa: E402 - what is missing is skipped before it is imported
"""The world's pictures: they show the shape where it is, over the ground of its shot."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")

from train.tiny.world.render import frames
from train.tiny.world.values import Camera, ClipSpec, Ground, Shot, Thing

SIZE = (126, 70)
STAR = Thing("star", (0.9, 0.1, 0.1), 0.4, (-1.0, 0.1), (1.0, 0.1), 0.1)
OCCLUDER = Thing("bar", (0.2, 0.1, 0.1), 0.3, (0.9, 0.0), (0.9, 0.0))
SHOT = Shot(0, Ground("clouds", "0"), Camera((0.5, 0.5), 1.1, (0.08, 0.03), 0.002))
CLIP = ClipSpec(252, 140, 16, 48, (SHOT,))


def test_a_frame_is_the_same_whatever_else_is_asked_for() -> None:
    clip = replace(CLIP, subject=STAR, occluder=OCCLUDER)
    times = (0.0, 22.0, 19.0, 7.4)
    for time, together in zip(times, frames(clip, times, SIZE), strict=True):
        assert np.array_equal(together, frames(clip, [time], SIZE)[0])


@pytest.mark.parametrize("form", ["circle", "square", "triangle", "star"])
def test_a_shape_moves_from_left_to_right(form: Literal["circle", "square", "triangle", "star"]) -> None:
    subject = replace(STAR, form=form)
    places: list[float] = []
    for time in (6.0, 23.5, 41.0):
        with_it, without = (frames(c, [time], SIZE)[0].astype(int) for c in (replace(CLIP, subject=subject), CLIP))
        changed = np.abs(with_it - without).max(axis=-1) > 8
        assert 100 < changed.sum() < 1500
        assert with_it[changed][:, 0].mean() > 1.5 * with_it[changed][:, 1:].mean(), "it is red"
        places.append(float(np.nonzero(changed)[1].mean()))
    assert places[0] < places[1] - 20 < places[2] - 40


def test_each_shot_has_its_ground() -> None:
    cut = replace(CLIP, shots=(SHOT, Shot(20, Ground("paper", "3"), SHOT.camera)))
    other = replace(CLIP, shots=cut.shots[1:])
    for time, alone in ((0.0, CLIP), (19.4, CLIP), (19.5, other), (47.0, other)):
        assert np.array_equal(frames(cut, [time], SIZE)[0], frames(alone, [time], SIZE)[0])
