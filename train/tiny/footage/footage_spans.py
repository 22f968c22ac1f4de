"""Draws spans of real clips: which part is shown, its cuts, and its variation. All random numbers are NumPy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from train.tiny.footage.footage_frames import LARGE, JoinedClip, Span, Variation, picture_size
from train.tiny.footage.survey import SurveyedClip
from train.tiny.world.defects import STRENGTH
from train.tiny.world.values import GAPS, TICKS, WINDOWS, Camera, ClipSpec, Defect, Ground, Moving, Shot, Visual

JOINED = 0.25
"""Share of the spans in training that continue with another clip after a cut."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.6, 8.0
_NEEDS_DETAIL = frozenset({"blur", "blocks", "h264", "h265", "sharpening"})
_TICKS_APART: Final[dict[Visual | Moving, tuple[float, float, float]]] = {
    "stutter": STRENGTH["stutter"],
    "freeze": (4, 4, 4),
    "reversal": (2, 2, 2),
    "ghosting": (1.5, 2.5, 4.0),  # half of the ticks between the picture and its ghost, which is half of the picture
}
"""How many ticks apart the picture that a motion fault shows and the right picture are, by level."""
_LEAST_MOTION = 1.2
"""Grey levels of motion (`SurveyedClip.motion`) between these two pictures, below which the fault is not visible."""
_LEAST_DETAIL = 2.5
"""Grey levels from pixel to pixel (`SurveyedClip.detail`), below which a blur is not visible."""
_TONES = ((0.75, 1.35), (0.85, 1.4), (0.6, 1.6))
"""The ranges of gamma, contrast and saturation of a variation."""
_TEXTURES = (0.01, 1.0, 0.03)
"""The most softness, crispness and grain of a variation: less than slight blur, sharpening and noise."""
_CUT = 24.0  # grey levels from a frame to the next: more, and far more than usual, is a cut
_TRIES = 20


def draw_span(rng: np.random.Generator, clips: Sequence[SurveyedClip]) -> Span:
    """Draw a span of a clip of any package: every package has the same probability.

    Its cuts are as in the world. After some tries, the cuts of the last span are ignored.
    """
    groups = sorted({clip.group for clip in clips})
    group = groups[int(rng.integers(len(groups)))]
    inside = [clip for clip in clips if clip.group == group]
    clip = inside[int(rng.integers(len(inside)))]
    longest = min(_LONGEST_SECONDS, clip.frames / clip.fps)
    size = picture_size(clip, 1.0 if rng.random() < 0.6 else LARGE)
    span: Span | None = None
    for _ in range(_TRIES):
        seconds = rng.uniform(min(_SHORTEST_SECONDS, longest), longest)
        frames = min(max(TICKS, round(seconds * clip.fps)), clip.frames)
        span = _cut_out(clip, int(rng.integers(clip.frames - frames + 1)), frames, size)
        if _cuts_early(span.spec):
            return span
    assert span is not None
    return _remove_cuts(span)


def join_some(rng: np.random.Generator, span: Span, clips: Sequence[SurveyedClip]) -> Span:
    """Join a share JOINED of the spans that have no cut with another clip of the same shape, which follows a cut.

    Few clips of real footage have a cut; without such spans a judge does not learn to call for the frames after one.
    Returns the span itself if it is not one of them, or if no clip fits.
    """
    if rng.random() >= JOINED or len(span.spec.shots) > 1:
        return span
    shape = picture_size(span.clip, 1.0)
    fit = [c for c in clips if c != span.clip and c.frames >= span.spec.frames and picture_size(c, 1.0) == shape]
    for _ in range(_TRIES if fit else 0):
        clip = fit[int(rng.integers(len(fit)))]
        if not _find_cuts(clip.motion):
            return _join(rng, span, clip, int(rng.integers(len(GAPS))))
    return span


def cut_differently(rng: np.random.Generator, span: Span) -> Span:
    """Cut the same clip in another way: a little earlier or later, and shorter or longer."""
    clip, spec, joined = span.clip, span.spec, span.joined
    most = min(clip.frames, joined.clip.frames) if joined else clip.frames
    frames = min(max(TICKS, round(spec.frames * rng.uniform(0.8, 1.25))), most)
    start = min(max(span.start + round(rng.uniform(-0.5, 0.5) * frames), 0), clip.frames - frames)
    found = _cut_out(clip, start, frames, (spec.width, spec.height))
    if joined:
        return _join(rng, _remove_cuts(found), joined.clip, spec.gaps[0])
    return found if _cuts_early(found.spec) else _remove_cuts(found)


