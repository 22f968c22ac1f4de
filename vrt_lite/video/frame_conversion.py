"""Converts decoded frames: to RGB as a viewer sees it, and to planes as they are stored, for what measures them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, cast

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import ColorPrimaries, ColorRange, ColorTrc, Interpolation, VideoReformatter
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.video.frame_source import Pixels, Size, Transfer, UnusableError
from vrt_lite.video.tonemap import to_sdr

# swscale's default for 4:2:0 is a table-driven path that is off by up to two levels; this is exact.
EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
_HDR: dict[int, Transfer] = {ColorTrc.SMPTE2084.value: "pq", ColorTrc.ARIB_STD_B67.value: "hlg"}


@dataclass(frozen=True, slots=True)
class Planes:
    """One picture of 8 bits: luma, and at half its size how much blue and red there is, 128 for none.

    It is as stored: not turned, not scaled. Luma goes from 16 to 235, or from 0 to 255 if `full_range`. All arrays are
    (rows, columns), and share the memory of the decoded frame.
    """

    luma: Pixels
    blue: Pixels
    red: Pixels
    full_range: bool


@dataclass(frozen=True)
class Conversion:
    """The displayed size in square pixels, and how to convert frames to it.

    A converter is for one thread. It is kept, because making its tables for each frame takes a fifth longer.

    stored: the size of the first frame as it is stored. turns: what lays a stored picture as it is displayed, in this
    order. wide_gamut: BT.2020 primaries.
    """

    stored: Size
    width: int
    height: int
    turns: tuple[Image.Transpose, ...]
    transfer: Transfer
    wide_gamut: bool

    def turn(self, image: Image.Image) -> Image.Image:
        """Return a stored picture as it is displayed."""
        for turn in self.turns:
            image = image.transpose(turn)
        return image

    def convert(self, frame: VideoFrame, size: Size, converter: VideoReformatter) -> Pixels:
        """Return a frame as read-only RGB (height, width, 3) of `size`. Raises FFmpegError.

        Matrix and range are as tagged. Without tags they are BT.601 and limited range, whatever the picture's size.
        OpenCV and imageio write RGB frames in this way, without tags, and the reference reader decodes them so.

        One resize does pixel shape and size. Turning comes first, so that a picture stored in any orientation gives the
        same pixels. Tone mapping comes last, at the small size.
        """
        layout = "rgb48le" if self.wide_gamut else "rgb24"
        stored = converter.reformat(frame, format=layout, interpolation=EXACT).to_ndarray()
        if self.wide_gamut:
            channels = (stored[..., channel].astype(np.float32) for channel in range(3))
            resized = [resize(self.turn(Image.fromarray(channel)), size) for channel in channels]
            pixels = to_sdr(np.stack(resized, axis=-1) / np.float32(65535), self.transfer)
        else:
            pixels = resize(self.turn(Image.fromarray(stored)), size)
        pixels.setflags(write=False)
        return pixels

    def read_planes(self, frame: VideoFrame, converter: VideoReformatter) -> Planes:
        """Return the planes of a frame, scaled to the stored size of the clip's first. Raises FFmpegError.

        HDR goes through the tone curve as grey of its level does.
        """
        is_sdr = self.transfer == "sdr"
        full_range = frame.color_range == ColorRange.JPEG.value  # of every decoder that gives yuvj420p
        if not is_sdr or frame.format.name not in ("yuv420p", "yuvj420p") or (frame.width, frame.height) != self.stored:
            full_range, layout = False, "yuv420p" if is_sdr else "yuv420p10le"
            frame = converter.reformat(frame, *self.stored, format=layout, dst_color_range=ColorRange.MPEG)
        planes: list[NDArray[Any]] = []
        for plane in frame.planes:
            values = np.frombuffer(cast(Any, plane), "u1" if is_sdr else "<u2")
            planes.append(values.reshape(plane.height, -1)[:, : plane.width])
        luma, blue, red = planes
        if is_sdr:
            return Planes(luma, blue, red, full_range)
        bright = _tone_curve(self.transfer).take(luma, mode="clip")
        return Planes(bright, (blue >> 2).astype(np.uint8), (red >> 2).astype(np.uint8), True)


def resize(image: Image.Image, size: Size) -> NDArray[Any]:
    """Return a picture as an array of `size` = (width, height), by one bicubic, antialiased resize."""
    return np.array(image.resize(size, Image.Resampling.BICUBIC))


def find_conversion(frame: VideoFrame, pixel_aspect: Fraction) -> Conversion:
    """Find orientation and colour by the first frame. UnusableError for colours that cannot be converted."""
    side_data = cast(Any, frame.side_data)  # by name: PyAV 18 iterates over the data, PyAV 19 over its types
    turns: list[Image.Transpose] = []
    width, height = max(round(frame.width * pixel_aspect), 1), frame.height
    if matrix := side_data.get("DISPLAYMATRIX"):
        # It takes stored (x, y) to (a x + c y, b x + d y). An angle counts as the nearest right one.
        a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
        if abs(b) + abs(c) > abs(a) + abs(d):
            turns.append(Image.Transpose.TRANSPOSE)
            a, d, width, height = c, b, height, width
        if a < 0:
            turns.append(Image.Transpose.FLIP_LEFT_RIGHT)
        if d < 0:
            turns.append(Image.Transpose.FLIP_TOP_BOTTOM)
    transfer = _HDR.get(frame.color_trc, "sdr")
    wide_gamut = frame.color_primaries == ColorPrimaries.BT2020.value
    if transfer == "sdr" and side_data.get("DOVI_METADATA") is not None:
        raise UnusableError("is Dolby Vision without an HDR10 or HLG base; convert it to SDR first")
    if transfer != "sdr" and not wide_gamut and frame.color_primaries != ColorPrimaries.UNSPECIFIED.value:
        raise UnusableError(f"is HDR with primaries other than BT.2020 ({frame.color_primaries}); convert it first")
    return Conversion(
        (frame.width, frame.height), width, height, tuple(turns), transfer, wide_gamut or transfer != "sdr"
    )


@cache
def _tone_curve(transfer: Transfer) -> Pixels:
    """Return the luma in SDR, from 0 to 255, of grey in HDR by its code of 10 bits."""
    signal = (np.arange(1024, dtype=np.float32) - 64) / 876
    return to_sdr(np.repeat(signal[None, :, None], 3, axis=2), transfer)[0, :, 0]
