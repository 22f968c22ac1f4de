"""Measures between pictures: flicker, frozen and repeated frames, and shake."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.measures import MeasureName
from vrt_lite.measures.picture import Luma

LONGEST_SIDE = 192
"""Pixels of the small pictures that motion is measured in."""
_TILE = 12
_STILL_LEVELS = 0.75
_STILL_SHARE = 0.1
"""A tile that changes less than this many levels, or by less than this share of the usual motion, does not change."""
_FEWEST = 8
_LONGEST_GAP = 0.3
"""Seconds. Between frames that are farther apart, flicker and shake cannot be told from motion."""
_WEAKEST_PEAK = 0.03
"""Of a phase correlation; a weaker one is no common motion of the picture."""


def make_small(luma: Luma) -> Luma:
    """Return a picture scaled so that its longer side has 192 pixels."""
    rows, columns = luma.shape
    scale = LONGEST_SIDE / max(rows, columns)
    size = (max(round(columns * scale), 1), max(round(rows * scale), 1))
    return np.asarray(Image.fromarray(luma).resize(size, Image.Resampling.BOX))


def measure_motion(pictures: Sequence[Luma], seconds: Sequence[float]) -> dict[MeasureName, float]:
    """Measure small pictures in the order of time. Returns what can be measured: nothing of fewer than eight."""
    if len(pictures) < _FEWEST:
        return {}
    still = find_still(pictures)
    found: dict[MeasureName, float] = {
        "frozen": _find_longest(still, seconds),
        "repeated": 100 * sum(still) / len(still),
    }
    gap = (seconds[-1] - seconds[0]) / (len(seconds) - 1)
    if gap <= _LONGEST_GAP:
        moving = [0, *(number for number, unchanged in enumerate(still, start=1) if not unchanged)]
        found["flicker"] = measure_flicker(pictures)
        found["shake"] = measure_shake([pictures[i] for i in moving], [seconds[i] / gap for i in moving])
    return found


def find_still(pictures: Sequence[Luma]) -> list[bool]:
    """Return, for each picture but the first, whether it repeats the one before.

    Wolf, "A no reference and reduced reference metric for detecting dropped video frames", NTIA TM-09-456 (2008): the
    motion between two frames is next to none, by itself or beside the clip's usual motion.
    """
    motion: list[float] = []
    for before, after in pairwise(pictures):
        motion.append(float(_average_tiles(np.abs(after.astype(np.int16) - before)).max()))
    least = max(_STILL_LEVELS, _STILL_SHARE * float(np.quantile(motion, 0.75)))
    return [value < least for value in motion]


def measure_flicker(pictures: Sequence[Luma]) -> float:
    """Return how far a picture's luma lies from the mean of its neighbours', in levels, as a mean over the clip.

    Van Roosmalen, "Restoration of archived film and video", TU Delft 1999: flicker is an unnatural change of the
    global intensity in time. The median over tiles is taken, so that motion is none; a fade is even, so it is none.
    """
    light = np.array([_average_tiles(picture) for picture in pictures])
    change = light[1:-1] - (light[:-2] + light[2:]) / 2
    return float(np.abs(np.median(change, axis=(1, 2))).mean())


def measure_shake(pictures: Sequence[Luma], times: Sequence[float]) -> float:
    """Return how unsteadily the picture moves: the mean change of its shift, in % of the longer side.

    The shift is found by phase correlation (Kuglin and Hines, "The phase correlation image alignment method", 1975),
    its fraction by a parabola. `times` are in units of the usual gap. A steady pan is no shake.
    """
    if len(pictures) < 3:
        return 0.0
    rows, columns = pictures[0].shape
    window = np.outer(np.hanning(rows), np.hanning(columns)).astype(np.float32)
    spectra = [np.fft.rfft2((picture - picture.mean(dtype=np.float32)) * window) for picture in pictures]
    speeds = [
        _find_shift(before, after, (rows, columns)) / (times[i + 1] - times[i])
        for i, (before, after) in enumerate(pairwise(spectra))
    ]
    changes = np.hypot(*np.diff(np.array(speeds), axis=0).T)
    return float(100 * changes.mean() / max(rows, columns))


def _find_shift(
    before: NDArray[np.complexfloating], after: NDArray[np.complexfloating], size: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the (rows, columns) that a picture moved by; zeros if it has no common motion."""
    cross = after * before.conj()
    surface = np.fft.irfft2(cross / (np.abs(cross) + 1e-3 * np.abs(cross).mean() + 1e-9), s=size)
    peak = np.unravel_index(int(surface.argmax()), surface.shape)
    if surface[peak] < _WEAKEST_PEAK:
        return np.zeros(2)
    shift: list[float] = []
    for axis, at in enumerate(peak):
        length = size[axis]
        low, here, high = (
            float(surface[tuple((at + d) % length if a == axis else p for a, p in enumerate(peak))]) for d in (-1, 0, 1)
        )
        bend = low - 2 * here + high
        whole = int(at) - length if at > length / 2 else int(at)
        shift.append(whole + (0.5 * (low - high) / bend if bend < 0 and not math.isclose(bend, 0) else 0.0))
    return np.array(shift)


def _find_longest(still: Sequence[bool], seconds: Sequence[float]) -> float:
    """Return the longest stretch without change, in seconds."""
    longest, began = 0.0, 0
    for number, unchanged in enumerate(still, start=1):
        if not unchanged:
            began = number
        longest = max(longest, seconds[number] - seconds[began])
    return longest


def _average_tiles(values: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the mean of each tile; a part of a tile at the end counts less."""
    rows, columns = (range(0, size, _TILE) for size in values.shape)
    return np.add.reduceat(np.add.reduceat(values, rows, axis=0, dtype=np.int32), columns, axis=1) / _TILE**2
