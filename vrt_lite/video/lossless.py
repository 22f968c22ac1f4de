"""Writes frames to a video file from which every reader gets the same pixels and the same frame rate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from vrt_lite.video.encoding import encode_mp4, has_codec

_ENCODER = "libx264rgb"
# No B-frames: nothing is reordered, so that the file needs no edit list. Every frame is a key frame.
_OPTIONS = {"qp": "0", "preset": "veryfast", "bf": "0", "g": "1"}


def can_write_lossless() -> bool:
    """Whether this build of PyAV has the encoder."""
    return has_codec(_ENCODER)


def write_lossless(frames: Sequence[NDArray[np.uint8]], *, frame_seconds: Fraction) -> bytes:
    """An MP4 of RGB frames (height, width, 3), each shown for `frame_seconds`: H.264 in RGB with a quantiser of 0.

    The time base is the denominator of `frame_seconds`, so that the frame rate is exact. Equal frames give equal
    bytes.
    """
    height, width, _ = frames[0].shape
    ticks = frame_seconds.numerator
    return encode_mp4(
        ((number * ticks, pixels) for number, pixels in enumerate(frames)),
        encoder=_ENCODER,
        options=_OPTIONS,
        pix_fmt="rgb24",
        size=(width, height),
        rate=1 / frame_seconds,
        tick=Fraction(1, frame_seconds.denominator),
        frame_ticks=ticks,
    )
