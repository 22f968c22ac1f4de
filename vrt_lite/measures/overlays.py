"""Finds what stays where it is while the picture moves: strokes of logos and captions, dots, a second picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.measures.arrays import Luma, quantile

OVERLAY_FRAMES: Final = 16
_PIXELS: Final = 60_000
_WIDEST: Final = 7
"""Pixels; wider strokes are objects."""
_DOT, _DOT_LEVELS = 3, 12
"""A dot is no wider than so many pixels, and stands out by more levels than this."""
_SPECTRA = 4
_NEAREST = 4
"""Pixels; what is nearer is the picture's own detail."""


def shrink(luma: Luma) -> Luma:
    """Return a picture averaged to about 60 000 pixels: strokes are still there."""
    scale = min(1.0, math.sqrt(_PIXELS / luma.size))
    size = max(round(luma.shape[1] * scale), _WIDEST + 1), max(round(luma.shape[0] * scale), _WIDEST + 1)
    return np.asarray(Image.fromarray(luma).resize(size, Image.Resampling.BOX, reducing_gap=2.0))


def measure_overlays(pictures: Sequence[Luma], scale: float) -> dict[str, float]:
    """Measure what every picture has: the strongest strokes, in levels, dots, and an echo of the picture."""
    stack = np.stack(pictures)
    light, dark = stack.min(0), stack.max(0)
    bright = light - _open(light, np.minimum, np.maximum)
    deep = _open(dark, np.maximum, np.minimum) - dark
    return {
        **_measure_dots(stack[::2].astype(np.int16)),
        "doubled": _measure_doubled(stack[:: max(len(stack) // _SPECTRA, 1)].astype(np.float32)),
        "light_strokes": scale * quantile(bright[::2, ::2], 0.985),
        "dark_strokes": scale * quantile(deep[::2, ::2], 0.985),
    }


def _measure_dots(pictures: NDArray[np.int16]) -> dict[str, float]:
    """Return the share of the pixels that stand out, in every picture, from all that lies around them."""
    rows, columns = pictures.shape[1:]
    padded = np.pad(pictures, ((0, 0), (_DOT, _DOT), (_DOT, _DOT)), mode="edge")
    places = set(product((0, _DOT, 2 * _DOT), repeat=2)) - {(_DOT, _DOT)}
    bright, deep = np.full(pictures.shape, 255, np.int16), np.full(pictures.shape, 255, np.int16)
    for down, right in places:
        beside: NDArray[np.int16] = pictures - padded[:, down : down + rows, right : right + columns]
        np.minimum(bright, beside, out=bright)
        np.minimum(deep, -beside, out=deep)
    return {"dots": float((np.maximum(bright.min(0), deep.min(0)) > _DOT_LEVELS).mean())}


def _measure_doubled(pictures: NDArray[np.float32]) -> float:
    """Return the log of the highest echo of the picture in itself, in deviations of the rest.

    The power cepstrum (Bogert, Healy and Tukey, "The quefrency alanysis of time series for echoes", 1963): a copy that
    shows through, moved, is a peak where it lies. Spectra are averaged over some pictures.
    """
    rows, columns = (int(length) for length in pictures.shape[1:])
    weights = np.hanning(rows)[:, None] * np.hanning(columns)
    power = np.abs(np.fft.rfft2((pictures - pictures.mean((1, 2), keepdims=True)) * weights)) ** 2
    spectrum = np.log(power + 1e-4 * power.mean((1, 2), keepdims=True) + 1e-3).mean(0)
    echoes = np.fft.irfft2(spectrum - spectrum.mean(), s=(rows, columns))
    usual = float(np.median(np.abs(echoes))) + 1e-6
    down: NDArray[np.float64] = np.abs(np.fft.fftfreq(rows, 1 / rows))[:, None]
    right: NDArray[np.float64] = np.abs(np.fft.fftfreq(columns, 1 / columns))
    where = (np.hypot(down, right) >= _NEAREST) & (down <= rows // 8) & (right <= columns // 8)
    return math.log(max(float(echoes[where].max(initial=0)) / usual, 1.0))


def _open(picture: Luma, first: Callable[..., NDArray[np.uint8]], then: Callable[..., NDArray[np.uint8]]) -> Luma:
    """Remove strokes (a morphological opening by a square; a closing, with the two extremes exchanged)."""
    for extreme in (first, then):
        for axis in (0, 1):
            picture = _spread_extreme(picture, extreme, axis)
    return picture


def _spread_extreme(picture: Luma, extreme: Callable[..., NDArray[np.uint8]], axis: int) -> Luma:
    margin = _WIDEST // 2
    lines = np.pad(picture, [(margin, margin) if side == axis else (0, 0) for side in (0, 1)], mode="edge")
    length = picture.shape[axis]
    found = lines.take(range(length), axis)
    for offset in range(1, _WIDEST):
        found = extreme(found, lines.take(range(offset, offset + length), axis))
    return found
