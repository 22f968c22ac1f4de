"""Reads frames from pictures: an animated GIF or WebP, or numbered pictures. Has the methods of `Reader`.

FFmpeg decodes no animated WebP, so Pillow decodes all of them. What is transparent is shown on white, as the reference
reader of the model does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from av.video.frame import VideoFrame
from PIL import Image
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from vrt_lite.clip_files import NumberedPictures
from vrt_lite.disk import file_sha256
from vrt_lite.shortage import shortage_of
from vrt_lite.video.animation_index import index_animation
from vrt_lite.video.container import AGAIN, MAX_PIXELS, Timeline, UnusableError

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_BACKGROUND: Final = (255, 255, 255, 255)
_MODES: Final = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
_KINDS: Final = ((PngImageFile, b"\x89PNG", b"IEND\xaeB`\x82"), (JpegImageFile, b"\xff\xd8", b"\xff\xd9"))
"""The kinds of numbered pictures, what a file of each begins with, and what it has among its last bytes."""
_LAST_BYTES: Final = 64


class PictureReader:
    """One clip of pictures. Only one picture is held at a time, and in an animation what the next one builds on."""

    pixel_aspect = Fraction(1)

    def __init__(self, pictures: NumberedPictures | Path) -> None:
        """Take numbered pictures, or the file of an animation."""
        self._pictures = pictures if isinstance(pictures, NumberedPictures) else None
        self.files = pictures.files if isinstance(pictures, NumberedPictures) else (pictures,)
        self.declared_fps = float(self._pictures.fps) if self._pictures else 0.0
        self.warnings: list[str] = []
        self._animation: ImageFile | None = None

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        if self._animation:
            self._animation.close()
        self._animation = None

    def name(self, given: Path) -> Path:
        """Return the clip's path: as it was given, but for a folder the pattern of its pictures."""
        return self._pictures.path if self._pictures else given

    def digest(self) -> str:
        """Return the content's sha256, in hexadecimal."""
        return self._pictures.digest() if self._pictures else file_sha256(self.files[0])

    def scan(self) -> Timeline:
        """Read the headers of all pictures, or an animation's blocks. UnusableError if something is wrong with one."""
        if self._pictures:
            _check_pictures(self.files)
            ticks, time_base = range(len(self.files)), 1 / self._pictures.fps
            keys = range(len(self.files))
        else:
            index = index_animation(self.files[0])
            ticks, time_base, keys = index.ticks(), index.time_base, range(1)
        order = np.arange(len(ticks), dtype=np.int64)
        self.timeline = Timeline(np.array(ticks, np.int64), np.array(keys, np.int64), order, time_base)
        return self.timeline

    def list_opening_warnings(self) -> list[str]:
        """Return what a user should know of the clip, one line each."""
        if self._pictures and self._pictures.assumed:
            return [f"numbered pictures have no frame rate: {self._pictures.fps} a second are assumed (see --fps)"]
        return []

    def read(self, indices: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for each of `indices`, in order; UnusableError for one that cannot be decoded."""
        for index in sorted(set(indices)):
            yield index, self._decode(index)

    def again(self) -> PictureReader:
        """Open the pictures once more: another thread may decode there."""
        other = PictureReader(self._pictures or self.files[0])
        other.timeline = self.timeline
        return other

    def stream(self, run: range) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for the frames of a run in order. Those that do not decode are left out."""
        for index in run:
            with contextlib.suppress(UnusableError):
                yield index, self._decode(index)

    def _decode(self, index: int) -> VideoFrame:
        with _decoding(f"frame {index}"):
            if self._pictures:
                with _open_picture(self.files[index]) as picture:
                    image, transparent = _flatten(picture)
            else:
                image, transparent = _flatten(self._seek(index))
        if transparent and not self.warnings:
            self.warnings.append("what is transparent in the clip is shown on white")
        return VideoFrame.from_ndarray(np.asarray(image), format="rgb24")

    def _seek(self, index: int) -> ImageFile:
        """Go to a frame of the animation: on from the last one, or anew from the first."""
        if self._animation is None or self._animation.tell() > index:
            self.close()
            with self.files[0].open("rb") as file:
                kind = GifImageFile if file.read(3) == b"GIF" else WebPImageFile
            self._animation = kind(self.files[0])  # not Image.open, which prints a warning for a large picture
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
        if shortage_of(error) or isinstance(error, MemoryError):
            raise
        raise UnusableError(f"cannot be decoded at {what} ({error}); {AGAIN}") from error


@contextlib.contextmanager
def _open_picture(file: Path) -> Generator[ImageFile]:
    """Open one of numbered pictures, and check its kind, end and size. Decodes nothing."""
    with file.open("rb") as opened, _decoding(repr(file.name)):
        head = opened.read(4)
        found = next(((kind, end) for kind, start, end in _KINDS if head.startswith(start)), None)
        if found is None:
            raise UnusableError(f"has a picture that is no PNG and no JPEG: {file.name!r}")
        kind, end = found
        opened.seek(max(file.stat().st_size - _LAST_BYTES, 0))
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


def _check_pictures(files: tuple[Path, ...]) -> None:
    """Check that the pictures are two or more, whole, of one size, and of a kind that can be shown."""
    first, *others = files
    if not others:
        raise UnusableError(f"is a single picture, no video: {first.name!r}")
    with _open_picture(first) as picture:
        width, height = picture.size
    for file in others:
        with _open_picture(file) as picture:
            if picture.size != (width, height):
                sizes = f"{first.name!r} is {width}x{height}, {file.name!r} {picture.width}x{picture.height}"
                raise UnusableError(f"has pictures of different sizes: {sizes}; scale them to one size")


def _flatten(picture: Image.Image) -> tuple[Image.Image, bool]:
    """Return the picture in RGB, where what is transparent shows the background, and whether anything is."""
    if not picture.has_transparency_data:
        return picture.convert("RGB"), False
    coloured = picture.convert("RGBA")
    flat = Image.alpha_composite(Image.new("RGBA", coloured.size, _BACKGROUND), coloured)
    return flat.convert("RGB"), bool(np.asarray(coloured.getchannel("A")).min() < 255)
