"""Encodes pictures with a real encoder at a low rate: H.264 and H.265, through PyAV.

A frame is encoded together with only the few ticks before it in its group. So one frame is cheap. It is also the same
for every set of requested frames: the quantiser is fixed, and there is no look-ahead and one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from train.tiny.world.defects import CODECS, strength, tick_of
from train.tiny.world.values import FIRST, TICKS, ClipSpec, Defect

GROUP = 4
"""Ticks from one key frame to the next."""

Film = Callable[[Sequence[float]], NDArray[np.uint8]]


def encode_faults(clip: ClipSpec, positions: Sequence[float], film: Film) -> NDArray[np.uint8]:
    """Render frames with the clip's encoding faults. Returns an array (n, height, width, 3).

    `positions` are times in ticks. `film` renders the frames without these faults.
    """
    pictures = film(positions)
    for defect in clip.defects:
        there = [i for i, position in enumerate(positions) if defect.at(tick_of(position))]
        if defect.kind in CODECS and there:
            pictures[there] = encode_frames(defect, clip, [positions[i] for i in there], film)
    return pictures


def encode_frames(defect: Defect, clip: ClipSpec, positions: Sequence[float], film: Film) -> NDArray[np.uint8]:
    """Encode and decode the frames at these times. Returns an array (n, height, width, 3)."""
    ticks = clip.ticks
    groups: dict[tuple[float, ...], list[int]] = {}
    for i, position in enumerate(positions):
        tick = tick_of(position)
        start, last = _group(defect, tick)
        own = position == ticks[tick]
        # All ticks of a group are encoded once; a frame between ticks is encoded separately.
        run = ticks[start : last + 1] if own else (*ticks[start:tick], position)
        groups.setdefault(run, []).append(i)
    found: dict[int, NDArray[np.uint8]] = {}
    for run, requested in groups.items():
        needed = max(run.index(positions[i]) for i in requested) + 1
        through = _encode_and_decode(film(run[:needed]), defect)
        found |= {i: through[run.index(positions[i])] for i in requested}
    return np.stack([found[i] for i in range(len(positions))])


def _group(defect: Defect, tick: int) -> tuple[int, int]:
    """Return the first and last tick of a tick's group. Each frame that is shown first starts a new group."""
    start = max([tick // GROUP * GROUP, defect.first, *(shown for shown in FIRST if shown <= tick)])
    after = min(shown for shown in (*FIRST, TICKS) if shown > tick)
    return start, min(tick // GROUP * GROUP + GROUP - 1, after - 1, defect.last)


def _encode_and_decode(pictures: NDArray[np.uint8], defect: Defect) -> list[NDArray[np.uint8]]:
    """Encode and decode pictures."""
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
