"""How the whole picture moves from frame to frame, in small pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vrt_lite.measures.arrays import Floats

_WEAKEST_PEAK = 0.03
"""Of a phase correlation; a weaker one is no common motion of the picture."""
_SOFT = 25.0
"""Squared levels: what differs by more belongs to something that moves by itself, and counts less."""


def find_path(pictures: Floats, chosen: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return by how many pixels each chosen picture moved since the one before: (chosen - 1, 2), down and right.

    Whole pixels come from phase correlation (Kuglin and Hines, 1975), the rest from the gradients of both pictures.
    """
    rows, columns = pictures.shape[1:]
    window = np.outer(np.hanning(rows), np.hanning(columns)).astype(np.float32)
    shape = pictures[0, ::2, ::2].shape

    def centre(number: int) -> tuple[Floats, NDArray[np.complexfloating]]:
        centred = pictures[number] - pictures[number].mean()
        return centred, np.fft.rfft2((centred * window)[::2, ::2])

    path = np.zeros((len(chosen) - 1, 2))
    after, spectrum = centre(int(chosen[0]))
    for number, at in enumerate(chosen[1:].tolist()):
        (before, last), (after, spectrum) = (after, spectrum), centre(at)
        cross = spectrum * last.conj()
        size = np.abs(cross)
        surface = np.fft.irfft2(cross / (size + 1e-3 * size.mean() + 1e-9), s=shape)
        peak = np.unravel_index(int(surface.argmax()), surface.shape)
        if surface[peak] >= _WEAKEST_PEAK:
            whole = [2 * (at - length if at > length / 2 else at) for at, length in zip(peak, shape, strict=True)]
            path[number] = _refine(before, after, int(whole[0]), int(whole[1]))
    return path


def _refine(before: Floats, after: Floats, down: int, right: int) -> tuple[float, float]:
    """Return the motion to a fraction of a pixel, from that in whole pixels."""
    part_down = part_right = 0.0
    for _ in range(3):
        one, two = _overlap(before, after, down, right)
        if min(one.shape) < 8:
            return float(down), float(right)
        mean = (one + two) / 2
        y, x = (mean[2:, 1:-1] - mean[:-2, 1:-1]) / 2, (mean[1:-1, 2:] - mean[1:-1, :-2]) / 2
        left = (one - two)[1:-1, 1:-1]
        weight = 1 / (1 + left * left / _SOFT)
        wy, wx = weight * y, weight * x
        yy, xx, xy = (float(np.vdot(a, b)) for a, b in ((wy, y), (wx, x), (wy, x)))
        yy, xx = yy + 1e-3 * left.size, xx + 1e-3 * left.size
        ty, tx = float(np.vdot(wy, left)), float(np.vdot(wx, left))
        scale = 1 / (yy * xx - xy * xy)
        part_down, part_right = (xx * ty - xy * tx) * scale, (yy * tx - xy * ty) * scale
        if max(abs(part_down), abs(part_right)) <= 0.75:
            break
        down, right = down + round(max(min(part_down, 2), -2)), right + round(max(min(part_right, 2), -2))
    return down + max(min(part_down, 1.0), -1.0), right + max(min(part_right, 1.0), -1.0)


def _overlap(before: Floats, after: Floats, down: int, right: int) -> tuple[Floats, Floats]:
    """Return the part that both pictures show if the second is moved by whole pixels."""
    rows, columns = before.shape
    one = before[max(-down, 0) : rows - max(down, 0), max(-right, 0) : columns - max(right, 0)]
    two = after[max(down, 0) : rows + min(down, 0), max(right, 0) : columns + min(right, 0)]
    return one, two
