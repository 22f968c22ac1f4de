"""What is measured of a clip that nobody wants to see, whatever it is compared with: stutter, a freeze, flicker.

A flag belongs to the clip. `find_flags` finds the flags, and every output that names the clip shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vrt_lite.measures import MEASURES, MeasureName


@dataclass(frozen=True, slots=True)
class _Bound:
    """From this value on a clip has the fault. The value is shown with the unit."""

    fault: str
    least: float
    unit: str


_BOUNDS: Final[Mapping[MeasureName, _Bound]] = {
    "repeated": _Bound("stutter", 15.0, " %"),
    "frozen": _Bound("freeze", 0.7, " s"),
    "flicker": _Bound("flicker", 3.0, " levels"),
}


@dataclass(frozen=True, slots=True)
class Flag:
    """A fault that a clip has by itself: its name, and what is measured in words, "repeated 60 %"."""

    fault: str
    words: str


def find_flags(values: Mapping[str, float | None]) -> tuple[Flag, ...]:
    """Return the flags of a clip with these measures by name; none where nothing is measured."""
    found: list[Flag] = []
    for name, bound in _BOUNDS.items():
        value = values.get(name)
        if value is not None and value >= bound.least:
            digits = MEASURES[name].digits if value < 10 else 0
            found.append(Flag(bound.fault, f"{name} {value:.{digits}f}{bound.unit}"))
    return tuple(found)


def describe_flags(flags: Sequence[Flag]) -> str:
    """Return the flags of a clip in a few words, "repeated 60 %, frozen 1.20 s"; empty without any."""
    return ", ".join(flag.words for flag in flags)
