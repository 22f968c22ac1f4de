"""Draws temporal patches of real footage with known faults: labelled patches without shapes.

The world's patches teach what a fault looks like over the world's grounds; these teach what it looks like in footage.
The same frames come without a fault and with several, so that the tower learns what a fault changes, not which clips
have it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.footage.footage_frames import ConvertedPictures, render_span
from train.footage.footage_pairs import FootagePairs
from train.footage.footage_spans import draw_varied_span, shows
from train.world.defects import VISUAL, content_time, flicker_factor, motion_step
from train.world.draw import pick
from train.world.labelled_patches import MARKS, NOTHING, STEPS, LabelledPatch, mark
from train.world.script import NAMES
from train.world.values import FIRST, TICKS, ClipSpec, Defect, Moving, Visual
from vrt_lite.profile import CELL, Profile

_VISUAL: Final[tuple[Visual, ...]] = (*VISUAL, "h264", "h264", "h265", "banding", "banding", "colour", "noise")
_MOVING: Final[tuple[Moving, ...]] = (
    *("stutter", "stutter", "stutter", "stutter", "freeze", "flicker"),
    *("ghosting", "ghosting", "ghosting", "ghosting", "warping", "warping", "warping", "jitter", "jitter"),
)
"""Kinds that are hard to see in footage come more often."""
_FAULTY, _MOVED, _NEIGHBOURS = 0.65, 0.5, 0.65
_SHOWN = 4
"""Frames of a span that its patches show."""
_SHORTEST_HOLD = Defect("stutter", 1)
_DIFFERENCE = 0.08
"""The least difference of the light of two frames that shows a flicker."""


class LabelledFootage:
    """Labelled patches of the training clips in `folder`, at the size that `profile` gives them."""

    def __init__(self, folder: Path, profile: Profile, *, copies: int) -> None:
        self._folder, self._profile, self._copies = folder, profile, copies
        self._clips = FootagePairs(folder, "train").clips

    def draw(self, seed: int) -> list[LabelledPatch]:
        """Draw the patches of a seed: two patches of a span, and the same two in up to `copies` copies with faults.

        Copies of the same frames differ in their faults alone. All random numbers are NumPy's. Raises VideoError.
        """
        rng = np.random.default_rng((seed, 11))
        span = draw_varied_span(rng, self._clips)
        near = bool(rng.random() < _NEIGHBOURS)
        begin = int(rng.integers(TICKS - _SHOWN + 1))
        ticks = range(begin, begin + _SHOWN) if near else FIRST
        size = self._profile.frame_size(span.spec.width, span.spec.height, called=near)
        looks = np.full((size[0] * size[1] // CELL**2, 3), NOTHING, np.int64)
        moves = shows(span, _SHORTEST_HOLD, ticks)
        pictures = ConvertedPictures(self._folder, span)
        found: list[LabelledPatch] = []
        for copy in range(self._copies + 1):
            drawn = _draw_faults(rng, ticks[0]) if copy else ()
            faults = tuple(fault for fault in drawn if shows(span, fault, ticks))
            if copy and not faults:
                continue
            shown = replace(span, spec=replace(span.spec, defects=faults))
            frames = render_span(pictures, shown, [shown.spec.ticks[tick] for tick in ticks], size)
            for place, earlier in enumerate(range(0, _SHOWN, 2)):
                marks = _mark(shown.spec, ticks[earlier], ticks[earlier + 1], near=near, moves=moves)
                pair = (frames[earlier], frames[earlier + 1])
                found.append(LabelledPatch(pair, looks, np.tile(marks, (len(looks), 1)), clean=place - len(found)))
        return found


def _draw_faults(rng: np.random.Generator, first: int) -> tuple[Defect, ...]:
    """Draw no fault, or one visual or motion fault, or one of each. A freeze begins shortly before tick `first`."""
    found: list[Defect] = []
    for chance, kinds in ((_FAULTY, _VISUAL), (_MOVED, _MOVING)):
        if rng.random() < chance:
            kind: Visual | Moving = pick(rng, kinds)
            begin = max(0, first - 3) if kind == "freeze" else 0
            found.append(Defect(kind, pick(rng, (1, 2, 3)), first=begin, seed=int(rng.integers(2**31))))
    return tuple(found)


def _mark(spec: ClipSpec, first: int, second: int, *, near: bool, moves: bool) -> NDArray[np.int64]:
    """Return the marks of a clip's patch of two ticks, (MARKS,).

    With `near` the ticks are neighbours. With `moves` a held picture is visible, because something moves.
    """
    words = {NAMES[fault.kind] for fault in spec.defects if fault.kind in VISUAL or fault.kind == "ghosting"}
    steps, unknown = _mark_steps(spec, first) if near else _mark_flicker(spec, first, second)
    if not moves:
        unknown = unknown | {"still"}
    return mark(words | steps, unknown)


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
