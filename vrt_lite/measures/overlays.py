"""Finds thin strokes that stay where they are while the picture behind them moves: logos, watermarks, captions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.measures.arrays import Luma, quantile

OVERLAY_FRAMES: Final = 16
_PIXELS: Final = 60_000
_WIDEST: Final = 7
"""Pixels; wider strokes are objects."""


def shrink(luma: Luma) -> Luma:
    """Return a picture averaged to about 60 000 pixels: strokes are still there."""
    scale = min(1.0, math.sqrt(_PIXELS / luma.size))
    size = max(round(luma.shape[1] * scale), _WIDEST + 1), max(round(luma.shape[0] * scale), _WIDEST + 1)
    return np.asarray(Image.fromarray(luma).resize(size, Image.Resampling.BOX, reducing_gap=2.0))


def measure_overlays(pictures: Sequence[Luma], scale: float) -> dict[str, float]:
    """Return how bright, and how dark, the strongest strokes are that every picture has, in levels."""
    stack = np.stack(pictures)
    light, dark = stack.min(0), stack.max(0)
    bright = light - _open(light, np.minimum, np.maximum)
    deep = _open(dark, np.maximum, np.minimum) - dark
    return {
        "light_strokes": scale * quantile(bright[::2, ::2], 0.985),
        "dark_strokes": scale * quantile(deep[::2, ::2], 0.985),
    }


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
