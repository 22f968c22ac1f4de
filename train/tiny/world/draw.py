"""Draws a pair from its seed: size, duration, shots, subject, caption. All random numbers are NumPy's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

import numpy as np

from train.tiny.world.captions import draw_checkable_caption, draw_unrelated_caption
from train.tiny.world.grounds import POOL, photographs
from train.tiny.world.values import (
    GAPS,
    TICKS,
    Camera,
    ClipSpec,
    Colour,
    Direction,
    Form,
    Ground,
    Looks,
    Rgb,
    Scene,
    Shot,
    Stuff,
    Thing,
)

COLOURS: dict[Colour, Rgb] = {
    "red": (0.86, 0.12, 0.12),
    "green": (0.12, 0.70, 0.20),
    "blue": (0.12, 0.25, 0.88),
    "yellow": (0.95, 0.85, 0.12),
    "white": (0.96, 0.96, 0.96),
    "purple": (0.60, 0.18, 0.75),
}
FORMS: tuple[Form, ...] = get_args(Form)
DIRECTIONS: dict[Direction, tuple[int, int]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
SIZES = ((252, 140), (252, 140), (252, 140), (140, 252), (188, 188), (216, 162), (162, 216), (168, 210), (322, 138))
"""Width and height: 16:9 most often, 9:16, 1:1, 4:3, 3:4, 4:5 and 21:9; about 35 000 pixels each."""
RATES = (8, 10, 12, 15, 16, 20, 24, 25, 30, 48, 50, 60)
LONGEST_SECONDS = 60
RANGE = 10**9
TEST_RANGE = 3
"""Each range has a billion seeds. From this range on, the seeds have their own textures and photographs."""
_STUFFS: tuple[Stuff, ...] = ("leaves", "leaves", "leaves", "paper", "photo", "photo", "photo", "clouds", "clouds")
_PACES = ("fast", "fast", "fast", "fast", "slow")
_STILL, _STATIC_CAMERA = 0.02, 0.4
"""Share of the pairs in which nothing moves, and of the pairs with two subjects whose camera does not move."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _ScenePlan:
    """What both clips share: the seed, the speed of the camera, and whether they are twins."""

    seed: int
    pace: str
    twins: bool

    @property
    def family(self) -> int:
        """The number of the seed's range."""
        return self.seed // RANGE


def scene(seed: int) -> Scene:
    """Draw the pair of a seed."""
    rng = np.random.default_rng((seed, 6))
    still = bool(rng.random() < _STILL)
    caption_looks, caption, looks = _draw_caption(rng, still)
    static = still or (None not in looks and rng.random() < _STATIC_CAMERA)
    plan = _ScenePlan(seed, "still" if static else _pick(rng, _PACES), bool(rng.random() < 0.6))
    a, b = _clips_of(rng, plan, looks)
    return Scene(caption, caption_looks, (a, _shift_view(rng, b) if a == b else b))


def _draw_caption(rng: np.random.Generator, still: bool) -> tuple[Looks | None, str, tuple[Looks | None, Looks | None]]:
    """Draw a caption. Returns the looks that it describes, its text, and the looks of each clip's subject.

    The looks are None for a clip without a subject.
    """
    if still:
        return None, draw_unrelated_caption(rng), (None, None)
    some = Looks(_pick(rng, tuple(COLOURS)), _pick(rng, FORMS), _pick(rng, tuple(DIRECTIONS)))
    if rng.random() < 0.35:
        shown = _pick(rng, ((None, None), (None, None), (some, some), (some, _other_looks(rng, some, 2))))
        return None, draw_unrelated_caption(rng), shown
    caption = draw_checkable_caption(rng, some)
    case = rng.random()
    if case < 0.33:
        return some, caption, (some, some)
    wrong = _pick(rng, (1, 1, 1, 2, 2, 3))
    if case < 0.45:
        same = _other_looks(rng, some, wrong)
        return some, caption, (same, same)
    bad = None if rng.random() < 0.15 else _other_looks(rng, some, wrong)
    return some, caption, (some, bad) if rng.random() < 0.5 else (bad, some)


def _other_looks(rng: np.random.Generator, looks: Looks, wrong: int) -> Looks:
    """Change `wrong` of the three parts of the looks."""
    for name in rng.permutation(3)[:wrong]:
        if name == 0:
            looks = replace(looks, colour=_pick(rng, tuple(c for c in COLOURS if c != looks.colour)))
        elif name == 1:
            looks = replace(looks, form=_pick(rng, tuple(f for f in FORMS if f != looks.form)))
        else:
            looks = replace(looks, direction=_pick(rng, tuple(d for d in DIRECTIONS if d != looks.direction)))
    return looks


def _clips_of(
    rng: np.random.Generator, plan: _ScenePlan, looks: tuple[Looks | None, Looks | None]
) -> tuple[ClipSpec, ClipSpec]:
    """Draw both clips. Twins differ only in the subject."""
    a = _clip_of(rng, plan, looks[0])
    if not plan.twins:
        size = (a.width, a.height) if rng.random() < 0.8 else None
        return a, _clip_of(rng, plan, looks[1], size=size)
    subject = _subject(rng, looks[1], (a.width, a.height))
    if looks[0] == looks[1]:
        subject = a.subject
    return a, replace(a, looks=looks[1], subject=subject, occluder=a.occluder if subject else None)