def draw_variation(rng: np.random.Generator, span: Span) -> Variation:
    """Draw a variation of a span."""
    flip, corner = bool(rng.random() < 0.5), None
    order = tuple(map(int, rng.permutation(3))) if rng.random() < 0.3 else (0, 1, 2)
    red, green, blue = rng.uniform(0.7, 1.1) * rng.uniform(0.85, 1.15, 3)
    width, height = span.spec.width, span.spec.height
    if (width, height) == picture_size(span.clip, 1.0) and rng.random() < 0.6:
        large = picture_size(span.clip, LARGE)
        corner = (int(rng.integers(large[0] - width + 1)), int(rng.integers(large[1] - height + 1)))
    gamma, contrast, saturation = (float(rng.uniform(low, high)) for low, high in _TONES)
    texture = (float(rng.uniform(0, most)) if rng.random() < 0.4 else 0.0 for most in _TEXTURES)
    colours = (float(red), float(green), float(blue))
    return Variation(flip, (order[0], order[1], order[2]), colours, corner, gamma, contrast, saturation, *texture)


def shows(span: Span, fault: Defect, ticks: Sequence[int]) -> bool:
    """Whether a fault is visible in these ticks of a span: coding needs detail, a held picture needs motion."""
    if fault.kind in _NEEDS_DETAIL:
        return span.detail() >= _LEAST_DETAIL
    if fault.kind not in _TICKS_APART:
        return True
    step = span.motion(ticks[0], ticks[-1]) / (ticks[-1] - ticks[0])
    return step * _TICKS_APART[fault.kind][fault.level - 1] >= _LEAST_MOTION


def shows_when_called(span: Span, fault: Defect) -> bool:
    """Whether a fault is visible in one of the windows that a perfect judge calls for."""
    return any(shows(span, fault, WINDOWS[gap]) for gap in span.spec.gaps if fault.at(WINDOWS[gap][1]))


def _cuts_early(spec: ClipSpec) -> bool:
    """Whether a clip has at most two cuts, in different gaps and before the gaps' windows, as in the world."""
    gaps = [GAPS.index(gap) for shot in spec.shots[1:] for gap in GAPS if gap[0] <= shot.start <= gap[1]]
    early = all(any(low <= shot.start <= WINDOWS[g][0] for g, (low, _) in enumerate(GAPS)) for shot in spec.shots[1:])
    return early and len(gaps) == len(set(gaps)) == len(spec.shots) - 1 < len(GAPS)


def _remove_cuts(span: Span) -> Span:
    return replace(span, spec=replace(span.spec, shots=span.spec.shots[:1]))


def _join(rng: np.random.Generator, span: Span, clip: SurveyedClip, gap: int) -> Span:
    """Join a span that has no cut with another clip, after a cut in this gap, at the latest where its window begins."""
    first = span.spec.shots[0]
    shots = (first, replace(first, start=int(rng.integers(GAPS[gap][0], WINDOWS[gap][0] + 1))))
    found = replace(span, spec=replace(span.spec, shots=shots))
    rest = span.spec.frames - found.cut
    return replace(found, joined=JoinedClip(clip, int(rng.integers(clip.frames - rest + 1))))


def _cut_out(clip: SurveyedClip, start: int, frames: int, size: tuple[int, int]) -> Span:
    ground, camera = Ground("photo", clip.path), Camera((0.5, 0.5), 1.0, pan=(1.0, 0.0))
    cuts = _find_cuts(clip.motion[start : start + frames])
    ticks = sorted({math.ceil((TICKS - 1) * i / (frames - 1)) for i in cuts})
    shots = tuple(Shot(tick, ground, camera) for tick in (0, *(tick for tick in ticks if tick)))
    return Span(clip, start, ClipSpec(*size, max(1, round(clip.fps)), frames, shots))


def _find_cuts(motion: Sequence[float]) -> list[int]:
    """Return the frames that begin a shot, after the first."""
    usual = median(motion[1:])
    return [i for i in range(1, len(motion)) if motion[i] > max(_CUT, 5 * usual)]
