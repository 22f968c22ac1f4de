"""Reads the frame times of an animated GIF or WebP from its blocks, and whether the file is whole. Decodes nothing."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final

from vrt_lite.video.container import AGAIN, MAX_PIXELS, UnusableError

MOST_FRAMES: Final = 20_000
MOST_BYTES: Final = 512 * 2**20
MOST_ANIMATED_PIXELS: Final = 4_000_000_000
"""Frames times width times height: the pictures build on each other, so that all before a frame are decoded for it."""
_MOST_BLOCKS: Final = 5_000_000
_SHORTEST_MILLISECONDS: Final = 10
"""A frame that is to be shown so long or shorter is shown for 100 ms, as browsers do."""
_SHOWN_MILLISECONDS: Final = 100
_STILL: Final = "is a still picture, no video; give a video, an animated GIF or WebP, or numbered pictures"
CONVERT: Final = "make a video of it, e.g. ffmpeg -i IN OUT.mp4"


@dataclass(slots=True)
class AnimationIndex:
    """The size in pixels, and how long each frame is shown in milliseconds, as written in the file."""

    width: int
    height: int
    written: array[int] = field(default_factory=lambda: array("q"))

    time_base = Fraction(1, 1000)

    def ticks(self) -> list[int]:
        """Return when each frame is shown, in milliseconds from the first. No frame is shown for too short a time."""
        times = [0]
        for milliseconds in self.written[:-1]:
            times.append(times[-1] + (milliseconds if milliseconds > _SHORTEST_MILLISECONDS else _SHOWN_MILLISECONDS))
        return times

    def add(self, left: int, top: int, width: int, height: int, milliseconds: int) -> None:
        """Add a frame that changes this part of the picture. UnusableError if it exceeds the picture or a limit."""
        if left + width > self.width or top + height > self.height:
            raise UnusableError(f"has a frame that is larger than the picture ({self.width}x{self.height}); {AGAIN}")
        self.written.append(milliseconds)
        if len(self.written) > MOST_FRAMES:
            raise UnusableError(f"holds more than {MOST_FRAMES} frames; {CONVERT}")
        if len(self.written) * self.width * self.height > MOST_ANIMATED_PIXELS:
            raise UnusableError(
                f"holds more than {MOST_ANIMATED_PIXELS} pixels in all frames of {self.width}x{self.height}; {CONVERT}"
            )


def index_animation(path: Path) -> AnimationIndex:
    """Read the index of a GIF or WebP. UnusableError for a still picture, a cut file, and one beyond the limits."""
    size_bytes = path.stat().st_size
    if size_bytes > MOST_BYTES:
        raise UnusableError(f"has {size_bytes} bytes; an animated picture may have {MOST_BYTES}: {CONVERT}")
    with path.open("rb", buffering=2**18) as file:
        walk = _Walk(file, size_bytes)
        head = file.read(4)
        index = walk.gif() if head == b"GIF8" else walk.webp() if head == b"RIFF" else None
    if index is None or len(index.written) < 2:
        raise UnusableError(_STILL)
    return index


class _Walk:
    """The blocks of one file. Its methods raise UnusableError."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._frames = 0

    def gif(self) -> AnimationIndex:
        """Walk a GIF's blocks up to its end mark. The delays are in hundredths of a second."""
        self._file.seek(6)
        screen = self._read(7)
        index = _start(_number(screen[:2]), _number(screen[2:4]))
        self._skip_colours(screen[4])
        delay = 0
        while (kind := self._read(1)) != b";":
            if kind == b"!":
                if self._read(1) == b"\xf9" and (block := self._read(1)) != b"\0":
                    control = self._read(block[0])
                    delay = _number(control[1:3])
                self._skip_blocks()
            elif kind == b",":
                place = self._read(9)
                self._skip_colours(place[8])
                self._read(1)
                self._skip_blocks()
                self._frames += 1
                left, top, width, height = (_number(place[i : i + 2]) for i in (0, 2, 4, 6))
                index.add(left, top, width, height, 10 * delay)
                delay = 0
            else:
                raise UnusableError(f"is damaged after frame {self._frames}; {AGAIN}")
        return index

    def webp(self) -> AnimationIndex:
        """Walk a WebP's chunks. UnusableError if it is not animated. The times are in milliseconds."""
        self._file.seek(4)
        end = 8 + _number(self._read(4))
        if end > self._size_bytes:
            raise self._cut(end - self._size_bytes)
        self._read(4)
        if self._read(4) != b"VP8X":
            raise UnusableError(_STILL)
        self._file.seek(4, 1)
        header = self._read(10)
        index = _start(_number(header[4:7]) + 1, _number(header[7:10]) + 1)
        while self._file.tell() + 8 <= end:
            kind, length = self._read(4), _number(self._read(4))
            after = self._file.tell() + length + length % 2
            if kind == b"ANMF":
                place = self._read(16)
                left, top = 2 * _number(place[:3]), 2 * _number(place[3:6])
                width, height = _number(place[6:9]) + 1, _number(place[9:12]) + 1
                index.add(left, top, width, height, _number(place[12:15]))
                self._frames += 1
            if after > end + length % 2:
                raise self._cut(after - end)
            self._file.seek(after)
        return index

    def _skip_colours(self, flags: int) -> None:
        if flags & 0x80:
            self._file.seek(3 << (flags & 7) + 1, 1)

    def _skip_blocks(self) -> None:
        """Skip data blocks up to the empty one that ends them."""
        for _ in range(_MOST_BLOCKS):
            length = self._read(1)[0]
            if not length:
                return
            self._file.seek(length, 1)
        raise UnusableError(f"has a frame of more than {_MOST_BLOCKS} blocks; {AGAIN}")

    def _read(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) < length:
            raise self._cut(0)
        return data

    def _cut(self, missing_bytes: int) -> UnusableError:
        missing = f" (bytes missing: {missing_bytes})" if missing_bytes else ""
        return UnusableError(f"ends after frame {self._frames}; the file is truncated{missing}: {AGAIN}")


def _start(width: int, height: int) -> AnimationIndex:
    if not 0 < width * height <= MAX_PIXELS:
        raise UnusableError(f"is {width}x{height}; allowed are 1 to {MAX_PIXELS} pixels (7680x4320): {CONVERT}")
    return AnimationIndex(width, height)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
