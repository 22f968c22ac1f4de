# ruff: noqa: E402 - what is missing is skipped before it is imported
"""The world's pictures: faults change what they say, where and when they say it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")

from train.tiny.world import scene
from train.tiny.world.defects import MOTION, VISUAL
from train.tiny.world.drawn_frames import SceneOpener
from train.tiny.world.grounds import photographs, picture
from train.tiny.world.render import _render_pictures, frames
from train.tiny.world.values import FIRST, WINDOWS, Camera, ClipSpec, Defect, Ground, Moving, Scene, Shot, Thing, Visual
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import FrameRef, shown_first

SIZE = (126, 70)
BEHIND = Ground("clouds", "0")
STAR = Thing("star", (0.9, 0.1, 0.1), 0.4, (-1.0, 0.1), (1.0, 0.1), 0.1)
OCCLUDER = Thing("circle", (0.2, 0.1, 0.1), 0.3, (0.9, -0.8), (0.9, 1.2))
photos = pytest.mark.skipif(not (find_spec("skimage") and find_spec("matplotlib")), reason="no photographs here")


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


@pytest.mark.parametrize("kind", ["blur", "noise", "blocks", "banding", "haze", "sharpening"])
def test_a_region_bounds_a_fault(kind: Visual) -> None:
    changed = difference(Defect(kind, 3, region=(0.25, 0.2, 0.75, 0.8)), [5, 30])
    inside = np.zeros(changed.shape[1:], bool)
    inside[14:56, 32:94] = True
    assert (changed[:, ~inside] == 0).all()
    assert (changed[:, inside] > 2).mean() > 0.05


@pytest.mark.parametrize("kind", [k for k in MOTION if k not in ("freeze", "reversal")])
def test_a_fault_that_spares_the_first_frames_shows_in_the_others(kind: Moving) -> None:
    defect = Defect(kind, 2, spares=True, seed=1)
    assert (difference(defect, FIRST) == 0).all()
    assert difference(defect, [22, 23, 24, 25]).max() > 8


@pytest.mark.parametrize("kind", [k for k in VISUAL if k != "banding"])
def test_a_higher_level_changes_more(kind: Visual) -> None:
    levels = [np.square(difference(Defect(kind, level, seed=2), [10]).astype(float)).mean() for level in (1, 2, 3)]  # type: ignore[arg-type]
    assert levels[0] < levels[1] < levels[2]
    assert levels[0] > 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["blur", "noise", "flicker"])
def test_every_variety_of_a_fault_is_visible_and_grows_with_its_level(kind: Visual | Moving, seed: int) -> None:
    at = [21, 22, 23, 24, 25, 26]
    levels = [np.square(difference(Defect(kind, level, seed=seed), at).astype(float)).mean() for level in (1, 2, 3)]  # type: ignore[arg-type]
    assert levels[0] < levels[1] < levels[2]
    assert levels[0] > 1
    if kind == "flicker":
        light = shown(Defect(kind, 3, seed=seed), at=at).astype(float).mean(axis=(1, 2, 3))
        assert np.abs(np.diff(light)).max() > 10


def test_varieties_of_a_fault_differ() -> None:
    for kind, count in (("blur", 6), ("noise", 4), ("flicker", 8)):
        seen = {shown(Defect(kind, 3, seed=seed), at=[21, 22]).tobytes() for seed in range(count)}  # type: ignore[arg-type]
        assert len(seen) >= count - 2, kind


def test_held_frames_are_equal_and_the_next_jumps() -> None:
    at = shown(Defect("stutter", 2, 0, 47, seed=0), at=[6, 7, 8, 9])
    assert np.array_equal(at[0], at[1])
    assert np.array_equal(at[0], at[2])
    assert not np.array_equal(at[2], at[3])
    frozen = shown(Defect("freeze", 3), at=FIRST)
    assert (frozen == frozen[0]).all()


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


def test_a_store_gives_what_is_asked_in_its_order_at_the_profiles_size() -> None:
    profile = replace(default_profile(), min_pixels=35280, max_pixels=35840)
    open_frames = SceneOpener(plain(scene(3)))
    with open_frames(profile) as store:
        a, b, again = store.pixels([FrameRef(1, 40), FrameRef(0, 3), FrameRef(1, 40)])
        assert np.array_equal(a, again)
        assert not np.array_equal(a, b)
        assert a.shape[0] % 28 == a.shape[1] % 28 == 0
        assert a.dtype == np.uint8
    with open_frames(profile) as store:
        assert np.array_equal(store.pixels([FrameRef(0, 3)])[0], b)


@photos
@pytest.mark.parametrize("name", [*photographs(test=False), *photographs(test=True)])
def test_photographs_are_here(name: str) -> None:
    found = picture("photo", name)
    assert found.ndim == 3
    assert found.shape[2] == 3
    assert min(found.shape[:2]) >= 300
    assert found.std() > 10


def test_leaves_have_all_scales() -> None:
    found = picture("leaves", "1").astype(float).mean(axis=2)
    assert found.shape == (448, 640)
    coarse = found[::16, ::16].std()
    fine = np.diff(found, axis=1).std()
    assert coarse > 20
    assert fine > 5
    assert np.array_equal(picture.__wrapped__("leaves", "1"), picture("leaves", "1"))


@pytest.mark.parametrize("form", ["circle", "square", "triangle", "star", "bar"])
def test_frames_drawn_at_once_are_those_drawn_one_by_one(form: Literal["circle", "square", "triangle", "star"]) -> None:
    """A GPU draws many frames at once; a processor draws one, and of a thing only what is around it."""
    base = replace(clip(Defect("jitter", 3), Defect("noise", 1), Defect("ghosting", 2, 20, 27)), occluder=OCCLUDER)
    drawn = replace(base, subject=replace(STAR, form=form))
    times = [0.0, 7.4, 22.0, 31.0, 47.0]
    together = _render_pictures(drawn, times, SIZE, "cpu")
    for i, time in enumerate(times):
        assert (together[i] - _render_pictures(drawn, [time], SIZE, "cpu")[0]).abs().max() < 1e-4
