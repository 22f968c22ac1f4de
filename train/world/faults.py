"""Draws the faults of a pair: which clip has which, how strong, when and where. Chance is NumPy's alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from train.world.defects import strength
from train.world.values import GAPS, WINDOWS, ClipSpec, Defect, Lesson, Level, Moving, Visual

_T = TypeVar("_T")

# About as often as clips have them that come out of a generator or a phone.
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
_MOTION_SHOWS: frozenset[Moving] = frozenset({"stutter", "reversal", "freeze", "ghosting"})
_SPARED: frozenset[Moving] = frozenset({"stutter", "jitter", "reversal", "warping"})
_LEVELS: dict[Lesson, tuple[Level, ...]] = {"strong": (3,), "clear": (2, 3), "weak": (1, 2, 3)}
_PATCH: frozenset[Visual] = frozenset({"blur", "noise", "blocks", "banding", "haze", "sharpening"})

Moved = tuple[tuple[Defect, ...], tuple[Defect, ...]] | tuple[()]
"""The faults of motion of both clips, not placed in time yet; () for none."""


def of_motion(rng: np.random.Generator, concealed: bool) -> Moved:
    """Faults of motion. Concealed ones show only in neighbouring frames, or only for a while."""
    if not concealed:
        if rng.random() < 0.6:
            return ()
        kind = _weighed(rng, _AT_ONCE)
        level = 3 if kind == "freeze" else _level(rng, (2, 3))
        return _one(rng, Defect(kind, level, seed=_seed(rng)))
    if rng.random() < 0.35:
        return ()
    kind = _weighed(rng, _MOVING)
    if kind in _BY_LEVEL and rng.random() < 0.15:
        slight, strong = Defect(kind, 1, spares=True, seed=_seed(rng)), Defect(kind, 3, spares=True, seed=_seed(rng))
        return _either(rng, (slight,), (strong,))
    fixed: dict[Moving, Level] = {"freeze": 2, "reversal": 3, "ghosting": _level(rng, (2, 3))}
    level = fixed.get(kind) or _level(rng, (1, 2, 2, 3, 3))
    return _one(rng, Defect(kind, level, spares=True, seed=_seed(rng)))


def single(rng: np.random.Generator, clip: ClipSpec, lesson: Lesson) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """One fault in one of two clips that are otherwise this one; of the weakest lesson, at times in both.

    Of a clip in which nothing moves a judge asks for no frames: there every frame has it.
    """
    level = _level(rng, _LEVELS[lesson])
    easy = lesson == "strong" or clip.still
    if rng.random() < 0.5:
        if clip.still:
            return _one(rng, Defect("flicker", level, seed=_seed(rng)))
        kind = _weighed(rng, _MOVING)
        while kind in _MOTION_SHOWS and not clip.moves:
            kind = _weighed(rng, _MOVING)
        spares = kind in _SPARED or bool(rng.random() < 0.5)
        return _one(rng, _timed(rng, clip, Defect(kind, level, spares=spares, seed=_seed(rng))))
    smooth = all(shot.ground.stuff == "clouds" for shot in clip.shots)
    made = Defect(_kind(rng, tints=True, soft=smooth and level == 1), level, seed=_seed(rng))
    if not easy and rng.random() < 0.2:
        made = _burst(rng, clip, replace(made, level=max(level, 2)))
    elif not easy and rng.random() < 0.2 and made.kind in _PATCH:
        made = replace(made, level=max(level, 2), region=_region(rng))
    elif lesson == "weak" and rng.random() < 0.2:
        return _either(rng, (replace(made, level=1),), (replace(made, level=3, seed=_seed(rng)),))
    return _one(rng, made)


def placed(
    rng: np.random.Generator,
    clips: tuple[ClipSpec, ClipSpec],
    moving: Moved,
    *,
    twins: bool,
    tints: bool,
    concealed: bool,
) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """All faults of both clips. `tints`: a wrong colour can be told from the subject's and the ground's own."""
    a, b = moving or ((), ())
    a, b = tuple(_timed(rng, clips[0], d) for d in a), tuple(_timed(rng, clips[1], d) for d in b)
    soft = {shot.ground.stuff for clip in clips for shot in clip.shots} == {"clouds"} and not twins
    kind = _kind(rng, tints=tints, soft=soft)
    if concealed and (not moving or rng.random() < 0.2):
        which = int(rng.integers(2))
        burst = _burst(rng, clips[which], Defect(kind, _level(rng, (2, 3)), seed=_seed(rng)))
        return ((*a, burst), b) if which == 0 else (a, (*b, burst))
    seen = _seen(rng, kind, twins)
    return (*seen[0], *a), (*seen[1], *b)


def _seen(rng: np.random.Generator, kind: Visual, twins: bool) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """Visual faults that every frame has: in neither clip, in one, in a part of one, or in both."""
    case = rng.random()
    if case < 0.3:
        return (), ()
    made = Defect(kind, _level(rng, (1, 2, 2, 3) if twins else (2, 3)), seed=_seed(rng))
    if case < 0.72 or (case < 0.8 and kind not in _PATCH):
        return _either(rng, (made,), ())
    if case < 0.8:
        return _either(rng, (replace(made, level=_level(rng, (2, 3)), region=_region(rng)),), ())
    if case < 0.9:
        return (made,), (replace(made, seed=_seed(rng)),)
    return _either(rng, (replace(made, level=1),), (replace(made, level=3, seed=_seed(rng)),))


def _timed(rng: np.random.Generator, clip: ClipSpec, defect: Defect) -> Defect:
    """A fault of motion placed in time, so that the clip's first window shows it."""
    if not defect.spares:
        return defect
    if defect.kind in ("freeze", "reversal") or (defect.level > 1 and rng.random() < 0.35):
        defect = _burst(rng, clip, defect)
    if defect.kind == "stutter":
        # A held picture must give way within the window; else it would look frozen.
        gap = next((g for g in clip.gaps if not defect.brief or GAPS[g][0] <= defect.first <= GAPS[g][1]), 1)
        begin = WINDOWS[gap][1 + int(rng.integers(3))]
        defect = replace(defect, seed=begin % int(strength(defect)))
    return defect


