"""Writes frames with real encoders, well or badly, and decodes them again."""

from __future__ import annotations

import contextlib
import io
import os
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, cast

import av
import numpy as np

from train.tiny.spoiled_pictures import Frames

Codec = tuple[str, str, str]
"""The encoder, the container, and the option that is its quantiser."""
CODECS: Final[dict[str, Codec]] = {
    "h264": ("libx264", "mp4", "crf"),
    "h265": ("libx265", "mp4", "crf"),
    "vp9": ("libvpx-vp9", "webm", "crf"),
    "av1": ("libsvtav1", "mp4", "crf"),
    "mpeg2": ("mpeg2video", "matroska", "qscale"),
}
GOOD: Final[dict[str, tuple[float, float]]] = {"h264": (14, 25), "h265": (16, 26), "vp9": (18, 32), "av1": (20, 33)}
"""The quantisers of clean clips."""
BAD: Final[dict[str, tuple[float, float]]] = {"h264": (30, 51), "h265": (31, 51), "av1": (48, 63), "mpeg2": (7, 31)}
"""The quantisers of the faults from barely visible to gross."""
_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "h264": {"preset": "veryfast", "threads": "1", "x264-params": "mbtree=0"},  # with it, not the same twice
    "h265": {"preset": "ultrafast", "x265-params": "pools=none:frame-threads=1:log-level=none"},
    "vp9": {"deadline": "realtime", "cpu-used": "8", "b": "0", "threads": "1"},
    "av1": {"preset": "12", "svtav1-params": "lp=1"},
    "mpeg2": {"flags": "+qscale", "threads": "1"},
}


def encode(frames: Frames, fps: float, codec: str, quantiser: float, *, full_range: bool = False) -> bytes:
    """Return a file with these frames (height, width, 3); both sides are even."""
    encoder, container, option = CODECS[codec]
    written = io.BytesIO()
    with av.open(written, "w", format=container, options={"fflags": "+bitexact"}) as opened:
        rate = Fraction(fps).limit_denominator(1001)
        stream: Any = opened.add_stream(encoder, rate=rate)
        stream.height, stream.width = frames[0].shape[:2]
        layout = "yuvj420p" if full_range and codec == "h264" else "yuv420p"
        stream.pix_fmt = layout
        stream.codec_context.thread_count, stream.codec_context.time_base = 1, 1 / rate
        if option == "qscale":
            stream.codec_context.qmin = stream.codec_context.qmax = round(quantiser)
            stream.codec_context.bit_rate = 10_000_000
        else:
            stream.options = {**_OPTIONS[codec], option: str(round(quantiser))}
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24").reformat(format=layout)
            frame.pts, frame.time_base = number, 1 / rate
            opened.mux(stream.encode(frame))
            if not number and encoder == "libsvtav1":
                _leave_real_time()
        opened.mux(stream.encode(None))
    return written.getvalue()


def _leave_real_time() -> None:
    """Give all threads the usual priority: as root, SVT-AV1 takes one before which the whole machine waits."""
    threads = Path("/proc/self/task")
    if hasattr(os, "sched_setscheduler") and threads.exists():
        for thread in threads.iterdir():
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setscheduler(int(thread.name), os.SCHED_OTHER, os.sched_param(0))


def decode(data: bytes) -> Frames:
    """Return the frames of a file."""
    with av.open(io.BytesIO(data), "r") as opened:
        return [cast(Any, frame.to_ndarray(format="rgb24")) for frame in opened.decode(video=0)]
