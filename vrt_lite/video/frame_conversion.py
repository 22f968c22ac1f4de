"""Converts stored pixels to what a viewer sees: orientation, pixel shape, one resize, and tone mapping after it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import ColorPrimaries, ColorTrc
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.video.timeline import UnusableError

if TYPE_CHECKING:
    from vrt_lite.video.tonemap import Transfer

MAX_PIXEL_ASPECT = 16  # beyond 16:1 the header is broken
_HDR: dict[int, Transfer] = {ColorTrc.SMPTE2084.value: "pq", ColorTrc.ARIB_STD_B67.value: "hlg"}


@dataclass(frozen=True)
class Orientation:
    """Transpose, then mirror left-right, then flip top-bottom: all eight ways to lay a rectangle."""

    transpose: bool = False
    mirror: bool = False
    flip: bool = False

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

    def convert(self, stored: NDArray[Any], size: tuple[int, int]) -> NDArray[np.uint8]:
        """Stored RGB (rows, columns, 3), 8 bits, or 16 for a wide gamut, to (height, width, 3) of `size`.

        One bicubic, antialiased resize does pixel shape and size. Turning comes first, so that a picture stored in any
        orientation gives the same pixels. Tone mapping comes last, at the small size.
        """
        if not self.wide_gamut:
            return self._resize(stored, size)
        from vrt_lite.video.tonemap import to_sdr  # noqa: PLC0415 - few clips need it

        channels = [self._resize(stored[..., channel].astype(np.float32), size) for channel in range(3)]
        return to_sdr(np.stack(channels, axis=-1) / np.float32(65535), self.transfer)

    def _resize(self, stored: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
        return np.array(self.orientation.apply(Image.fromarray(stored)).resize(size, Image.Resampling.BICUBIC))


def find_conversion(frame: VideoFrame, pixel_aspect: Fraction) -> Conversion:
    """Orientation and colour from the first frame. Raises UnusableError for colours that cannot be converted."""
    orientation = Orientation()
    side_data = cast(Any, frame.side_data)  # by name: PyAV 18 iterates over the data, PyAV 19 over its types
    if matrix := side_data.get("DISPLAYMATRIX"):
        # It takes stored (x, y) to (a x + c y, b x + d y). An angle counts as the nearest right one.
        a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
        turned = abs(b) + abs(c) > abs(a) + abs(d)
        orientation = Orientation(True, c < 0, b < 0) if turned else Orientation(False, a < 0, d < 0)
    transfer = _HDR.get(frame.color_trc, "sdr")
    wide_gamut = frame.color_primaries == ColorPrimaries.BT2020.value
    if transfer == "sdr" and side_data.get("DOVI_METADATA") is not None:
        raise UnusableError("is Dolby Vision without an HDR10 or HLG base; convert it to SDR first")
    if transfer != "sdr" and not wide_gamut and frame.color_primaries != ColorPrimaries.UNSPECIFIED.value:
        raise UnusableError(f"is HDR with primaries other than BT.2020 ({frame.color_primaries}); convert it first")
    if not 1 / MAX_PIXEL_ASPECT <= pixel_aspect <= MAX_PIXEL_ASPECT:
        pixel_aspect = Fraction(1)
    width, height = max(round(frame.width * pixel_aspect), 1), frame.height
    if orientation.transpose:
        width, height = height, width
    return Conversion(width, height, orientation, transfer, wide_gamut or transfer != "sdr")
