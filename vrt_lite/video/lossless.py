"""Writes frames to a video file from which every reader gets the same pixels and the same frame rate."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

import av
import av.codec
import numpy as np
from numpy.typing import NDArray

_ENCODER = "libx264rgb"
# No B-frames: nothing is reordered, so that the file needs no edit list. Every frame is a key frame.
_OPTIONS = {"qp": "0", "preset": "veryfast", "bf": "0", "g": "1", "threads": "1"}


def can_write_lossless() -> bool:
    """Whether this build of PyAV has the encoder."""
    return _ENCODER in av.codec.codecs_available


def write_lossless(frames: Sequence[NDArray[np.uint8]], *, frame_seconds: Fraction) -> bytes:
    """An MP4 of RGB frames (height, width, 3), each shown for `frame_seconds`: H.264 in RGB with a quantiser of 0.

    The time base is the denominator of `frame_seconds`, so that the frame rate is exact. Equal frames give equal
    bytes.
    """
    height, width, _ = frames[0].shape
    ticks, tick = frame_seconds.numerator, Fraction(1, frame_seconds.denominator)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4", options={"fflags": "+bitexact"}) as opened:
        container = cast(Any, opened)
        stream = container.add_stream(_ENCODER, rate=1 / frame_seconds, options=_OPTIONS)
        stream.width, stream.height, stream.pix_fmt = width, height, "rgb24"
        stream.time_base = stream.codec_context.time_base = tick
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.duration, frame.time_base = number * ticks, ticks, tick
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()
