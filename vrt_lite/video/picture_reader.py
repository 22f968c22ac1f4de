"""Reads frames from pictures: an animated GIF or WebP, or numbered pictures. Has the methods of `Reader`.

FFmpeg decodes no animated WebP, so Pillow decodes all of them. What is transparent is shown on white, as the reference
reader of the model does.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Generator, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray
from PIL import Image
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from vrt_lite.clip_files import NumberedPictures
from vrt_lite.shortage import shortage_of
from vrt_lite.video.timeline import AGAIN, MAX_PIXELS, Timeline, UnusableError

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MOST_BYTES: Final = 512 * 2**20
MOST_FRAMES: Final = 20_000
MOST_ANIMATED_PIXELS: Final = 4_000_000_000
"""Frames times width times height: the pictures build on each other, so that all before a frame are decoded for it."""
_SHORTEST_MILLISECONDS: Final = 10
"""A frame that is to be shown so long or shorter is shown for 100 ms, as browsers do."""
_STILL: Final = "is a still picture, no video; give a video, an animated GIF or WebP, or numbered pictures"
_CONVERT: Final = "make a video of it, e.g. ffmpeg -i IN OUT.mp4"
_MODES: Final = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
_KINDS: Final = {b"\x89PNG": (PngImageFile, b"IEND\xaeB`\x82"), b"\xff\xd8": (JpegImageFile, b"\xff\xd9")}
"""What a numbered picture begins with, its kind, and what it has among its last bytes."""


class PictureReader:
    """One clip of pictures. Only one picture is held at a time, and in an animation what the next one builds on."""

    pixel_aspect = Fraction(1)
    declared_fps = 0.0
    open_ended = False
    timeline: Timeline

    def __init__(self, pictures: NumberedPictures | Path) -> None:
        """Take numbered pictures, or the file of an animation."""
        self._pictures = pictures
        self.warnings: list[str] = []
        self._animation: ImageFile | None = None

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        if self._animation:
            self._animation.close()
        self._animation = None

    def again(self) -> PictureReader:
        """Open the pictures once more: another thread may decode there."""
        other = PictureReader(self._pictures)
        other.timeline = self.timeline
        return other

    def scan(self) -> list[str]:
        """Read the times, and check the headers of all pictures. Returns warnings; UnusableError if one is unusable."""
        if isinstance(self._pictures, Path):
            written = _read_times(self._pictures)
            shown = np.where(written > _SHORTEST_MILLISECONDS, written, 100)
            self.timeline = Timeline(shown.cumsum() - shown, np.arange(len(shown)), np.zeros(1, int), Fraction(1, 1000))
            return []
        _check_pictures(self._pictures)
        every, fps = np.arange(len(self._pictures.files)), self._pictures.fps
        self.timeline = Timeline(every, every, every, 1 / fps)
        assumed = f"numbered pictures have no frame rate: {fps} a second are assumed (see --fps)"
        return [assumed] if self._pictures.assumed else []

    def read(self, indices: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for each of `indices`, in order; UnusableError for one that cannot be decoded."""
        for index in sorted(indices):
            yield index, self._decode(index)

    def stream(self, run: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for the frames of a run that decode, in order."""
        for index in run:
            with contextlib.suppress(UnusableError):
                yield index, self._decode(index)

    def _decode(self, index: int) -> VideoFrame:
        with _decoding(f"frame {index}"):
            if isinstance(self._pictures, Path):
                image, transparent = _flatten(self._seek(self._pictures, index))
            else:
                with _open_picture(self._pictures.files[index]) as picture:
                    image, transparent = _flatten(picture)
        if transparent and not self.warnings:
            self.warnings.append("what is transparent in the clip is shown on white")
        return VideoFrame.from_ndarray(np.asarray(image), format="rgb24")

    def _seek(self, file: Path, index: int) -> ImageFile:
        """Go to a frame of the animation: on from the last one, or anew from the first."""
        if self._animation is None or self._animation.tell() > index:
            self.close()
            with file.open("rb") as opened:
                kind = GifImageFile if opened.read(3) == b"GIF" else WebPImageFile
            self._animation = kind(file)  # not Image.open, which prints a warning for a large picture
        self._animation.seek(index)
        return self._animation


@contextlib.contextmanager
def _decoding(what: str) -> Generator[None]:
    """Turn what Pillow raises for damaged data, which is of many kinds, into an UnusableError."""
    try:
        yield
    except UnusableError:
        raise
    except Exception as error:
        if shortage_of(error):
            raise
        raise UnusableError(f"cannot be decoded at {what} ({error}); {AGAIN}") from error


def _check_pictures(pictures: NumberedPictures) -> None:
    """Check that the pictures are two or more, whole, of one size, and of a kind that can be shown."""
    sizes: dict[str, str] = {}
    for file in pictures.files:
        with _open_picture(file) as picture:
            sizes.setdefault(f"{picture.width}x{picture.height}", repr(file.name))
    if len(pictures.files) < 2:
        raise UnusableError(f"is a single picture, no video: {next(iter(sizes.values()))}")
    if len(sizes) > 1:
        said = ", ".join(f"{name} is {size}" for size, name in sizes.items())
        raise UnusableError(f"has pictures of different sizes: {said}; scale them to one size")


@contextlib.contextmanager
def _open_picture(file: Path) -> Generator[ImageFile]:
    """Open one of numbered pictures, and check its kind, end and size. Decodes nothing."""
    with file.open("rb") as opened, _decoding(repr(file.name)):
        head = opened.read(4)
        if not (found := _KINDS.get(head) or _KINDS.get(head[:2])):
            raise UnusableError(f"has a picture that is no PNG and no JPEG: {file.name!r}")
        kind, end = found
        opened.seek(max(file.stat().st_size - 64, 0))
        if end not in opened.read():
            raise UnusableError(f"has a truncated picture, {file.name!r}; {AGAIN}")
        opened.seek(0)
        picture = kind(opened)
        width, height = picture.size
        if not 0 < width * height <= MAX_PIXELS:
            raise UnusableError(
                f"has a picture of {width}x{height}, {file.name!r}; at most {MAX_PIXELS} pixels are read"
            )
        if picture.mode not in _MODES or getattr(picture, "n_frames", 1) > 1:
            raise UnusableError(
                f"has a picture that is animated, or not of 8 bits: {file.name!r}; save it as 8-bit RGB"
            )
        yield picture


def _flatten(picture: Image.Image) -> tuple[Image.Image, bool]:
    """Return the picture in RGB, where what is transparent shows white, and whether anything is."""
    if not picture.has_transparency_data:
        return picture.convert("RGB"), False
    coloured = picture.convert("RGBA")
    flat = Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)
    return flat.convert("RGB"), bool(np.asarray(coloured.getchannel("A")).min() < 255)


def _read_times(path: Path) -> NDArray[np.int64]:
    """Return how long each frame of a GIF or WebP is to be shown, in milliseconds. Decodes nothing.

    UnusableError for a still picture, a file that is cut, and one beyond the limits.
    """
    if (size_bytes := path.stat().st_size) > MOST_BYTES:
        raise UnusableError(f"has {size_bytes} bytes; an animated picture may have {MOST_BYTES}: {_CONVERT}")
    data, times = path.read_bytes(), list[int]()
    try:
        if data.startswith(b"GIF8"):
            width, height = struct.unpack_from("<2H", data, 6)
            walk = _walk_gif(data, width, height)
        elif data[12:16] == b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
            walk = _walk_webp(data)
        else:
            raise UnusableError(_STILL)
        if not 0 < width * height <= MAX_PIXELS:
            raise UnusableError(f"is {width}x{height}; allowed are 1 to {MAX_PIXELS} pixels (7680x4320): {_CONVERT}")
        most = min(MOST_FRAMES, MOST_ANIMATED_PIXELS // (width * height))
        for milliseconds in walk:
            times.append(milliseconds)
            if len(times) > most:
                raise UnusableError(
                    f"holds more than {most} frames of {width}x{height}, the most that are read; {_CONVERT}"
                )
    except (IndexError, struct.error):
        raise UnusableError(f"ends after frame {len(times)}; the file is truncated: {AGAIN}") from None
    if len(times) < 2:
        raise UnusableError(_STILL)
    return np.array(times, np.int64)


def _walk_gif(data: bytes, width: int, height: int) -> Iterator[int]:
    """Yield the time of each frame, up to the mark of the file's end. IndexError if the file is cut."""
    at, hundredths = 13 + _count_colours(data[10]), 0
    while data[at] != 0x3B:
        is_frame = data[at] == 0x2C
        if is_frame:
            left, top, columns, rows, flags = struct.unpack_from("<4HB", data, at + 1)
            if left + columns > width or top + rows > height:
                raise UnusableError(f"has a frame that is larger than the picture ({width}x{height}); {AGAIN}")
            at += 11 + _count_colours(flags)
        elif data[at] == 0x21:
            if data[at + 1] == 0xF9:  # what is said of the next frame
                hundredths = data[at + 4] + 256 * data[at + 5]
            at += 2
        else:
            raise UnusableError(f"is damaged at byte {at}; {AGAIN}")
        while data[at]:  # blocks of data, up to an empty one
            at += data[at] + 1
        at += 1
        if is_frame:
            yield 10 * hundredths
            hundredths = 0


def _count_colours(flags: int) -> int:
    """Return how many bytes a GIF's colours take."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _walk_webp(data: bytes) -> Iterator[int]:
    """Yield the time of each frame. IndexError if the file is cut."""
    at, end = 12, 8 + int.from_bytes(data[4:8], "little")
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        body, at = at + 8, at + 8 + length + length % 2
        if at > len(data) + length % 2:
            raise IndexError
        if kind == b"ANMF":
            yield int.from_bytes(data[body + 12 : body + 15], "little")