def _burst(rng: np.random.Generator, clip: ClipSpec, defect: Defect) -> Defect:
    """The fault for a while: within one gap, after its cut if it has one, and over the gap's window."""
    gap = clip.gaps[int(rng.integers(len(clip.gaps)))]
    low, high = GAPS[gap]
    low = max([low, *(shot.start for shot in clip.shots if low <= shot.start <= high)])
    window = WINDOWS[gap]
    first, last = int(rng.integers(low, window[0] + 1)), int(rng.integers(window[-1], high + 1))
    return replace(defect, first=first, last=last, spares=False)


def _kind(rng: np.random.Generator, *, tints: bool, soft: bool) -> Visual:
    while True:
        kind = _weighed(rng, _VISUAL)
        if (tints or kind != "colour") and not (soft and kind in _SOFT):
            return kind


def _region(rng: np.random.Generator) -> tuple[float, float, float, float]:
    """A rectangle of half to three quarters of each side."""
    wide, high = float(rng.uniform(0.5, 0.75)), float(rng.uniform(0.5, 0.75))
    left, top = float(rng.uniform(0, 1 - wide)), float(rng.uniform(0, 1 - high))
    return left, top, left + wide, top + high


def _one(rng: np.random.Generator, defect: Defect) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    return _either(rng, (defect,), ())


def _either(
    rng: np.random.Generator, a: tuple[Defect, ...], b: tuple[Defect, ...]
) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
    """The two in either order."""
    return (a, b) if rng.random() < 0.5 else (b, a)


def _level(rng: np.random.Generator, levels: tuple[Level, ...]) -> Level:
    return levels[int(rng.integers(len(levels)))]


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _weighed(rng: np.random.Generator, options: dict[_T, float]) -> _T:
    names = list(options)
    chances = np.array(list(options.values()))
    return names[int(rng.choice(len(names), p=chances / chances.sum()))]
