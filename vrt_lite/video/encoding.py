"""Writes RGB frames to an MP4 file, in memory; without loss, every reader gets the same pixels and times from it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, cast

import av
import av.codec
import numpy as np
from av.video.reformatter import Colorspace
from numpy.typing import NDArray

LOSSLESS: Final = "libx264rgb"
"""The encoder of `write_lossless`."""
# No B-frames: nothing is reordered, so that the file needs no edit list. Every frame is a key frame.
_LOSSLESS_OPTIONS = {"qp": "0", "preset": "veryfast", "bf": "0", "g": "1"}


def has_codec(name: str) -> bool:
    """Whether this build of PyAV has an encoder or a decoder."""
    return name in av.codec.codecs_available


def encode_mp4(
    frames: Iterable[tuple[int, NDArray[np.uint8]]],
    *,
    encoder: str,
    options: Mapping[str, str],
    pix_fmt: str,
    size: tuple[int, int],
    rate: Fraction,
    tick: Fraction,
    frame_ticks: int = 0,
) -> bytes:
    """Encode (time, frame) pairs at a size. Times are in ticks; the same frames give the same bytes. FFmpegError."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4", options={"fflags": "+bitexact"}) as opened:
        container = cast(Any, opened)
        stream = container.add_stream(encoder, rate=rate, options={**options, "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        stream.time_base = stream.codec_context.time_base = tick
        matrix = None if pix_fmt == "rgb24" else Colorspace.SMPTE170M
        if matrix:
            stream.codec_context.colorspace = matrix
        for at, pixels in frames:
            rgb = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame = rgb.reformat(*size, format=pix_fmt, dst_colorspace=matrix)
            frame.pts, frame.duration, frame.time_base = at, frame_ticks, tick
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def write_lossless(frames: Sequence[NDArray[np.uint8]], *, frame_seconds: Fraction) -> bytes:
    """An MP4 of RGB frames (height, width, 3), each shown for `frame_seconds`: H.264 in RGB with a quantiser of 0.

    The time base is the denominator of `frame_seconds`, so that the frame rate is exact.
    """
    height, width, _ = frames[0].shape
    ticks = frame_seconds.numerator
    return encode_mp4(
        ((number * ticks, pixels) for number, pixels in enumerate(frames)),
        encoder=LOSSLESS,
        options=_LOSSLESS_OPTIONS,
        pix_fmt="rgb24",
        size=(width, height),
        rate=1 / frame_seconds,
        tick=Fraction(1, frame_seconds.denominator),
        frame_ticks=ticks,
    )
