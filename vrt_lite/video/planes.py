"""The stored pixels of frames as brightness and colour differences, for what measures them: not turned, not scaled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

if TYPE_CHECKING:
    from vrt_lite.video.tonemap import Transfer

_PLAIN = frozenset(("yuv420p", "yuvj420p"))
_WIDEST_CODE = 1023


@dataclass(frozen=True, slots=True)
class Planes:
    """One picture of 8 bits: luma, and at half its size how much blue and red there is, 128 for none.

    Luma goes from 16 to 235, or from 0 to 255 if `full_range`. All arrays are (rows, columns), and share the
    memory of the decoded frame.
    """

    luma: NDArray[np.uint8]
    blue: NDArray[np.uint8]
    red: NDArray[np.uint8]
    full_range: bool


def read_planes(frame: VideoFrame, size: tuple[int, int], *, transfer: Transfer, converter: VideoReformatter) -> Planes:
    """Return the planes of a frame, scaled to the stored (width, height) of the clip's first. Raises FFmpegError.

    HDR goes through the tone curve as grey of its level does.
    """
    if transfer != "sdr":
        wide = converter.reformat(frame, *size, format="yuv420p10le", dst_color_range=ColorRange.MPEG)
        luma, blue, red = (_view(wide, plane, "<u2") for plane in range(3))
        bright = _tone_curve(transfer)[np.minimum(luma, _WIDEST_CODE)]
        return Planes(bright, (blue >> 2).astype(np.uint8), (red >> 2).astype(np.uint8), True)
    full_range = frame.format.name.startswith("yuvj") or frame.color_range == ColorRange.JPEG.value
    if frame.format.name not in _PLAIN or (frame.width, frame.height) != size:
        full_range = False
        frame = converter.reformat(frame, *size, format="yuv420p", dst_color_range=ColorRange.MPEG)
    luma, blue, red = (_view(frame, plane, "u1") for plane in range(3))
    return Planes(luma, blue, red, full_range)


def _view(frame: VideoFrame, plane: int, kind: str) -> NDArray[np.uint8]:
    """Return a plane of a frame without copying it."""
    stored = frame.planes[plane]
    values: NDArray[Any] = np.frombuffer(cast(Any, stored), kind)
    return values.reshape(-1, stored.line_size // values.itemsize)[: stored.height, : stored.width]


@cache
def _tone_curve(transfer: Transfer) -> NDArray[np.uint8]:
    """Return the luma in SDR, from 0 to 255, of grey in HDR by its code of 10 bits."""
    from vrt_lite.video.tonemap import to_sdr  # noqa: PLC0415 - few clips need it

    signal = ((np.arange(_WIDEST_CODE + 1, dtype=np.float32) - 64) / 876).clip(0, 1)
    return to_sdr(np.repeat(signal[None, :, None], 3, axis=2), transfer)[0, :, 0]
