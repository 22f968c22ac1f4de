"""Converts decoded frames: to RGB as a viewer sees it, and to planes as they are stored, for what measures them.

High dynamic range and wide gamut become SDR: transfer curves, primaries and one tone curve, on float images. The
curve, in display light with 1.0 = 203 nits, the reference white of ITU-R BT.2408: the largest of the three channels m
becomes

    f(m) = m                                      up to the knee, 0.6 (122 nits)
    f(m) = 0.6 + 0.4 (1 - exp(-(m - 0.6) / 0.4))  above it

and all three are scaled by f(m) / m, so hues stay. Middle tones keep their brightness; highlights approach 1 smoothly.
Reference white becomes 0.853, code 239 of 255; the codes above it are for the highlights. The output is coded for a
BT.1886 display (power 2.4), BT.709 primaries.
"""

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

# swscale's default for 4:2:0 is a table-driven path that is off by up to two levels; this is exact.
EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
_HDR: dict[int, Transfer] = {ColorTrc.SMPTE2084.value: "pq", ColorTrc.ARIB_STD_B67.value: "hlg"}
REFERENCE_WHITE_NITS = 203.0
KNEE = 0.6
_DISPLAY_POWER = 2.4
_HLG_PEAK_NITS = 1000.0
_HLG_SYSTEM_GAMMA = 1.2  # for a 1000-nit display, BT.2100
_LUMA_2020 = np.array([0.2627, 0.6780, 0.0593])
# BT.2087: linear BT.2020 to linear BT.709, both D65.
_TO_709 = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]])


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


def to_sdr(signal: NDArray[np.floating[Any]], transfer: Transfer) -> Pixels:
    """BT.2020 R'G'B' (height, width, 3) in 0..1 to BT.709 R'G'B' in 0..255.

    `sdr` is the wide gamut alone: primaries change, brightness does not.
    """
    coded = np.clip(signal.astype(np.float64), 0.0, 1.0)
    if transfer == "pq":  # SMPTE ST 2084, table 4
        m1, m2 = 2610 / 16384, 2523 / 4096 * 128
        c1, c2, c3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
        root = coded ** (1 / m2)
        light = 10000 * (np.maximum(root - c1, 0) / (c2 - c3 * root)) ** (1 / m1) / REFERENCE_WHITE_NITS
    elif transfer == "hlg":  # ARIB STD-B67 / BT.2100: inverse camera curve, then the system curve on luminance
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        scene = np.where(coded <= 0.5, coded**2 / 3, (np.exp((coded - c) / a) + b) / 12)
        luminance = np.maximum((scene @ _LUMA_2020)[..., None], 1e-6)
        light = _HLG_PEAK_NITS * luminance ** (_HLG_SYSTEM_GAMMA - 1) * scene / REFERENCE_WHITE_NITS
    else:
        light = coded**_DISPLAY_POWER
    light = np.maximum(light @ _TO_709.T, 0.0)
    if transfer != "sdr":  # the tone curve of the module docstring, on the largest channel so that hues stay
        top = np.maximum(np.max(light, axis=-1, keepdims=True), 1e-6)
        over = np.maximum(top - KNEE, 0.0)
        light *= (np.minimum(top, KNEE) + (1 - KNEE) * (1 - np.exp(-over / (1 - KNEE)))) / top
    shown = np.clip(light, 0.0, 1.0) ** (1 / _DISPLAY_POWER)
    return np.rint(shown * 255).astype(np.uint8)
