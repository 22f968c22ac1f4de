"""Spans of real footage: their cuts, the clips that they continue with, and what is visible in them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from train.tiny.footage.footage_frames import Span
from train.tiny.footage.footage_spans import JOINED, cut_differently, draw_span, join_some, shows, shows_when_called
from train.tiny.footage.survey import SurveyedClip
from train.tiny.world.values import GAPS, TICKS, WINDOWS, Defect


def make_clip(
    name: str, *, frames: int = 120, motion: float = 1.0, jump: tuple[int, float] | None = None
) -> SurveyedClip:
    """Make a clip with even motion, in grey levels a frame, and perhaps one frame that differs more."""
    levels = [0.0, *[motion] * (frames - 1)]
    if jump:
        levels[jump[0]] = jump[1]
    path = f"train/toy/{name}.mp4"
    return SurveyedClip(path, name * 8, 320, 180, 30.0, frames, motion=tuple(levels), detail=(5.0,) * frames)


def take_whole(clip: SurveyedClip) -> Span:
    """Take the whole of a clip that lasts at most 1.6 seconds."""
    span = draw_span(np.random.default_rng(1), [clip])
    assert span.spec.frames == clip.frames
    return span


def join(span: Span, clip: SurveyedClip) -> Span:
    """Join a span with a clip: the result of the first seed that joins them."""
    found = (join_some(np.random.default_rng(seed), span, [span.clip, clip]) for seed in range(100))
    return next(other for other in found if other.joined)


def test_a_jolt_of_the_camera_is_no_cut() -> None:
    jolt, cut = (take_whole(make_clip("a", frames=48, motion=0.4, jump=(20, level))) for level in (18.1, 39.0))
    assert [shot.start for shot in jolt.spec.shots] == [0]
    assert [shot.start for shot in cut.spec.shots] == [0, 20]


def test_a_share_of_the_spans_continues_with_another_clip() -> None:
    span, clips = (
        take_whole(make_clip("a", frames=48)),
        [make_clip("a", frames=48), make_clip("b"), make_clip("c", jump=(9, 60))],
    )
    found = [join_some(np.random.default_rng(seed), span, clips) for seed in range(400)]
    spans = [one for one in found if one.joined]
    assert JOINED - 0.07 < len(spans) / len(found) < JOINED + 0.07
    assert {clip.path for one in spans for clip in one.clips[1:]} == {"train/toy/b.mp4"}, (
        "a clip with a cut is not joined"
    )
    assert {one.spec.gaps for one in spans} == {(0,), (1,), (2,)}
    for one in spans:
        start = one.spec.shots[1].start
        parts = [one.frame(tick)[0] for tick in range(TICKS)]
        assert parts == [int(tick >= start) for tick in range(TICKS)]
        assert all(number < one.clips[part].frames for part, number in map(one.frame, range(TICKS)))
        assert GAPS[one.spec.gaps[0]][0] <= start <= WINDOWS[one.spec.gaps[0]][0]
        again = cut_differently(np.random.default_rng(start), one)
        assert again.clips == one.clips and again.spec.gaps == one.spec.gaps


@pytest.mark.parametrize(("motion", "visible"), [(0.2, set()), (0.26, {3}), (0.45, {2, 3}), (0.7, {1, 2, 3})])
def test_a_held_picture_is_visible_if_enough_moves_while_it_is_held(motion: float, visible: set[int]) -> None:
    span = take_whole(make_clip("a", frames=48, motion=motion))
    levels = (1, 2, 3)
    assert {level for level in levels if shows(span, Defect("stutter", level), WINDOWS[1])} == visible
    assert {level for level in levels if shows_when_called(span, Defect("stutter", level))} == visible
    assert all(shows(span, Defect(kind, 1), WINDOWS[1]) for kind in ("jitter", "flicker", "warping", "noise"))


def test_a_fault_is_visible_by_the_frames_that_are_called_for() -> None:
    cut = take_whole(make_clip("a", frames=48, motion=0.1, jump=(34, 60.0)))
    assert cut.motion(0, 47) > 60
    assert not shows_when_called(cut, Defect("stutter", 3)), "a cut is no motion"
    moving = join(take_whole(make_clip("a", frames=48, motion=0.1)), make_clip("b", motion=3.0))
    assert shows_when_called(moving, Defect("stutter", 1))
    elsewhere = next(gap for gap in GAPS if not gap[0] <= moving.spec.shots[1].start <= gap[1])
    assert not shows_when_called(moving, Defect("stutter", 3, first=elsewhere[0], last=elsewhere[1]))
