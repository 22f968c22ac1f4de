"""What is made of a scene: clean clips, harmless versions of it, and faulty ones."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image, ImageEnhance

from train.tiny.encoders import BAD, GOOD, decode, encode
from train.tiny.fault_kinds import FAULTS, WITHHELD
from train.tiny.filming import Filmed, Part
from train.tiny.spoiled_pictures import Chance, Frames

HARMLESS: Final = ("recoded", "resized", "mirrored", "trimmed", "cropped", "look")
STRENGTHS: Final = (0.12, 0.3, 0.5, 0.72, 0.95)
"""Of the faults on scenes for the figures: light twice, medium, and plain twice."""
_KINDS: Final[dict[Part, int]] = {"train": 3, "held": 4, "test": 4}
"""How many kinds of fault are made of a scene: in training each in two strengths, so that their order is learned.

Many scenes with few clips each teach more than few scenes with many.
"""
_ADDED: Final = {1: (5, 13), 2: (3, 17)}
"""Of each turn in which kinds were added: how many scenes have one with a fault of such a kind, and a salt.

They have random numbers of their own, so that the other clips of a scene do not depend on them.
"""
_HARMLESS: Final[dict[Part, int]] = {"train": 2, "held": 2, "test": 2}
_LEAST_CHANGE = 0.25
"""Levels. What changes the frames by less shows no fault."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A clip to make. Without a `fault` it is clean; `version` is harmless. `generations` counts encodings."""

    fault: str
    strength: float
    version: str
    generations: int
    seed: int


def plan(filmed: Filmed, chance: Chance) -> list[Plan]:
    """Draw the clips to make of a scene."""
    spec = filmed.spec
    plans = [Plan("", 0, "", generations, int(chance.integers(1 << 30))) for generations in (1, 2)]
    for version in chance.choice(HARMLESS, _HARMLESS[spec.part], replace=False):
        plans.append(Plan("", 0, str(version), int(chance.integers(1, 3)), int(chance.integers(1 << 30))))
    fitting = [kind for kind, fault in FAULTS.items() if not fault.added and _fits(kind, filmed)]
    if spec.part != "test":
        fitting = [kind for kind in fitting if kind not in WITHHELD]
    weights = np.array([2.0 if FAULTS[kind].hard and spec.part != "test" else 1.0 for kind in fitting])
    for kind in chance.choice(fitting, _KINDS[spec.part], replace=False, p=weights / weights.sum()):
        plans += _plan_fault(str(kind), spec.part, chance)
    for turn, (every, salt) in _ADDED.items():
        kinds = [kind for kind, fault in FAULTS.items() if fault.added == turn and _fits(kind, filmed)]
        if kinds and spec.seed % every == 0:
            chance = np.random.default_rng((spec.seed, salt, zlib.crc32(spec.part.encode())))
            plans += _plan_fault(str(chance.choice(kinds)), spec.part, chance)
    return plans


def _plan_fault(kind: str, part: Part, chance: Chance) -> list[Plan]:
    """Draw the clips with a fault, in some strengths."""
    seed = int(chance.integers(1 << 30))
    strengths = STRENGTHS if part == "test" else (chance.uniform(0.05, 0.5), chance.uniform(0.5, 1))
    return [Plan(kind, float(s), "", int(chance.integers(1, 3)), seed) for s in strengths]


def _fits(kind: str, filmed: Filmed) -> bool:
    fault = FAULTS[kind]
    return not (fault.moves and not filmed.moves()) and not (fault.colours and filmed.spec.grey)


def make(filmed: Filmed, what: Plan) -> bytes | None:
    """Return the file of a clip; None if its fault does not show."""
    spec, chance = filmed.spec, np.random.default_rng(what.seed)
    writing = np.random.default_rng((what.seed, round(1000 * what.strength)))
    numbers = list(range(spec.frames))
    fault = FAULTS.get(what.fault)
    fps = spec.fps
    if fault and fault.reorder:
        changed = fault.reorder(spec.frames, fps, what.strength, chance)
        if np.array_equal(np.minimum(changed, filmed.count - 1), numbers):
            return None
        numbers = changed
    if what.version == "trimmed":
        cut = writing.integers(0, max(spec.frames // 6, 1) + 1, 2)
        numbers = numbers[int(cut[0]) : len(numbers) - int(cut[1])]
    frames = filmed.frames(numbers)
    if fault and (fault.reorder or fault.paint):
        clean = filmed.frames(list(range(spec.frames)))
        if fault.paint:
            frames = fault.paint(frames, what.strength, chance)
        if not fault.small and _differ(frames, clean) < _LEAST_CHANGE:
            return None
    frames = _vary(frames, what.version, writing)
    bad = None
    if fault and fault.codec:
        low, high = BAD[fault.codec]
        bad = fault.codec, low + (high - low) * what.strength
    return _write(frames, fps, what, bad, writing)


def _write(frames: Frames, fps: float, what: Plan, bad: tuple[str, float] | None, chance: Chance) -> bytes:
    """Encode as often as planned; a bad encoder is the first of them."""
    data = b""
    for generation in range(what.generations):
        if bad and not generation:
            codec, quantiser = bad
        else:
            codec = str(chance.choice(list(GOOD), p=(0.7, 0.12, 0.1, 0.08)))
            quantiser = chance.uniform(*GOOD[codec])
        data = encode(frames, fps, codec, quantiser, full_range=chance.random() < 0.07)
        if generation + 1 < what.generations:
            frames = decode(data)
    return data


def _differ(one: Frames, two: Frames) -> float:
    steps = max(len(one) // 12, 1)
    pairs = list(zip(one, two, strict=False))[steps // 2 :: steps]
    return float(np.mean([np.abs(a[::3, ::3].astype(np.int16) - b[::3, ::3]).mean() for a, b in pairs]))


def _vary(frames: Frames, version: str, chance: Chance) -> Frames:
    """Return a harmless version of frames."""
    height, width = frames[0].shape[:2]
    if version == "mirrored":
        return [np.ascontiguousarray(f[:, ::-1]) for f in frames]
    if version == "cropped":
        rows, columns = (2 * int(chance.uniform(0.01, 0.04) * length) for length in (height, width))
        return [np.ascontiguousarray(f[rows : height - rows, columns : width - columns]) for f in frames]
    if version == "resized":
        factor = chance.choice([chance.uniform(0.7, 0.95), chance.uniform(1.05, 1.35)])
        size = 2 * max(round(width * factor / 2), 16), 2 * max(round(height * factor / 2), 16)
        return [np.asarray(Image.fromarray(f).resize(size, Image.Resampling.BICUBIC)) for f in frames]
    if version == "look":
        light, contrast, colour = chance.uniform(0.94, 1.06), chance.uniform(0.94, 1.07), chance.uniform(0.85, 1.15)
        out: Frames = []
        for frame in frames:
            picture = ImageEnhance.Brightness(Image.fromarray(frame)).enhance(light)
            picture = ImageEnhance.Color(ImageEnhance.Contrast(picture).enhance(contrast)).enhance(colour)
            out.append(np.asarray(picture))
        return out
    return frames


def count_scenes(part: Part, scale: float = 1.0) -> int:
    """Return how many scenes are filmed for a part."""
    return round(scale * {"train": 2080, "held": 160, "test": 66}[part])
