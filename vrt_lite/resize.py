"""The size at which a model sees a frame: the reference's rule, in whole numbers. Resizing itself is `video`'s."""

from __future__ import annotations

import math

from vrt_lite.errors import VideoError

CELL = 28
"""Pixels a side of one visual token: a 2x2 block of 14-pixel patches."""
PIXELS_PER_TOKEN = CELL * CELL
_MAX_RATIO = 200


def smart_resize(width: int, height: int, *, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) for the model: multiples of 28 within the pixel range, aspect kept as far as they allow.

    The reference's rule to the letter (transformers, `smart_resize` of Qwen2-VL's image processor); VideoError for
    an aspect ratio beyond 200, which it refuses too.
    """
    if max(width, height) > _MAX_RATIO * min(width, height):
        raise VideoError(f"A picture of {width}x{height} is too narrow: at most {_MAX_RATIO}:1 is allowed.")
    w = max(CELL, round(width / CELL) * CELL)
    h = max(CELL, round(height / CELL) * CELL)
    if w * h > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        w = max(CELL, math.floor(width / shrink / CELL) * CELL)
        h = max(CELL, math.floor(height / shrink / CELL) * CELL)
    elif w * h < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        w = math.ceil(width * grow / CELL) * CELL
        h = math.ceil(height * grow / CELL) * CELL
    return w, h
