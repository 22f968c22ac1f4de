"""Converts stored pixels to what a viewer sees: orientation, pixel shape, one resize, and tone mapping after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    from vrt_lite.video.tonemap import Transfer


@dataclass(frozen=True)
class Orientation:
    """Transpose, then mirror left-right, then flip top-bottom: all eight ways to lay a rectangle."""

    transpose: bool = False
    mirror: bool = False
    flip: bool = False

    @staticmethod
    def of_matrix(a: int, b: int, c: int, d: int) -> Orientation:
        """From a display matrix, which takes stored (x, y) to displayed (a x + c y, b x + d y).

        An angle between right angles counts as the nearest right one.
        """
        if abs(b) + abs(c) > abs(a) + abs(d):
            return Orientation(True, c < 0, b < 0)
        return Orientation(False, a < 0, d < 0)

    def apply(self, image: Image.Image) -> Image.Image:
        """The image as displayed."""
        if self.transpose:
            image = image.transpose(Image.Transpose.TRANSPOSE)
        if self.mirror:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if self.flip else image


@dataclass(frozen=True)
class Conversion:
    """The displayed size in square pixels, and how to convert stored pixels. wide_gamut: BT.2020 primaries."""

    width: int
    height: int
    orientation: Orientation
    transfer: Transfer
    wide_gamut: bool

    def convert(self, stored: NDArray[np.uint8] | NDArray[np.uint16], size: tuple[int, int]) -> NDArray[np.uint8]:
        """Stored RGB (rows, columns, 3), 8 bits, or 16 for a wide gamut, to (height, width, 3) of `size`.

        One bicubic, antialiased resize does pixel shape and size. Turning comes first, so that a picture stored in any
        orientation gives the same pixels. Tone mapping comes last, at the small size.
        """
        if not self.wide_gamut:
            image = self.orientation.apply(Image.fromarray(stored))
            return np.array(image.resize(size, Image.Resampling.BICUBIC))
        from vrt_lite.video.tonemap import to_sdr  # noqa: PLC0415 - few clips need it

        signal = np.empty((size[1], size[0], 3), np.float32)
        for channel in range(3):  # Pillow resizes floats one channel at a time
            image = self.orientation.apply(Image.fromarray(stored[..., channel].astype(np.float32)))
            signal[..., channel] = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
        return to_sdr(signal / np.float32(65535), self.transfer)
