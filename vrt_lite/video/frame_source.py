"""What frames are read from, and what is wrong with it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from vrt_lite.clip_files import ClipFiles

Size = tuple[int, int]
"""A width and a height, in pixels."""
Pixels = NDArray[np.uint8]
"""A picture of 8 bits: RGB (height, width, 3), or one plane (height, width)."""
Frames = Iterator[tuple[int, VideoFrame]]
"""Decoded frames, each with its number."""
Transfer = Literal["sdr", "pq", "hlg"]
"""The curve from light to signal: that of standard dynamic range, or one of the two of HDR."""
MAX_PIXELS: Final = 7680 * 4320
AGAIN: Final = "copy, download or export it again"
_SEGMENT: Final = b"\x18\x53\x80\x67\x01"
"""How the one segment of a Matroska file begins; its length in seven bytes follows, all ones if it is not known."""


class UnusableError(Exception):
    """What is wrong with a clip, without its path. `vrt_lite.video` turns it into a VideoError."""


class FrameSource:
    """A clip of which frames are read.

    ticks: when each frame is shown, in units of `time_base`. starts: the frames at which decoding can start, the first
    among them. declared_fps: the frame rate of a clip of one frame. open_ended: the file does not say how long it is.
    threads: how many decode. notes: warnings so far, by what they are about.
    """

    ticks: NDArray[np.int64]
    starts: NDArray[np.int64]
    time_base: Fraction
    pixel_aspect = Fraction(1)
    declared_fps = 1.0
    threads = 2
    open_ended = False

    def __init__(self, clip: ClipFiles) -> None:
        self.clip = clip
        self._stamp, _ = clip.stamp()
        self.opened = contextlib.ExitStack()
        self.notes: dict[str, str] = {}

    @contextlib.contextmanager
    def again(self) -> Generator[Self]:
        """Yield the same source, to decode beside other work: in one thread, with the memory of one."""
        other = copy.copy(self)
        other.notes, other.threads = {}, 1
        with contextlib.ExitStack() as other.opened:
            other.open()
            yield other

    def open(self) -> None:
        """Open what stays open meanwhile, anew if it is open. UnusableError if a file is not the same as at first."""
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise UnusableError if a file was changed or replaced since this source was made: what is read is not it."""
        if self.clip.stamp()[0] != self._stamp:
            raise UnusableError("was changed while it was read; try again when it is whole")


def is_picture(file: Path) -> bool:
    """Whether a file is a GIF, WebP or PNG, animated or not."""
    with file.open("rb") as opened:
        head = opened.read(12)
    return head[:4] in (b"GIF8", b"\x89PNG") or head[8:] == b"WEBP"


def count_missing_bytes(file: Path) -> int | None:
    """Return how many bytes a file lacks, none or less if it is whole; None if its header does not say."""
    size_bytes = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(4096)
        opened.seek(max(size_bytes - 1, 0))
        last = opened.read()
    if head.startswith(b"GIF8"):
        return int(last != b";")
    if head.startswith(b"RIFF"):  # AVI, WebP
        length = int.from_bytes(head[4:8], "little")
        return 8 + length - size_bytes if length else None
    if head.startswith(b"\x47"):  # MPEG-TS: plain, with a time code, or with parity
        return min(-size_bytes % packet for packet in (188, 192, 204)) or None
    before, segment, after = head.partition(_SEGMENT)
    length = int.from_bytes(after[:7])
    return len(before + segment) + 7 + length - size_bytes if segment and length < 1 << 55 else None
