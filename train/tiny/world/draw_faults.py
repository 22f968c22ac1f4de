"""Draws the faults of a pair: which clip has which, how strong, when and where. All random numbers are NumPy's."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from train.tiny.world.defects import strength
from train.tiny.world.values import GAPS, WINDOWS, ClipSpec, Defect, Level, Moving, Visual

_T = TypeVar("_T")

# About as frequent as in clips from a video generator or a phone.
_VISUAL: dict[Visual, float] = {
    "blur": 0.22,
    "noise": 0.18,
    "blocks": 0.10,
    "banding": 0.06,
    "haze": 0.08,
    "sharpening": 0.10,
    "colour": 0.06,
    "h264": 0.12,
    "h265": 0.08,
}
_MOVING: dict[Moving, float] = {
    "stutter": 0.22,
    "jitter": 0.20,
    "flicker": 0.18,
    "reversal": 0.08,
    "freeze": 0.10,
    "warping": 0.12,
    "ghosting": 0.10,
}
_AT_ONCE: dict[Moving, float] = {"ghosting": 0.5, "freeze": 0.25, "flicker": 0.25}
_BY_LEVEL: tuple[Moving, ...] = ("stutter", "jitter", "flicker", "warping")
_SOFT: frozenset[Visual] = frozenset({"blur", "banding", "sharpening"})
_REGIONAL: frozenset[Visual] = frozenset({"blur", "noise", "blocks", "banding", "haze", "sharpening"})

MotionFaults = tuple[tuple[Defect, ...], tuple[Defect, ...]] | tuple[()]
"""The motion faults of both clips, before they get a place in time; () for none."""


def draw_motion_faults(rng: np.random.Generator, concealed: bool) -> MotionFaults:
    """Draw motion faults. Concealed ones show only in neighbouring frames, or only for a short time."""
    if not concealed:
        if rng.random() < 0.6:
            return ()
        kind = _draw_weighted(rng, _AT_ONCE)
        level = 3 if kind == "freeze" else _level(rng, (2, 3))
        return _one(rng, Defect(kind, level, seed=_seed(rng)))
    if rng.random() < 0.35:
        return ()
    kind = _draw_weighted(rng, _MOVING)
    if kind in _BY_LEVEL and rng.random() < 0.15:
        slight, strong = Defect(kind, 1, spares=True, seed=_seed(rng)), Defect(kind, 3, spares=True, seed=_seed(rng))
        return _either(rng, (slight,), (strong,))
    fixed: dict[Moving, Level] = {"freeze": 2, "reversal": 3, "ghosting": _level(rng, (2, 3))}
    level = fixed.get(kind) or _level(rng, (1, 2, 2, 3, 3))
    return _one(rng, Defect(kind, level, spares=True, seed=_seed(rng)))


def draw_all_faults(
    rng: np.random.Generator,
    clips: tuple[ClipSpec, ClipSpec],
    moving: MotionFaults,
    *,
    twins: bool,
    tints: bool,
    concealed: bool,
) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """Draw all faults of both clips. `tints` allows a colour cast, where it cannot be mistaken for a real colour."""
    a, b = moving or ((), ())
    a, b = tuple(_place_in_time(rng, clips[0], d) for d in a), tuple(_place_in_time(rng, clips[1], d) for d in b)
    soft = {shot.ground.stuff for clip in clips for shot in clip.shots} == {"clouds"} and not twins
    kind = _kind(rng, tints=tints, soft=soft)
    if concealed and (not moving or rng.random() < 0.2):
        which = int(rng.integers(2))
        burst = _burst(rng, clips[which], Defect(kind, _level(rng, (2, 3)), seed=_seed(rng)))
        return ((*a, burst), b) if which == 0 else (a, (*b, burst))
    visual = _draw_visual(rng, kind, twins)
    return (*visual[0], *a), (*visual[1], *b)


def _draw_visual(rng: np.random.Generator, kind: Visual, twins: bool) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """Draw visual faults that every frame has: in neither clip, in one, in a part of one, or in both."""
    case = rng.random()
    if case < 0.3:
        return (), ()
    fault = Defect(kind, _level(rng, (1, 2, 2, 3) if twins else (2, 3)), seed=_seed(rng))
    if case < 0.72 or (case < 0.8 and kind not in _REGIONAL):
        return _either(rng, (fault,), ())
    if case < 0.8:
        return _either(rng, (replace(fault, level=_level(rng, (2, 3)), region=_region(rng)),), ())
    if case < 0.9:
        return (fault,), (replace(fault, seed=_seed(rng)),)
    return _either(rng, (replace(fault, level=1),), (replace(fault, level=3, seed=_seed(rng)),))


def _place_in_time(rng: np.random.Generator, clip: ClipSpec, defect: Defect) -> Defect:
    """Place a motion fault in time, so that the clip's first window shows it."""
    if not defect.spares:
        return defect
    if defect.kind in ("freeze", "reversal") or (defect.level > 1 and rng.random() < 0.35):
        defect = _burst(rng, clip, defect)
    if defect.kind == "stutter":
        # A held picture must change within the window; otherwise the clip would look frozen.
        gap = next((g for g in clip.gaps if not defect.brief or GAPS[g][0] <= defect.first <= GAPS[g][1]), 1)
        begin = WINDOWS[gap][1 + int(rng.integers(3))]
        defect = replace(defect, seed=begin % int(strength(defect)))
    return defect


def _burst(rng: np.random.Generator, clip: ClipSpec, defect: Defect) -> Defect:
    """Limit a fault to a short time: within one gap, after the gap's cut if it has one, and over its window."""
    gap = clip.gaps[int(rng.integers(len(clip.gaps)))]
    low, high = GAPS[gap]
    low = max([low, *(shot.start for shot in clip.shots if low <= shot.start <= high)])
    window = WINDOWS[gap]
    first, last = int(rng.integers(low, window[0] + 1)), int(rng.integers(window[-1], high + 1))
    return replace(defect, first=first, last=last, spares=False)


def _kind(rng: np.random.Generator, *, tints: bool, soft: bool) -> Visual:
    while True:
        kind = _draw_weighted(rng, _VISUAL)
        if (tints or kind != "colour") and not (soft and kind in _SOFT):
            return kind


def _region(rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Draw a rectangle of half to three quarters of each side."""
    wide, high = float(rng.uniform(0.5, 0.75)), float(rng.uniform(0.5, 0.75))
    left, top = float(rng.uniform(0, 1 - wide)), float(rng.uniform(0, 1 - high))
    return left, top, left + wide, top + high


def _one(rng: np.random.Generator, defect: Defect) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    return _either(rng, (defect,), ())


def _either(
    rng: np.random.Generator, a: tuple[Defect, ...], b: tuple[Defect, ...]
) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """Return the two in random order."""
    return (a, b) if rng.random() < 0.5 else (b, a)


def _level(rng: np.random.Generator, levels: tuple[Level, ...]) -> Level:
    return levels[int(rng.integers(len(levels)))]


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _draw_weighted(rng: np.random.Generator, options: dict[_T, float]) -> _T:
    names = list(options)
    chances = np.array(list(options.values()))
    return names[int(rng.choice(len(names), p=chances / chances.sum()))]
