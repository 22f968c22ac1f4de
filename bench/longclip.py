"""Writes a long video quickly: a short part is encoded once, and its packets are repeated to the end."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray
from PIL import Image

Rgb = NDArray[np.uint8]
FPS = 30
_STRETCH_SECONDS = 8
_KEYFRAME_SECONDS = 2
# What a video service delivers: B-frames, closed groups of pictures so that every stretch stands alone.
_OPTIONS = {"preset": "veryfast", "crf": "23", "bf": "2", "x264-params": "open-gop=0:scenecut=0"}


def write_long_clip(path: Path, *, seconds: float, size: tuple[int, int]) -> int:
    """Write an H.264 file at 30 frames a second with a key frame every two seconds. Returns the number of frames."""
    stretch = _stretch(size)
    total = round(seconds * FPS)
    written = 0
    with av.open(io.BytesIO(stretch), "r", format="mp4") as source, av.open(path, "w", format="mp4") as out:
        video = source.streams.video[0]
        track = out.add_stream_from_template(video)
        packets = [packet for packet in source.demux(video) if packet.size]
        base = video.time_base or Fraction(1, FPS)
        step = round(_STRETCH_SECONDS / base)
        stored = [(bytes(p), p.pts or 0, p.dts or 0, p.duration or 0, p.is_keyframe) for p in packets]
        lap = 0
        while written < total:
            for data, pts, dts, duration, is_keyframe in stored:
                packet = av.Packet(data)
                packet.pts, packet.dts, packet.duration = pts + lap * step, dts + lap * step, duration
                packet.time_base, packet.is_keyframe, packet.stream = base, is_keyframe, track
                out.mux(packet)
                written += 1
            lap += 1
    return written


def _stretch(size: tuple[int, int]) -> bytes:
    """Encode the part as an MP4 file."""
    width, height = size
    background = _background(size)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as out:
        stream = out.add_stream("libx264", rate=FPS, options=_OPTIONS)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size = _KEYFRAME_SECONDS * FPS
        for i in range(_STRETCH_SECONDS * FPS):
            shown = np.roll(background, (i, 2 * i), (0, 1))
            _write_number(shown, i)
            out.mux(stream.encode(VideoFrame.from_ndarray(shown, "rgb24")))
        out.mux(stream.encode())
    return buffer.getvalue()


def _background(size: tuple[int, int]) -> Rgb:
    """Draw soft colours with some grain, whose decoding costs as much as that of a real picture."""
    random = np.random.default_rng(0)
    soft = Image.fromarray(random.integers(40, 215, (9, 16, 3), np.uint8)).resize(size, Image.Resampling.BICUBIC)
    grain = random.integers(-6, 7, (size[1], size[0], 1))
    return (np.asarray(soft).astype(np.int16) + grain).clip(0, 255).astype(np.uint8)


def _write_number(shown: Rgb, number: int) -> None:
    """Draw a number as eight bits in black and white, so that neighbouring frames differ clearly."""
    height, width, _ = shown.shape
    for bit in range(8):
        cells = slice(bit * width // 8, (bit + 1) * width // 8)
        shown[height // 2 :, cells] = 235 if number >> bit & 1 else 16
