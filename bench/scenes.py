"""Draws pictures to judge: any number of clips, at the size at which a real clip is shown.

It is a frame store as in `vrt_lite.interfaces`, without files and decoders: their cost is measured elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vrt_lite.protocol.messages import FrameRef

Pixels = NDArray[np.uint8]


@functools.cache
def picture(clip: int, index: int, size: tuple[int, int]) -> Pixels:
    """Draw frame `index` of a clip, RGB (height, width, 3) of `size` = (width, height). All frames differ."""
    width, height = size
    y, x = np.mgrid[:height, :width].astype(np.float32)
    hue = np.array([0.3, 1.1, 1.9], np.float32) + 0.7 * clip
    waves = np.sin(x / (23 + 3 * clip) + 0.05 * index)[..., None] + np.cos(y / 31)[..., None] + hue
    centre_x, centre_y = (0.1 + 0.016 * index) * width, (0.5 + 0.2 * np.sin(0.2 * index + clip)) * height
    inside = (x - centre_x) ** 2 + (y - centre_y) ** 2 < (0.12 * height) ** 2
    shown = 128 + 60 * np.sin(waves)
    shown[inside] = (230, 40 + 20 * clip, 30)
    return np.ascontiguousarray(shown.astype(np.uint8))


@dataclass(frozen=True, slots=True)
class Scenes:
    """The frame store of a pair of drawn clips, in prompt order."""

    clips: tuple[int, int]
    size: tuple[int, int]

    def pixels(self, frames: Sequence[FrameRef]) -> list[Pixels]:
        """Return an RGB array for each frame, in the order of `frames`."""
        return [picture(self.clips[frame.clip], frame.index, self.size) for frame in frames]
