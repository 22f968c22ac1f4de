"""A video's clock as a server computes it: seconds of a temporal patch of two frames, from a frame rate.

Servers multiply in single precision and drop the fraction, so that a rate must never give less than the profile's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from fractions import Fraction

from vrt_lite.profile import Clock

_HARDLY_ANY_SECONDS = 1e-6
# A hair more than a whole number of steps stays that number.
_HAIR = 1 + 1e-6
_SHORTEST_FRAME_SECONDS = Fraction(1, 1000)
_LONG_FRAME_SECONDS = 1000


def seconds_of(clock: Clock, seconds_per_patch: float) -> float:
    """The seconds between patches to tell a server that takes a number, so that its steps are the profile's."""
    return max(_ruled(clock, seconds_per_patch) * _HAIR, _HARDLY_ANY_SECONDS)


def frame_seconds_of(clock: Clock, seconds_per_patch: float) -> Fraction:
    """How long a file shows each frame, so that the steps of a server that reads its frame rate are the profile's.

    Whole microseconds (milliseconds, if a frame lasts a quarter of an hour): the fewest that do, so that two frames
    of 2.5 s are 0.4 a second to the last bit.
    """
    wanted = _ruled(clock, seconds_per_patch)
    a_second = 1_000_000 if wanted / 2 < _LONG_FRAME_SECONDS else 1_000
    ticks = max(math.ceil(Fraction(wanted) * a_second / 2), math.ceil(_SHORTEST_FRAME_SECONDS * a_second))
    while _seconds_read(a_second / ticks) < wanted:
        ticks += 1
    return Fraction(ticks, a_second)


def differ(clocks: Sequence[float]) -> bool:
    """Whether the videos of a request are on different clocks."""
    return len(set(clocks)) > 1


def _ruled(clock: Clock, seconds_per_patch: float) -> float:
    if clock.rule == "fixed":
        return clock.seconds_per_patch
    return int(seconds_per_patch) if clock.rule == "truncate" else seconds_per_patch


def _seconds_read(frames_a_second: float) -> float:
    """The seconds of a patch that a server makes of a frame rate, in whichever precision gives less."""
    seconds = 2 / frames_a_second
    return min(seconds, ctypes.c_float(seconds).value)
