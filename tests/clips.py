"""Synthesised clips. Knows how to write a video whose pictures carry their own frame number, and how to
damage a file; refuses to know how the package reads one.

A picture is a grid of 4 columns and 5 rows: red, green, blue and grey on top (a turned, mirrored or
miscoloured picture is noticed), sixteen bits of the number below in black and white.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
MARKS = ((230, 30, 30), (30, 200, 30), (30, 30, 230), (128, 128, 128))


def picture(index: int, size: tuple[int, int] = (252, 140)) -> Rgb:
    """Frame number `index` as displayed, (height, width, 3)."""
    width, height = size
    cells = np.zeros((5, 4, 3), np.uint8)
    cells[0] = MARKS
    cells[1:] = [[[235 if index >> (4 * row + column) & 1 else 16] * 3 for column in range(4)] for row in range(4)]
    rows, columns = np.arange(height) * 5 // height, np.arange(width) * 4 // width
    return cells[rows][:, columns]


def read_index(rgb: NDArray[np.generic]) -> int:
    """The number in a picture of any size. AssertionError if the marks are not where and what they were."""
    height, width = rgb.shape[:2]

    def cell(row: int, column: int) -> NDArray[np.float64]:
        top, left = int((row + 0.3) * height / 5), int((column + 0.3) * width / 4)
        bottom, right = int((row + 0.7) * height / 5) + 1, int((column + 0.7) * width / 4) + 1
        return rgb[top:bottom, left:right].astype(np.float64).mean(axis=(0, 1))

    for column, mark in enumerate(MARKS):
        assert np.abs(cell(0, column) - mark).max() < 60, f"mark {column} is {cell(0, column)}"
    bits = [cell(1 + bit // 4, bit % 4).mean() > 128 for bit in range(16)]
    return sum(int(on) << bit for bit, on in enumerate(bits))


def write_clip(
    path: Path,
    *,
    frames: int = 48,
    fps: int = 16,
    size: tuple[int, int] = (252, 140),
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    gop: int = 12,
    bframes: int = 2,
    options: dict[str, str] | None = None,
    rotation: int = 0,
    mirror: bool = False,
    flip: bool = False,
    sar: Fraction | None = None,
    pts: Sequence[int] | None = None,
    colour: dict[str, int] | None = None,
    disposition: Disposition | None = None,
    audio_seconds: float = 0,
    faststart: bool = False,
    movflags: str = "",
    muxer: dict[str, str] | None = None,
    pictures: Iterable[Rgb] | Iterable[av.VideoFrame] | None = None,
) -> Path:
    """Write one clip; `size` is as displayed before `sar`. Numbers run from 0; `pts` is in units of 1/fps.

    `rotation` (counter-clockwise degrees), `mirror` and `flip` are what a player has to do: the stored
    picture is laid the other way round.
    """
    settings = dict(muxer or {})
    flags = "+".join(filter(None, ["faststart" if faststart else "", movflags]))
    if flags:
        settings["movflags"] = flags
    width, height = size if rotation % 180 == 0 else size[::-1]
    with av.open(str(path), "w", options=settings) as out:
        stream: Any = out.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        stream.codec_context.time_base = Fraction(1, fps)
        stream.codec_context.gop_size = gop
        stream.codec_context.thread_count = 1
        if codec in ("libx264", "mpeg4", "mpeg2video"):
            stream.codec_context.max_b_frames = bframes
        stream.options = ({"preset": "veryfast"} if codec.startswith("libx26") else {}) | (options or {})
        for name, value in (colour or {}).items():
            setattr(stream.codec_context, name, value)
        if sar:
            stream.codec_context.sample_aspect_ratio = sar
        if rotation or mirror or flip:
            stream.set_display_rotation(rotation, hflip=mirror, vflip=flip)
        if disposition:
            stream.disposition = disposition
        sound: Any = out.add_stream("aac", rate=8000, layout="mono") if audio_seconds else None
        shown = picture_frames(frames, size) if pictures is None else pictures
        for number, item in enumerate(shown):
            frame = item if isinstance(item, av.VideoFrame) else _laid(item, rotation, mirror, flip)
            frame.pts = number if pts is None else pts[number]
            frame.time_base = Fraction(1, fps)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
        if sound:
            _mux_silence(out, sound, audio_seconds)
    return path


def picture_frames(frames: int, size: tuple[int, int]) -> Iterable[Rgb]:
    """Numbered pictures 0, 1, 2, …"""
    return (picture(number, size) for number in range(frames))


def _laid(rgb: Rgb, rotation: int, mirror: bool, flip: bool) -> av.VideoFrame:
    """The stored frame that a player turns counter-clockwise, then mirrors and flips into `rgb`."""
    if flip:
        rgb = rgb[::-1]
    if mirror:
        rgb = rgb[:, ::-1]
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(np.rot90(rgb, -rotation // 90)), format="rgb24")


def _mux_silence(out: Any, sound: Any, seconds: float) -> None:
    for start in range(0, int(seconds * 8000), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 8000, start, Fraction(1, 8000)
        out.mux(sound.encode(frame))
    out.mux(sound.encode(None))


def grey_frames(signals: Sequence[float], *, frames: int = 4, side: int = 64) -> list[av.VideoFrame]:
    """10-bit limited-range frames of vertical grey bars, one per signal value (0..1, as coded)."""
    codes = np.repeat(np.rint(64 + 876 * np.asarray(signals)).astype(np.uint16), side)
    made: list[av.VideoFrame] = []
    for _ in range(frames):
        frame = av.VideoFrame(len(codes), side, "yuv420p10le")
        grey = np.full(len(codes) // 2, 512)
        for plane, row in zip(frame.planes, (codes, grey, grey), strict=True):
            padded = np.zeros((plane.height, plane.line_size // 2), np.uint16)
            padded[:, : len(row)] = row
            plane.update(padded.tobytes())
        made.append(frame)
    return made


def write_audio_only(path: Path) -> Path:
    """An mp4 with sound and no picture."""
    with av.open(str(path), "w") as out:
        _mux_silence(out, out.add_stream("aac", rate=8000, layout="mono"), 1)
    return path


def cut(path: Path, kept_bytes: int) -> Path:
    """A copy of the first bytes."""
    copy = path.with_name(f"cut{path.suffix}")
    copy.write_bytes(path.read_bytes()[:kept_bytes])
    return copy


def flip_bits(path: Path, *, flips: int, seed: int, first_byte: int = 0, last_byte: int | None = None) -> Path:
    """A copy with `flips` random bits turned over in a range of bytes."""
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    for _ in range(flips):
        data[chance.randrange(first_byte, last_byte or len(data))] ^= 1 << chance.randrange(8)
    copy = path.with_name(f"rot{path.suffix}")
    copy.write_bytes(data)
    return copy


def top_level_boxes(path: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each outermost MP4 box, the last of its kind."""
    data, at, found = path.read_bytes(), 0, dict[str, tuple[int, int]]()
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found[data[at + 4 : at + 8].decode("latin-1")] = at, size
        at += size
    return found
