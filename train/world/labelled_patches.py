"""Draws single temporal patches with several shapes, and says of every token what covers its cell.

A line of a script says what a clip shows, but not where. To learn forms, directions and ghosts from such lines alone a
small tower needs hundreds of thousands of pairs; from these patches it needs some ten thousand patches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from train.world.defects import VISUAL
from train.world.draw import COLOURS, DIRECTIONS, FORMS, pick
from train.world.effects import apply_fault
from train.world.grounds import POOL, photographs
from train.world.render import GHOST, draw_thing, render_ground
from train.world.script import NAMES
from train.world.values import (
    TICKS,
    Camera,
    Defect,
    Ground,
    Looks,
    Rgb,
    Shot,
    Stuff,
    Thing,
    Visual,
)
from vrt_lite.profile import CELL
from vrt_lite.protocol.messages import FrameRef

NOTHING: Final = -1
"""The label of a cell that no shape covers."""
UNKNOWN: Final = -1
"""The mark of a word that may or may not hold."""
LOOKS: Final = (tuple(COLOURS), FORMS, tuple(DIRECTIONS))
"""The options of each column of looks, by number."""
STEPS: Final = ("still", "flash", "double", "bend", "shake")
"""The words for the step between neighbouring frames that two frames can show."""
MARKS: Final = (
    *("ghosts", *dict.fromkeys(NAMES[kind] for kind in VISUAL), "flicker"),
    *STEPS,
)
"""The words for faults that two frames can show. The world's patches say nothing of flicker and of steps."""
_FAULTS: Final[tuple[Visual, ...]] = ("blur", "noise", "blocks", "banding", "haze", "sharpening")
_UNMARKED: Final = ("flicker", *STEPS)
_SOFT: Final = frozenset({"blur", "banding", "sharpening"})
_SIZES: Final = ((252, 140), (252, 140), (140, 252), (196, 196), (224, 168), (168, 224))
_STUFFS: Final[tuple[Stuff, ...]] = ("leaves", "leaves", "paper", "photo", "photo", "clouds")
_SHAPES, _TRIES = 4, 6
_STEPS: Final = ((0.035, 0.06), (0.6, 0.9))
"""How far a shape moves from one frame to the other: neighbouring ticks, or two of the first frames."""
_PANS: Final = (0.1, 1.2)
_PANNED, _GHOSTS, _FAULTY = 0.7, 0.3, 0.45
_LAGS: Final = (0.12, 0.45)


@dataclass(frozen=True, slots=True)
class LabelledPatch:
    """A temporal patch of n tokens, and a frame store of its two `pictures`, which are (height, width, 3).

    `looks` are (n, 3), the numbers of colour, form and direction of the shape that covers a token's cell in one of the
    two frames. `marks` are (n, MARKS): whether each word holds for the cell: 1, 0, or UNKNOWN. In the list of a
    seed, the patch with the same content and no fault is `clean` places after this one; 0 if this is it.
    """

    pictures: tuple[NDArray[np.uint8], NDArray[np.uint8]]
    looks: NDArray[np.int64]
    marks: NDArray[np.int64]
    clean: int = 0

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """Return the pictures of these frames: the first has index 0, and the second 1."""
        return [self.pictures[frame.index] for frame in frames]


