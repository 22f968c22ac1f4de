"""Tells from tiny pictures whether two clips show one scene: also mirrored, cropped, in another light or blurred."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vrt_lite.measures.clip_measures import LOOK

_SHIFTS = (-1, 0, 1)


def compare_looks(one: bytes, two: bytes) -> float:
    """Return how alike two looks are, up to 1: the better of straight and mirrored, at the best shift by a cell."""
    first = np.frombuffer(one, np.uint8).reshape(LOOK).astype(np.float64)
    second = np.frombuffer(two, np.uint8).reshape(LOOK).astype(np.float64)
    return max(_compare(first, second), _compare(first, second[:, :, ::-1]))


def _compare(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return the mean correlation of the two pictures that correlate best, of three."""
    rows, columns = LOOK[1:]
    best = -1.0
    for down in _SHIFTS:
        for right in _SHIFTS:
            a = one[:, max(down, 0) : rows + min(down, 0), max(right, 0) : columns + min(right, 0)].reshape(LOOK[0], -1)
            b = two[:, max(-down, 0) : rows - max(down, 0), max(-right, 0) : columns - max(right, 0)]
            b = b.reshape(LOOK[0], -1)
            a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
            shares = (a * b).sum(1) / np.sqrt(((a * a).sum(1) + 40) * ((b * b).sum(1) + 40))
            best = max(best, float(np.sort(shares)[1:].mean()))
    return best
