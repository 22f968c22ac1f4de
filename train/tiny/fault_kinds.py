"""The kinds of fault, each with a continuous strength from 0 (not quite visible) to 1 (gross)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from train.tiny import spoiled_motion, spoiled_pictures
from train.tiny.spoiled_pictures import Chance, Frames

Paint = Callable[[Frames, float, Chance], Frames]
Reorder = Callable[[int, float, float, Chance], list[int]]
Key = Literal["VQ", "MQ"]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: how people call it, the dimensions that it spoils, and how it is made.

    `codec` names an encoder. What `moves` shows only where something moves, what `colours` only in colour.
    What is `small` changes few pixels. What is `hard` to tell from a scene's own look is made twice as often. Kinds
    that were `added` later, in a first or a second turn, are drawn apart from the others.
    """

    name: str
    keys: tuple[Key, ...]
    paint: Paint | None = None
    reorder: Reorder | None = None
    codec: str = ""
    moves: bool = False
    colours: bool = False
    small: bool = False
    hard: bool = False
    added: int = 0


_BOTH: Final = ("VQ", "MQ")
FAULTS: Final[dict[str, FaultKind]] = {
    "blur": FaultKind("blur", ("VQ",), spoiled_pictures.blur),
    "defocus": FaultKind("blur", ("VQ",), spoiled_pictures.defocus),
    "motion blur": FaultKind("blur", ("VQ",), spoiled_pictures.motion_blur),
    "noise": FaultKind("noise", ("VQ",), spoiled_pictures.noise),
    "grain": FaultKind("noise", ("VQ",), spoiled_pictures.grain),
    "jpeg": FaultKind("blocks", ("VQ",), spoiled_pictures.jpeg),
    "blocks": FaultKind("blocks", ("VQ",), spoiled_pictures.blocks),
    "h264": FaultKind("blocks", ("VQ",), codec="h264"),
    "h265": FaultKind("blocks", ("VQ",), codec="h265"),
    "av1": FaultKind("blocks", ("VQ",), codec="av1", hard=True),
    "mpeg2": FaultKind("blocks", ("VQ",), codec="mpeg2"),
    "lost blocks": FaultKind("lost blocks", ("VQ",), spoiled_pictures.lost_blocks),
    "banding": FaultKind("banding", ("VQ",), spoiled_pictures.banding, hard=True),
    "tint": FaultKind("colour", ("VQ",), spoiled_pictures.tint, hard=True),
    "desaturation": FaultKind("colour", ("VQ",), spoiled_pictures.desaturation, colours=True, hard=True),
    "oversaturation": FaultKind("colour", ("VQ",), spoiled_pictures.oversaturation, colours=True, added=1),
    "fringes": FaultKind("colour", ("VQ",), spoiled_pictures.fringes, colours=True, added=1),
    "overexposure": FaultKind("exposure", ("VQ",), spoiled_pictures.overexposure),
    "underexposure": FaultKind("exposure", ("VQ",), spoiled_pictures.underexposure, hard=True),
    "haze": FaultKind("haze", ("VQ",), spoiled_pictures.haze),
    "low resolution": FaultKind("low resolution", ("VQ",), spoiled_pictures.low_resolution, hard=True),
    "oversharpening": FaultKind("oversharpening", ("VQ",), spoiled_pictures.oversharpening, hard=True),
    "interlacing": FaultKind("interlacing", _BOTH, spoiled_pictures.interlacing, moves=True),
    "watermark": FaultKind("overlay", ("VQ",), spoiled_pictures.watermark, hard=True),
    "logo": FaultKind("overlay", ("VQ",), spoiled_pictures.logo, hard=True),
    "bars": FaultKind("bars", ("VQ",), spoiled_pictures.bars),
    "flicker": FaultKind("flicker", ("MQ",), spoiled_motion.flicker),
    "local flicker": FaultKind("flicker", ("MQ",), spoiled_motion.local_flicker),
    "boiling": FaultKind("boiling", ("MQ",), spoiled_motion.boiling),
    "pulses": FaultKind("boiling", _BOTH, spoiled_motion.pulses),
    "stutter": FaultKind("stutter", ("MQ",), reorder=spoiled_motion.stutter, moves=True),
    "repeats": FaultKind("stutter", ("MQ",), reorder=spoiled_motion.repeats, moves=True, hard=True),
    "missing frames": FaultKind("jumps", ("MQ",), reorder=spoiled_motion.missing, moves=True),
    "freeze": FaultKind("freeze", ("MQ",), reorder=spoiled_motion.freeze, moves=True, hard=True),
    "speed": FaultKind("jumps", ("MQ",), reorder=spoiled_motion.speed, moves=True, hard=True),
    "reversal": FaultKind("reversal", ("MQ",), reorder=spoiled_motion.reversal, moves=True),
    "cuts": FaultKind("jumps", ("MQ",), spoiled_motion.cuts),
    "shake": FaultKind("shake", ("MQ",), spoiled_motion.shake),
    "ghosts": FaultKind("ghosts", ("MQ",), spoiled_motion.ghosts, moves=True, hard=True),
    "trails": FaultKind("ghosts", ("MQ",), spoiled_motion.trails, moves=True),
    "wobble": FaultKind("bending", ("MQ",), spoiled_motion.wobble, hard=True),
    "local warp": FaultKind("bending", ("MQ",), spoiled_motion.local_warp, hard=True),
    "melting": FaultKind("bending", ("MQ",), spoiled_motion.melting, hard=True),
    "morphing": FaultKind("bending", ("MQ",), spoiled_motion.morphing, hard=True),
    "vanishing": FaultKind("objects", ("MQ",), spoiled_motion.vanishing, hard=True),
    "popping": FaultKind("objects", ("MQ",), spoiled_motion.popping),
    "colour bleed": FaultKind("colour", ("VQ",), spoiled_pictures.colour_bleed, colours=True, added=2),
    "doubled": FaultKind("ghosts", ("VQ",), spoiled_pictures.doubled, added=2),
    "dead pixels": FaultKind("noise", ("VQ",), spoiled_pictures.dead_pixels, small=True, added=2),
    "pattern": FaultKind("noise", ("VQ",), spoiled_pictures.pattern, added=2),
    "deinterlacing": FaultKind("interlacing", _BOTH, spoiled_pictures.deinterlacing, added=2),
    "rolling bands": FaultKind("flicker", ("MQ",), spoiled_motion.rolling_bands, added=2),
    "colour drift": FaultKind("flicker", _BOTH, spoiled_motion.colour_drift, added=2),
    "tearing": FaultKind("jumps", ("MQ",), spoiled_motion.tearing, moves=True, added=2),
}
WITHHELD: Final = ("defocus", "mpeg2", "trails", "popping")
"""Kinds that training never has, to see what unknown faults get."""
