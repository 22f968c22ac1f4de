"""Reads frames from pictures: an animated GIF or WebP, or numbered pictures. Has the methods of `Reader`.

FFmpeg decodes no animated WebP, so Pillow decodes all of them. What is transparent is shown on white, as the reference
reader of the model does.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Generator, Iterable
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
from av.video.frame import VideoFrame
from PIL import Image

from vrt_lite.clip_files import MOST_PICTURES
from vrt_lite.shortage import shortage_of
from vrt_lite.video.frame_source import (
    AGAIN,
    MAX_PIXELS,
    Frames,
    FrameSource,
    UnusableError,
    count_missing_bytes,
)

_SILENCING: Final = Lock()
"""Warning filters belong to the process: of two threads that change them, one would restore what the other had set."""
MOST_ANIMATED_PIXELS: Final = 4_000_000_000
"""Frames times width times height: the pictures build on each other, so that all before a frame are decoded for it."""
_SHORTEST_MILLISECONDS: Final = 10
"""A frame that is to be shown so long or shorter is shown for 100 ms, as browsers do."""


class PictureReader(FrameSource):
    """One clip of pictures. Only one picture is held at a time, and in an animation what the next one builds on."""

    def scan(self) -> None:
        """Find the times; those of an animation are told by decoding all of it, without converting any picture.

        UnusableError for a still picture, and an animation that is damaged, cut or beyond the limits.
        """
        file, fps = self.clip.files[0], self.clip.fps
        if (count_missing_bytes(file) or 0) > 0:
            raise UnusableError(f"is truncated; {AGAIN}")
        with self._open(file) as picture:
            self._size = width, height = picture.size
            frames = len(self.clip.files) if fps else getattr(picture, "n_frames", 1)
            if frames < 2:
                raise UnusableError(
                    "is a still picture, no video; give a video, an animated GIF or WebP, or more pictures"
                )
            if fps:
                self.ticks = self.starts = np.arange(frames)
                self.time_base = 1 / fps
                if self.clip.assumed:
                    self.notes["rate"] = f"numbered pictures have no frame rate: {fps} a second are assumed (see --fps)"
                return
            if frames > (most := min(MOST_PICTURES, MOST_ANIMATED_PIXELS // (width * height))):
                raise UnusableError(
                    f"holds more than {most} frames of {width}x{height}, the most that are read; make a video of it, "
                    "e.g. ffmpeg -i IN OUT.mp4"
                )
            written = np.array([self._seek(picture, index).info.get("duration", 0) for index in range(frames)], "i8")
        shown = np.where(written > _SHORTEST_MILLISECONDS, written, 100)
        self.ticks, self.starts, self.time_base = shown.cumsum() - shown, np.zeros(1, np.int64), Fraction(1, 1000)

    def read(self, indices: Iterable[int]) -> Frames:
        """Yield (index, frame) for each of `indices`, in order; UnusableError for one that cannot be decoded."""
        files = self.clip.files
        for file, group in itertools.groupby(sorted(indices), lambda index: files[index if self.clip.fps else 0]):
            with self._open(file) as picture:
                for index in group:
                    yield index, self._convert(self._seek(picture, 0 if self.clip.fps else index))

    decode = read

    def _seek(self, picture: Image.Image, index: int) -> Image.Image:
        """Decode a picture of a file, and return it. ValueError if it is larger or smaller than the first."""
        picture.seek(index)
        picture.load()
        if picture.size != self._size:
            raise ValueError(f"its size is {picture.size}, that of the first {self._size}")
        return picture

    @contextlib.contextmanager
    def _open(self, file: Path) -> Generator[Image.Image]:
        """Open a picture; what Pillow raises for damaged data, which is of many kinds, becomes an UnusableError."""
        try:
            with _SILENCING, warnings.catch_warnings(action="ignore"):  # of a large picture, which is refused
                opened = Image.open(file, formats=("PNG", "JPEG") if self.clip.fps else ("GIF", "WEBP", "PNG"))
            with opened as picture:
                width, height = picture.size
                if not 0 < width * height <= MAX_PIXELS:
                    raise ValueError(f"it is {width}x{height}; allowed are 1 to {MAX_PIXELS} pixels")
                if self.clip.fps and (picture.mode.startswith("I") or getattr(picture, "n_frames", 1) > 1):
                    raise ValueError("it is animated, or not of 8 bits; save it as 8-bit RGB")
                yield picture
        except Exception as error:
            if isinstance(error, UnusableError) or shortage_of(error):
                raise
            raise UnusableError(f"cannot be decoded at {file.name!r} ({error}); {AGAIN}") from error

    def _convert(self, picture: Image.Image) -> VideoFrame:
        """Return the picture as a frame in RGB, where what is transparent shows white."""
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            if np.asarray(picture.getchannel("A")).min() < 255:
                self.notes["transparent"] = "what is transparent in the clip is shown on white"
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        return VideoFrame.from_ndarray(np.asarray(picture.convert("RGB")), format="rgb24")
