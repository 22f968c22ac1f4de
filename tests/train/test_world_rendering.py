# ruff: noqa: E402 - what is missing is skipped before it is imported
"""The world's pictures: faults change what they say, where and when they say it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")

from train.tiny.world import scene
from train.tiny.world.defects import MOTION, VISUAL
from train.tiny.world.drawn_frames import SceneOpener
from train.tiny.world.render import _render_pictures, frames
from train.tiny.world.values import WINDOWS, Camera, ClipSpec, Defect, Ground, Moving, Scene, Shot, Thing, Visual
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import FrameRef, shown_first

SIZE = (126, 70)
BEHIND = Ground("clouds", "0")
STAR = Thing("star", (0.9, 0.1, 0.1), 0.4, (-1.0, 0.1), (1.0, 0.1), 0.1)
OCCLUDER = Thing("circle", (0.2, 0.1, 0.1), 0.3, (0.9, -0.8), (0.9, 1.2))


def clip(*defects: Defect) -> ClipSpec:
    shot = Shot(0, BEHIND, Camera((0.5, 0.5), 1.1, (0.08, 0.03), 0.002))
    return ClipSpec(252, 140, 16, 48, (shot,), subject=STAR, defects=defects)


def shown(*defects: Defect, at: Sequence[float]) -> NDArray[np.int16]:
    return frames(clip(*defects), at, SIZE).astype(np.int16)


def difference(defect: Defect, at: Sequence[float]) -> NDArray[np.int16]:
    """By frame and pixel, how far the fault moves it."""
    return np.abs(shown(defect, at=at) - shown(at=at)).max(axis=-1)


def plain(drawn: Scene) -> Scene:
    """The scene over one ground that costs little to make."""
    clips = (
        replace(c, shots=tuple(replace(s, ground=replace(s.ground, stuff="clouds", source="0")) for s in c.shots))
        for c in drawn.clips
    )
    a, b = clips
    return replace(drawn, clips=(a, b))


@pytest.mark.parametrize("kind", [*VISUAL, *MOTION])
def test_a_frame_is_the_same_whatever_else_is_asked_for(kind: Visual | Moving) -> None:
    defect = Defect(kind, 2, 20, 27)
    together = shown(defect, at=[0.0, 22.0, 19.0, 23.0, 25.0])
    for i, position in enumerate((0.0, 22.0, 19.0, 23.0, 25.0)):
        assert np.array_equal(together[i], shown(defect, at=[position])[0])


@pytest.mark.parametrize("kind", [*VISUAL, *MOTION])
def test_a_burst_changes_its_ticks_and_no_others(kind: Visual | Moving) -> None:
    changed = difference(Defect(kind, 3, 20, 28), [0, 16, 19, 21, 22, 27, 29, 31, 47]).max(axis=(1, 2))
    assert (changed[[0, 1, 2, 6, 7, 8]] == 0).all()
    assert (changed[[3, 4, 5]] > 8).all()


@pytest.mark.parametrize("kind", [k for k in VISUAL if k != "banding"])
def test_a_higher_level_changes_more(kind: Visual) -> None:
    levels = [np.square(difference(Defect(kind, level, seed=2), [10]).astype(float)).mean() for level in (1, 2, 3)]  # type: ignore[arg-type]
    assert levels[0] < levels[1] < levels[2]
    assert levels[0] > 1


def test_hidden_evidence_is_not_in_the_first_frames_and_is_in_the_ones_to_ask_for() -> None:
    for seed in range(24):
        pair = plain(scene(seed, hidden=1.0))
        a, b = (replace(c, defects=tuple(d for d in c.defects if not d.hidden)) for c in pair.clips)
        bare = replace(pair, clips=(a, b))
        profile = default_profile()
        first = [ref for number in (0, 1) for ref in shown_first(48, 4, number)]
        asked = [FrameRef(n, tick) for n, c in enumerate(pair.clips) for gap in c.gaps for tick in WINDOWS[gap]]
        with SceneOpener(pair)(profile) as there, SceneOpener(bare)(profile) as without:
            same = [np.array_equal(a, b) for a, b in zip(there.pixels(first), without.pixels(first), strict=True)]
            assert all(same), seed
            moved = [np.abs(a.astype(int) - b) for a, b in zip(there.pixels(asked), without.pixels(asked), strict=True)]
            assert max(m.max() for m in moved) > 8, seed


@pytest.mark.parametrize("form", ["circle", "square", "triangle", "star", "bar"])
def test_frames_drawn_at_once_are_those_drawn_one_by_one(form: Literal["circle", "square", "triangle", "star"]) -> None:
    """A GPU draws many frames at once; a processor draws one, and of a thing only what is around it."""
    base = replace(clip(Defect("jitter", 3), Defect("noise", 1), Defect("ghosting", 2, 20, 27)), occluder=OCCLUDER)
    drawn = replace(base, subject=replace(STAR, form=form))
    times = [0.0, 7.4, 22.0, 31.0, 47.0]
    together = _render_pictures(drawn, times, SIZE, "cpu")
    for i, time in enumerate(times):
        assert (together[i] - _render_pictures(drawn, [time], SIZE, "cpu")[0]).abs().max() < 1e-4
