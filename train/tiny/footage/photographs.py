"""Films photographs with a camera that pans and zooms by hand: photographs show far more scenes than the few clips."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SUFFIXES = frozenset({".jpg", ".jpeg", ".webp", ".png"})
FRAMES, FPS = 120, 30.0
"""Each photograph is a clip of four seconds."""
SIZE = (1280, 720)
_SWAY_SECONDS = (1.3, 0.7)
_LARGEST_SIDE = 2560


def film(path: Path, numbers: Sequence[int], size: tuple[int, int]) -> list[NDArray[np.uint8]]:
    """Return frames of a photograph's clip by number, (height, width, 3). The camera's path follows from the file name.

    Raises OSError for a file that is no picture.
    """
    with Image.open(path) as opened:
        opened.draft("RGB", (_LARGEST_SIDE, _LARGEST_SIDE))
        picture = opened.convert("RGB")
    rng = np.random.default_rng(zlib.crc32(path.name.encode()))
    ratio = SIZE[0] / SIZE[1]
    whole = np.array([min(picture.width, picture.height * ratio), min(picture.height, picture.width / ratio)])
    shares, centres = rng.uniform(0.5, 0.9, 2), rng.uniform(-1, 1, (2, 2))
    phases, sway = rng.uniform(0, math.tau, (2, 2)), rng.uniform(0.002, 0.006)
    frames: list[NDArray[np.uint8]] = []
    for number in numbers:
        seconds, share = number / FPS, number / (FRAMES - 1)
        window = whole * (shares[0] + (shares[1] - shares[0]) * share)
        by_hand = sum(np.sin(math.tau * seconds / period + phases[i]) for i, period in enumerate(_SWAY_SECONDS))
        room = (np.array(picture.size) - window) / 2
        middle = np.array(picture.size) / 2 + room * (centres[0] + (centres[1] - centres[0]) * share)
        corner = np.clip(middle - window / 2 + sway * window[0] * by_hand, 0, picture.size - window)
        left, top, right, bottom = (float(edge) for edge in (*corner, *(corner + window)))
        frames.append(
            np.asarray(picture.resize(size, Image.Resampling.LANCZOS, box=(left, top, right, bottom), reducing_gap=3.0))
        )
    return frames