def _clip_of(
    rng: np.random.Generator, plan: _ScenePlan, looks: Looks | None, *, size: tuple[int, int] | None = None
) -> ClipSpec:
    """Draw a clip whose subject has these looks."""
    width, height = size or _pick(rng, SIZES)
    fps = _pick(rng, RATES)
    shortest = max(1.0, TICKS / fps)
    seconds = math.exp(_between(rng, math.log(shortest), math.log(LONGEST_SECONDS)))
    frames = min(max(TICKS, round(seconds * fps)), LONGEST_SECONDS * fps)
    subject = _subject(rng, looks, (width, height))
    occluder = _occluder(rng, (width, height)) if subject and rng.random() < 0.18 else None
    return ClipSpec(width, height, fps, frames, _shots(rng, plan), looks, subject, occluder)


def _shots(rng: np.random.Generator, plan: _ScenePlan) -> tuple[Shot, ...]:
    """Draw one shot, sometimes two, rarely three. A cut is early in its gap, before the gap's window."""
    count = 0 if plan.pace == "still" else _pick(rng, (0,) * 74 + (1,) * 22 + (2,) * 4)
    gaps = sorted(int(g) for g in rng.permutation(len(GAPS))[:count])
    starts = (0, *(GAPS[g][0] + int(rng.integers(1, 5)) for g in gaps))
    return tuple(Shot(start, _ground(rng, plan), _camera(rng, plan)) for start in starts)


def _ground(rng: np.random.Generator, plan: _ScenePlan) -> Ground:
    stuff: Stuff = _pick(rng, _STUFFS)
    flip = bool(rng.random() < 0.5)
    gain = (_between(rng, 0.93, 1.07), _between(rng, 0.93, 1.07), _between(rng, 0.93, 1.07))
    if stuff == "photo":
        return Ground(stuff, _pick(rng, photographs(test=plan.family >= TEST_RANGE)), flip, (0, 1, 2), gain)
    kept = 1 if plan.family >= TEST_RANGE else 0
    r, g, b = (int(i) for i in rng.permutation(3))
    return Ground(stuff, str(kept * POOL + int(rng.integers(POOL))), flip, (r, g, b), gain)


def _camera(rng: np.random.Generator, plan: _ScenePlan) -> Camera:
    centre = (_between(rng, 0.35, 0.65), _between(rng, 0.35, 0.65))
    if plan.pace == "still":
        return Camera(centre, _between(rng, 1.0, 1.6))
    speed = _between(rng, 0.06, 0.11) if plan.pace == "fast" else _between(rng, 0.025, 0.045)
    angle = _between(rng, 0, 2 * math.pi)
    zoom = _between(rng, -0.007, 0.007) if rng.random() < 0.4 else 0.0
    # Zooming in must not need more pixels than the background has: a picture without a fault is sharp.
    scale = _between(rng, 1.0, 1.5) * math.exp(max(zoom, 0.0) * (TICKS - 1))
    return Camera(centre, scale, (speed * math.cos(angle), speed * math.sin(angle)), zoom)


def _subject(rng: np.random.Generator, looks: Looks | None, size: tuple[int, int]) -> Thing | None:
    """Draw the thing that crosses most of the picture in its direction."""
    if looks is None:
        return None
    wide, high = size[0] / min(size), size[1] / min(size)
    radius = _between(rng, 0.24, 0.42)
    x, y = DIRECTIONS[looks.direction]
    aside = _between(rng, -0.5, 0.5) * (high if x else wide)
    reach = 0.62 * (wide if x else high)
    begin = (-reach * x, aside) if x else (aside, -reach * y)
    end = (reach * x, aside) if x else (aside, reach * y)
    r, g, b = (min(max(c + _between(rng, -0.05, 0.05), 0.0), 1.0) for c in COLOURS[looks.colour])
    return Thing(looks.form, (r, g, b), radius, begin, end, _between(rng, -0.2, 0.2))


def _occluder(rng: np.random.Generator, size: tuple[int, int]) -> Thing:
    """Draw a dark bar, or a drifting leaf, in front of the subject."""
    wide = size[0] / min(size)
    tone = _between(rng, 0.08, 0.3)
    rgb = (tone, tone * _between(rng, 0.7, 1.0), tone * _between(rng, 0.4, 0.8))
    x = _between(rng, -0.6, 0.6) * wide
    if rng.random() < 0.6:
        return Thing("bar", rgb, _between(rng, 0.1, 0.22), (x, 0.0), (x, 0.0))
    y = _between(rng, -0.6, 0.6)
    return Thing("circle", rgb, _between(rng, 0.25, 0.4), (x, y), (x + _between(rng, -0.5, 0.5), y))


def _shift_view(rng: np.random.Generator, clip: ClipSpec) -> ClipSpec:
    """Move the view of a clip a little: what it shows stays, its pictures differ."""
    dx, dy = _between(rng, 0.1, 0.3), _between(rng, -0.2, 0.2)
    moved = (replace(s, camera=replace(s.camera, centre=_shifted(s.camera.centre, dx, dy))) for s in clip.shots)
    return replace(clip, shots=tuple(moved))


def _shifted(centre: tuple[float, float], dx: float, dy: float) -> tuple[float, float]:
    return centre[0] + dx, centre[1] + dy


def _pick(rng: np.random.Generator, options: tuple[_T, ...]) -> _T:
    """Pick one of the options at random."""
    return options[int(rng.integers(len(options)))]


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(rng.uniform(low, high))
