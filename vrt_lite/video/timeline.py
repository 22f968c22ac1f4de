"""The times of a clip's packets and frames, and what every reader of a clip may say: that it cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_PIXELS: Final = 7680 * 4320
AGAIN: Final = "copy, download or export it again"


class UnusableError(Exception):
    """What is wrong with a clip, without its path. `vrt_lite.video` turns it into a VideoError."""


@dataclass(frozen=True)
class Timeline:
    """All packets of a clip. "Position" counts in the order of decoding, "index" in the order shown.

    stamps: when the frame of each packet is shown, in units of `time_base`; order: the positions of the shown frames;
    keys: the positions where decoding can start. counted: the times are not real, so that decoded frames are counted.
    """

    stamps: NDArray[np.int64]
    order: NDArray[np.int64]
    keys: NDArray[np.int64]
    time_base: Fraction
    counted: bool = False

    @cached_property
    def ticks(self) -> NDArray[np.int64]:
        """The times of the shown frames, sorted."""
        return self.stamps[self.order]

    def key_slot(self, position: int) -> int:
        """Which of `keys` to start at, so that the packet at `position` decodes to its exact frame."""
        slot = int(self.keys.searchsorted(position, side="right")) - 1
        # It is shown before the keyframe that it follows (an open group of pictures): it needs the group before too.
        return max(slot - int(self.stamps[position] < self.stamps[self.keys[slot]]), 0)

    def key_before(self, index: int) -> int:
        """Return the last frame up to this one where decoding can start."""
        key = self.stamps[self.keys[self.key_slot(int(self.order[index]))]]
        return min(int(self.ticks.searchsorted(key)), index)

    def groups(self, positions: Iterable[int]) -> list[tuple[int, int]]:
        """Return the groups of pictures that positions are in: the slot of the keyframe, and the last position."""
        if self.counted:
            return [(0, len(self.stamps) - 1)]
        return sorted({self.key_slot(position): position for position in sorted(positions)}.items())

    def seconds(self, index: int) -> float:
        """When a frame is shown, counted from the first."""
        return float((int(self.ticks[index]) - int(self.ticks[0])) * self.time_base)

    def rate(self, declared_fps: float) -> tuple[float, float]:
        """Frames per second and seconds, last frame included. The declared rate serves a single frame only."""
        span_seconds = self.seconds(-1)
        fps = (len(self.order) - 1) / span_seconds if span_seconds > 0 else declared_fps or 1.0
        return fps, span_seconds + 1 / fps

    def is_variable(self) -> bool:
        """Whether a frame is more than one tick away from an even grid, which is more than rounding."""
        steps: NDArray[np.float64] = np.asarray(self.ticks - self.ticks[0], np.float64)
        even = np.linspace(0.0, float(steps[-1]), len(steps))
        return float(np.max(np.abs(steps - even))) > 1.1
