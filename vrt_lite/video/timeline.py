"""When each frame of a clip is shown. Knows timestamps, keyframes and the order of decoding and showing;
refuses to know files, codecs and pixels. Rates are measured; a declared rate is never trusted.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Timeline:
    """Every packet of a video stream. "Position" counts in decode order, "index" in the order shown.

    stamps: time by position, in units of time_base. keys: positions where decoding can start; 0 is always
    one. order: the position of each shown frame, by index. counted: the container has no presentation
    times, so decoded frames are told apart by counting. torn: a packet is shorter than the container says.
    stopped: why reading ended before the end of the file, empty if it did not.
    """

    stamps: NDArray[np.int64]
    keys: NDArray[np.int64]
    order: NDArray[np.int64]
    time_base: Fraction
    counted: bool = False
    torn: bool = False
    stopped: str = ""

    @property
    def ticks(self) -> NDArray[np.int64]:
        """Presentation times of the shown frames, sorted, in units of time_base."""
        return self.stamps[self.order]

    def key_slot(self, position: int) -> int:
        """Which of `keys` to start at so that the packet at `position` decodes to its exact frame."""
        slot = int(self.keys.searchsorted(position, side="right")) - 1
        # Shown before the keyframe it follows: an open group of pictures, it needs the group before too.
        leading = not self.counted and self.stamps[position] < self.stamps[self.keys[slot]]
        return max(slot - int(leading), 0)

    def index_of(self, position: int) -> int:
        """Where the frame at `position` is shown; for one that never is, where it would be."""
        found: list[int] = np.flatnonzero(np.equal(self.order, position)).tolist()
        return found[0] if found else int(np.searchsorted(self.ticks, int(self.stamps[position])))

    def seconds(self, index: int) -> float:
        """When a frame is shown, counted from the first."""
        return float((int(self.stamps[self.order[index]]) - int(self.stamps[self.order[0]])) * self.time_base)

    def rate(self, declared_fps: float) -> tuple[float, float]:
        """Frames per second and seconds, last frame included. The declared rate serves a single frame only."""
        span_seconds, intervals = self.seconds(-1), len(self.order) - 1
        fps = intervals / span_seconds if span_seconds > 0 else declared_fps or 1.0
        return fps, span_seconds + 1 / fps

    def is_variable(self) -> bool:
        """Is a frame more than one tick away from an even grid, which rounding cannot explain?"""
        steps: NDArray[np.float64] = np.asarray(self.ticks, np.float64) - float(self.ticks[0])
        even = np.linspace(0.0, float(steps[-1]), len(steps))
        return float(np.max(np.abs(steps - even))) > 1.1

    def fills(self, seconds: float) -> bool:
        """Do the frames last until `seconds` (0 = unknown) without a gap? One may lack before the last."""
        if len(self.order) < 2 or not seconds or self.is_variable():
            return False
        interval_seconds = self.seconds(-1) / (len(self.order) - 1)
        return float(int(self.ticks[-1]) * self.time_base) + 1.5 * interval_seconds >= seconds


def build_timeline(
    stamps: array[int],
    keys: array[int],
    hidden: array[int],
    *,
    time_base: Fraction,
    frames_counted: bool = False,
    torn: bool = False,
    stopped: str = "",
) -> Timeline:
    """Arrange packets as they came from a demuxer. `hidden` are positions decoded but never shown.

    `frames_counted` says the container only counts frames and the codec may reorder them; if the times
    then come in decode order they are made up, and the output has to be counted instead.
    """
    times = np.array(stamps, np.int64)
    starts = np.union1d(np.zeros(1, np.int64), np.array(keys, np.int64))
    shown = np.setdiff1d(np.arange(len(times)), np.array(hidden, np.int64), assume_unique=True)
    counted = frames_counted and bool((np.diff(times) > 0).all())
    order = shown if counted else shown[np.argsort(times[shown], kind="stable")]
    return Timeline(times, starts, order, time_base, counted, torn, stopped)
