"""The faults that a clip can have: their kinds, the strength of each level, and the effect of motion faults on time.

This module has numbers only; `effects` and `coding` change pixels. Lengths are in halves of the shorter side.
"""

from __future__ import annotations

import math
from random import Random
from typing import get_args

from train.tiny.world.values import FIRST, ClipSpec, Defect, Moving, Visual

VISUAL: tuple[Visual, ...] = get_args(Visual)
MOTION: tuple[Moving, ...] = get_args(Moving)
CODECS = ("h264", "h265")

STRENGTH: dict[Visual | Moving, tuple[float, float, float]] = {
    "blur": (0.015, 0.028, 0.05),  # standard deviation
    "noise": (0.05, 0.10, 0.20),  # standard deviation, of a range of 1
    "blocks": (0.45, 0.75, 1.0),  # share of a block's mean in each of its pixels
    "banding": (9, 6, 4),  # steps of a channel
    "haze": (0.30, 0.48, 0.68),  # share of a light grey
    "sharpening": (1.5, 3.0, 6.0),  # gain of what a blur takes away
    "colour": (0.25, 0.45, 0.75),  # how far a channel's gain is from 1
    "h264": (38, 43, 48),  # quantiser
    "h265": (38, 43, 48),
    "stutter": (2, 3, 5),  # ticks that a picture is held
    "jitter": (0.035, 0.07, 0.13),  # how far the picture moves
    "flicker": (0.13, 0.24, 0.40),  # share of the light that is added or removed
    "ghosting": (3.0, 5.0, 8.0),  # ticks between the picture and its ghost
    "freeze": (1, 1, 1),
    "reversal": (1, 1, 1),
    "warping": (0.025, 0.05, 0.09),  # how far the picture is bent
}

_GOLDEN = 2.399963  # radians: jitter moves neighbouring ticks to nearly opposite sides, and never twice the same way


def strength(defect: Defect) -> float:
    """Return the strength of a fault's level, in the unit of its kind."""
    return STRENGTH[defect.kind][defect.level - 1]


def tick_of(position: float) -> int:
    """Return the tick nearest to a time."""
    return math.floor(position + 0.5)


def content_time(clip: ClipSpec, position: float) -> float:
    """Return the moment of the undamaged clip that is shown at a time, both in ticks."""
    tick = tick_of(position)
    for defect in clip.defects:
        if not defect.at(tick):
            continue
        if defect.kind == "freeze":
            return float(defect.first)
        if defect.kind == "reversal":
            return defect.first + defect.last - position
        if defect.kind == "stutter":
            return float(_held(defect, tick))
    return position


def _held(defect: Defect, tick: int) -> int:
    """Return the tick whose picture a stutter shows at `tick`. A spared tick always shows its own picture."""
    hold = int(strength(defect))
    begin = (tick - defect.seed) // hold * hold + defect.seed
    floor = max((shown for shown in FIRST if shown <= tick), default=0) if defect.spares else 0
    return max(begin, floor, defect.first)


def jitter_offset(clip: ClipSpec, tick: int) -> tuple[float, float]:
    """Return how far jitter moves the whole picture at a tick, as (x, y)."""
    x = y = 0.0
    for defect in clip.defects:
        if defect.kind == "jitter" and defect.at(tick):
            angle = defect.seed + _GOLDEN * tick
            x, y = x + strength(defect) * math.cos(angle), y + strength(defect) * math.sin(angle)
    return x, y


def flicker_factor(clip: ClipSpec, tick: int) -> float:
    """Return the factor of the light at a tick: 1 without flicker."""
    factor = 1.0
    for defect in clip.defects:
        if defect.kind == "flicker" and defect.at(tick):
            factor *= 1 + strength(defect) * _flash(defect, tick)
    return factor


def _flash(defect: Defect, tick: int) -> float:
    """Return the light that a flicker adds at a tick, as a share of its strength. Its seed chooses how it flickers.

    It alternates, or is random, or has dark pulses, or is a short wave. Half of the kinds only darken.
    """
    way, variant = defect.seed % 8, defect.seed // 8
    match way % 4:
        case 0:
            light = 1.0 if (tick + variant) % 2 == 0 else -1.0
        case 1:
            light = Random(f"{defect.seed} {tick}").uniform(-1.6, 1.6)
        case 2:
            light = -1.2 if (tick + variant) % 3 == 0 else 0.8
        case _:
            light = 1.4 * math.sin(2 * math.pi * tick / (2.5 + variant % 20 / 10) + variant)
    return light - 1.2 if way >= 4 else light