@dataclass(frozen=True, slots=True)
class _Shape:
    looks: Looks
    rgb: Rgb
    radius: float
    begin: tuple[float, float]
    end: tuple[float, float]
    angle: float

    @property
    def places(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return self.begin, self.end

    def drawn(self, late: float) -> Thing:
        """Return the shape as a thing that is `late`: behind its place by so much."""
        x, y = DIRECTIONS[self.looks.direction]
        begin, end = ((px - x * late, py - y * late) for px, py in self.places)
        return Thing(self.looks.form, self.rgb, self.radius, begin, end, self.angle)


def draw_labelled_patch(seed: int) -> LabelledPatch:
    """Draw the patch of a seed. All random numbers are NumPy's."""
    rng = np.random.default_rng((seed, 10))
    width, height = pick(rng, _SIZES)
    near = int(rng.random() < 0.5)
    shapes = _draw_shapes(rng, (width, height), _STEPS[1 - near])
    ghosts, lag = bool(rng.random() < _GHOSTS), float(rng.uniform(*_LAGS))
    shot = _draw_shot(rng, _PANS[1 - near])
    kind: Visual | None = pick(rng, _FAULTS) if rng.random() < _FAULTY else None
    if kind in _SOFT and shot.ground.stuff == "clouds":
        kind = None
    defect = Defect(kind, pick(rng, (2, 3)), seed=int(rng.integers(2**31))) if kind else None
    pictures = _render(shot, shapes, (width, height), lag=lag if ghosts else 0.0, defect=defect)
    looks = _label(shapes, (width, height))
    marks = np.tile(mark({NAMES[kind]} if kind else set(), _UNMARKED), (len(looks), 1))
    ghostly = ghosts and (shot.camera.pan != (0.0, 0.0) or looks[:, 0] != NOTHING)
    marks[:, MARKS.index("ghosts")] = ghostly
    return LabelledPatch(pictures, looks, marks)


def mark(words: Collection[str], unknown: Collection[str]) -> NDArray[np.int64]:
    """Return the marks of a cell for which `words` hold and `unknown` may hold, (MARKS,)."""
    return np.array([UNKNOWN if word in unknown else int(word in words) for word in MARKS])


def _draw_shapes(rng: np.random.Generator, size: tuple[int, int], step: tuple[float, float]) -> list[_Shape]:
    """Draw shapes that do not touch each other in either frame."""
    wide, high = size[0] / min(size), size[1] / min(size)
    length = float(rng.uniform(*step))
    found: list[_Shape] = []
    for _ in range(_SHAPES * _TRIES):
        looks = Looks(pick(rng, tuple(COLOURS)), pick(rng, FORMS), pick(rng, tuple(DIRECTIONS)))
        x, y = DIRECTIONS[looks.direction]
        begin = (float(rng.uniform(-wide, wide)), float(rng.uniform(-high, high)))
        r, g, b = (min(max(c + float(rng.uniform(-0.05, 0.05)), 0.0), 1.0) for c in COLOURS[looks.colour])
        end = (begin[0] + x * length, begin[1] + y * length)
        one = _Shape(looks, (r, g, b), float(rng.uniform(0.24, 0.42)), begin, end, float(rng.uniform(-0.2, 0.2)))
        if all(_are_apart(one, other) for other in found):
            found.append(one)
        if len(found) == _SHAPES:
            break
    return found


def _are_apart(one: _Shape, other: _Shape) -> bool:
    return all(math.dist(a, b) > one.radius + other.radius for a, b in zip(one.places, other.places, strict=True))


def _draw_shot(rng: np.random.Generator, speed: float) -> Shot:
    stuff: Stuff = pick(rng, _STUFFS)
    source = pick(rng, photographs(test=False)) if stuff == "photo" else str(int(rng.integers(POOL)))
    red, green, blue = (0, 1, 2) if stuff == "photo" else map(int, rng.permutation(3))
    gain = float(rng.uniform(0.93, 1.07))
    x, y = rng.uniform(-speed, speed, 2) / (TICKS - 1) if rng.random() < _PANNED else (0.0, 0.0)
    centre = (float(rng.uniform(0.3, 0.7)), float(rng.uniform(0.3, 0.7)))
    camera = Camera(centre, float(rng.uniform(1.0, 1.5)), (float(x), float(y)))
    return Shot(0, Ground(stuff, source, False, (red, green, blue), (gain, gain, gain)), camera)


@torch.inference_mode()
def _render(
    shot: Shot, shapes: list[_Shape], size: tuple[int, int], *, lag: float, defect: Defect | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Render both frames. Their times are the first and the last tick, so that a thing is at its begin and end."""
    width, height = size
    unit = min(size) / 2
    x = ((torch.arange(width) + 0.5 - width / 2) / unit).view(1, 1, -1)
    y = ((torch.arange(height) + 0.5 - height / 2) / unit).view(1, -1, 1)
    speed = math.hypot(*shot.camera.pan)
    frames: list[NDArray[np.uint8]] = []
    for tick in (0, TICKS - 1):

        def draw(late: float, moment: float = float(tick)) -> torch.Tensor:
            behind = moment - (late / speed if speed else 0.0)
            pictures = render_ground(shot, torch.tensor(behind).view(1, 1, 1), x, y, "cpu")
            for shape in shapes:
                pictures = draw_thing(pictures, shape.drawn(late), torch.tensor(moment).view(1, 1, 1), x, y, unit)
            return pictures

        picture = draw(0.0)
        if lag:
            picture = (1 - GHOST) * picture + GHOST * draw(lag)
        if defect:
            picture = apply_fault(defect, picture, [float(tick)])
        frames.append((picture[0].clamp(0, 1).permute(1, 2, 0) * 255 + 0.5).to(torch.uint8).numpy())
    return frames[0], frames[1]


def _label(shapes: list[_Shape], size: tuple[int, int]) -> NDArray[np.int64]:
    """Return the looks of the shape over each cell, (cells, 3); NOTHING where there is none."""
    unit = min(size) / 2
    columns, rows = ((np.arange(side // CELL) * CELL + CELL / 2 - side / 2) / unit for side in size)
    found = np.full((len(rows), len(columns), 3), NOTHING, np.int64)
    for shape in shapes:
        looks = shape.looks
        words = (looks.colour, looks.form, looks.direction)
        numbers = [options.index(word) for options, word in zip(LOOKS, words, strict=True)]
        reach = 0.8 * shape.radius + CELL / 4 / unit
        for px, py in shape.places:
            found[(np.abs(rows - py) < reach)[:, None] & (np.abs(columns - px) < reach)] = numbers
    return found.reshape(-1, 3)
