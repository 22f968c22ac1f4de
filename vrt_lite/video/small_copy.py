"""Writes a small copy of a clip, for a page that is sent to others: a short H.264 file that every browser plays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

import av
import av.codec
from av.error import FFmpegError
from av.video.reformatter import Colorspace

from vrt_lite.errors import VideoError
from vrt_lite.shortage import shortage_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.video import Clip

MOST_BYTES: Final = 1_000_000
"""Bytes of a copy."""
LONGEST_SIDE: Final = 480
MOST_FRAMES: Final = 300
"""Frames of a copy: of a longer clip every second frame is taken, or every third, and so on."""
_ENCODER = "libx264"
_STEPS = ((LONGEST_SIDE, 24), (LONGEST_SIDE, 30), (360, 34), (240, 38), (160, 44))
"""Longest side in pixels, and x264's rate factor: the first that fits is taken."""
_TICK = Fraction(1, 90_000)


@dataclass(frozen=True, slots=True)
class SmallCopy:
    """A copy as the bytes of an MP4 file, without sound. It has every frame of the clip, or every `step`-th one."""

    data: bytes
    width: int
    height: int
    step: int


def write_small_copy(clip: Clip) -> SmallCopy:
    """Write a copy of a whole clip: upright, SDR, at most `MOST_BYTES` long, each frame at its own time.

    Nothing else of the file gets into it: no sound, no metadata. VideoError if there can be no copy.
    """
    if _ENCODER not in av.codec.codecs_available:
        raise VideoError(clip.info.path, f"cannot be copied: this build of PyAV has no encoder {_ENCODER}")
    step = -(-clip.info.frames // MOST_FRAMES)
    indices = range(0, clip.info.frames, step)
    size = _fit((clip.info.width, clip.info.height), LONGEST_SIDE)
    frames = clip.frames(indices, size=size)
    ticks = [round(clip.seconds(index) / _TICK) for index in indices]
    rate = Fraction(clip.info.fps / step).limit_denominator(1001)
    for side, factor in _STEPS:
        width, height = _fit(size, side)
        try:
            data = _encode([frames[index] for index in indices], ticks, (width, height), rate, factor)
        except FFmpegError as error:
            if short := shortage_of(error):
                raise short from error
            raise VideoError(clip.info.path, f"cannot be copied: {error.strerror}") from None
        if len(data) <= MOST_BYTES:
            return SmallCopy(data, width, height, step)
    raise VideoError(clip.info.path, f"cannot be copied into {MOST_BYTES / 1e6:g} MB")


def _encode(
    frames: Sequence[NDArray[np.uint8]], ticks: Sequence[int], size: tuple[int, int], rate: Fraction, factor: int
) -> bytes:
    file = io.BytesIO()
    options = {"crf": str(factor), "preset": "veryfast", "g": "24", "bf": "0", "threads": "1"}
    with av.open(file, "w", format="mp4", options={"fflags": "+bitexact"}) as opened:
        container = cast(Any, opened)
        stream = container.add_stream(_ENCODER, rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.time_base = stream.codec_context.time_base = _TICK
        stream.codec_context.colorspace = Colorspace.SMPTE170M
        for pixels, at in zip(frames, ticks, strict=True):
            rgb = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame = rgb.reformat(*size, format="yuv420p", dst_colorspace=Colorspace.SMPTE170M)
            frame.pts, frame.time_base = at, _TICK
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def _fit(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return the size with its longer side at most `side`; both sides are even, as 4:2:0 needs."""
    scale = min(1.0, side / max(size))
    width, height = (max(round(length * scale / 2) * 2, 2) for length in size)
    return width, height
