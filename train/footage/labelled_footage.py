"""Draws single temporal patches of real footage with known faults: labelled patches without shapes.

The world's patches teach what a fault looks like over the world's grounds; these teach what it looks like in footage.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from train.footage.footage_frames import FootageOpener
from train.footage.footage_pairs import FootagePairs, draw_single_span
from train.world.defects import VISUAL, content_time, flicker_factor, motion_step
from train.world.draw import pick
from train.world.labelled_patches import MARKS, NOTHING, STEPS, LabelledPatch, mark
from train.world.script import NAMES
from train.world.values import FIRST, TICKS, ClipSpec, Defect, Moving, Visual
from vrt_lite.profile import CELL, Profile
from vrt_lite.protocol.messages import FrameRef

_VISUAL: Final[tuple[Visual, ...]] = (*VISUAL, "blur", "banding", "h264", "h265")
_MOVING: Final[tuple[Moving, ...]] = (
    *("stutter", "stutter", "stutter", "freeze", "flicker", "flicker"),
    *("ghosting", "ghosting", "ghosting", "warping", "jitter"),
)
"""Kinds that are hard to see in footage come more often."""
_FAULTY, _MOVED, _NEIGHBOURS = 0.6, 0.5, 0.6
_DIFFERENCE = 0.08
"""The least difference of the light of two frames that shows a flicker."""


class LabelledFootage:
    """Labelled patches of the training clips in `folder`, at the size that `profile` gives them."""

    def __init__(self, folder: Path, profile: Profile) -> None:
        self._folder, self._profile = folder, profile
        self._clips = FootagePairs(folder, "train").clips

    def draw(self, seed: int) -> LabelledPatch:
        """Draw the patch of a seed. All random numbers are NumPy's."""
        rng = np.random.default_rng((seed, 11))
        span, allowed = draw_single_span(rng, self._clips)
        near = bool(rng.random() < _NEIGHBOURS)
        ticks = range(TICKS) if near else FIRST
        place = int(rng.integers(len(ticks) - 1))
        first, second = ticks[place], ticks[place + 1]
        faults = tuple(fault for fault in _draw_faults(rng, first) if fault.kind in allowed)
        spec = replace(span.spec, defects=faults)
        shown = replace(span, spec=spec)
        with FootageOpener(self._folder, (shown, shown))(self._profile) as frames:
            earlier, later = frames.pixels([FrameRef(0, tick, called=near) for tick in (first, second)])
        words = {NAMES[fault.kind] for fault in faults if fault.kind in VISUAL or fault.kind == "ghosting"}
        moves, unknown = _mark_steps(spec, first) if near else _mark_flicker(spec, first, second)
        if "stutter" not in allowed:
            unknown = unknown | {"still"}  # a held picture is not visible where nothing moves
        count = earlier.shape[0] * earlier.shape[1] // CELL**2
        looks = np.full((count, 3), NOTHING, np.int64)
        return LabelledPatch((earlier, later), looks, np.tile(mark(words | moves, unknown), (count, 1)))


def _draw_faults(rng: np.random.Generator, first: int) -> tuple[Defect, ...]:
    """Draw no fault, or one visual or motion fault, or one of each. A freeze begins shortly before tick `first`."""
    found: list[Defect] = []
    for chance, kinds in ((_FAULTY, _VISUAL), (_MOVED, _MOVING)):
        if rng.random() < chance:
            kind: Visual | Moving = pick(rng, kinds)
            begin = max(0, first - 3) if kind == "freeze" else 0
            found.append(Defect(kind, pick(rng, (1, 2, 3)), first=begin, seed=int(rng.integers(2**31))))
    return tuple(found)


def _mark_steps(spec: ClipSpec, tick: int) -> tuple[set[str], set[str]]:
    """Return the words for the step between neighbouring ticks that hold, and those that may hold."""
    step = motion_step(spec, tick)
    held = content_time(spec, tick + 1) - content_time(spec, tick) < 0.5
    hidden = held and step != "still"  # another word describes the step
    return {step} & {*MARKS}, {"flicker", *(("still",) if hidden else ())}


def _mark_flicker(spec: ClipSpec, first: int, second: int) -> tuple[set[str], set[str]]:
    """Return the words for two of the first frames that hold, and those that may hold."""
    if not any(fault.kind == "flicker" for fault in spec.defects):
        return set(), {*STEPS}
    visible = abs(flicker_factor(spec, first) - flicker_factor(spec, second)) > _DIFFERENCE
    return ({"flicker"}, {*STEPS}) if visible else (set(), {"flicker", *STEPS})
