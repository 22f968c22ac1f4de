"""Pictures as a real encoder leaves them: H.264 and H.265 at a low rate, through PyAV.

A frame is coded with the few ticks before it in its group and no others, so that one frame costs a few and looks the
same whatever else is asked for: a fixed quantiser, no frame that looks ahead, one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from train.world.defects import CODECS, strength, tick_of
from train.world.values import FIRST, TICKS, ClipSpec, Defect

GROUP = 4
"""Ticks from one whole picture to the next."""

Film = Callable[[Sequence[float]], NDArray[np.uint8]]


def filmed(clip: ClipSpec, positions: Sequence[float], film: Film) -> NDArray[np.uint8]:
    """Frames at times in ticks, (n, height, width, 3), as the clip's encoders leave them; `film` gives them before."""
    pictures = film(positions)
    for defect in clip.defects:
        there = [i for i, position in enumerate(positions) if defect.at(tick_of(position))]
        if defect.kind in CODECS and there:
            pictures[there] = coded(defect, clip, [positions[i] for i in there], film)
    return pictures


def coded(defect: Defect, clip: ClipSpec, positions: Sequence[float], film: Film) -> NDArray[np.uint8]:
    """What is left of the frames at these times, (n, height, width, 3); `film` gives them before."""
    ticks = clip.ticks
    groups: dict[tuple[float, ...], list[int]] = {}
    for i, position in enumerate(positions):
        tick = tick_of(position)
        start, last = _group(defect, tick)
        own = position == ticks[tick]
        # All ticks of a group share one coding; a frame between ticks has one of its own.
        run = ticks[start : last + 1] if own else (*ticks[start:tick], position)
        groups.setdefault(run, []).append(i)
    found: dict[int, NDArray[np.uint8]] = {}
    for run, wanted in groups.items():
        needed = max(run.index(positions[i]) for i in wanted) + 1
        through = _through(film(run[:needed]), defect)
        found |= {i: through[run.index(positions[i])] for i in wanted}
    return np.stack([found[i] for i in range(len(positions))])


def _group(defect: Defect, tick: int) -> tuple[int, int]:
    """The first and last tick that are coded with this one. What is shown first begins a group of its own."""
    start = max([tick // GROUP * GROUP, defect.first, *(shown for shown in FIRST if shown <= tick)])
    after = min(shown for shown in (*FIRST, TICKS) if shown > tick)
    return start, min(tick // GROUP * GROUP + GROUP - 1, after - 1, defect.last)


def _through(pictures: NDArray[np.uint8], defect: Defect) -> list[NDArray[np.uint8]]:
    """The pictures encoded and decoded."""
    quantiser = int(strength(defect))
    encoder = VideoCodecContext.create("libx264" if defect.kind == "h264" else "libx265", "w")
    encoder.width, encoder.height, encoder.pix_fmt = pictures.shape[2], pictures.shape[1], "yuv420p"
    encoder.framerate, encoder.gop_size, encoder.max_b_frames, encoder.thread_count = Fraction(25), GROUP, 0, 1
    if defect.kind == "h264":
        encoder.options = {"preset": "veryfast", "tune": "zerolatency", "qp": str(quantiser)}
    else:
        fixed = f"qp={quantiser}:bframes=0:rc-lookahead=0:frame-threads=1:pools=none:wpp=0:log-level=none"
        encoder.options = {"preset": "ultrafast", "tune": "zerolatency", "x265-params": fixed}
    decoder = VideoCodecContext.create("h264" if defect.kind == "h264" else "hevc", "r")
    decoder.thread_count = 1
    packets = []
    for number, picture in enumerate(pictures):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        frame.pts = number
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    frames = [frame for packet in packets for frame in decoder.decode(packet)] + list(decoder.decode(None))
    return [frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False) for frame in frames]
