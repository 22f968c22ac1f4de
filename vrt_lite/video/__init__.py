"""Reads exact frames from videos and pictures. Only this package uses PyAV.

    open_clip -> Clip.info, Clip.frames

A video file is opened in three steps, each of which may refuse it. Is it a regular file and one of four containers? How
many frames are there, and are they complete (from packet headers, without decoding)? Does a first frame decode, and to
which colours? Then `Clip.frames` decodes from the keyframe before a frame up to that frame. The cost depends on the
frames shown, not on the clip's length. `picture_reader` reads animated and numbered pictures in the same way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from vrt_lite.clip_files import find_files
from vrt_lite.errors import VideoError
from vrt_lite.shortage import shortage_of
from vrt_lite.video.frame_conversion import Conversion, Planes, find_conversion
from vrt_lite.video.frame_source import AGAIN, Pixels, Size, Transfer, UnusableError, is_picture
from vrt_lite.video.picture_reader import PictureReader
from vrt_lite.video.reader import Reader


@dataclass(frozen=True)
class ClipInfo:
    """What is known once a clip is open. Width and height are as displayed: turned, with square pixels.

    fps comes from the timestamps ((frames - 1) / (last - first)); the declared rate is used only for a
    clip of one frame. duration_seconds is last - first + one mean interval. open_ended: the file does not say how long
    it is, so that a missing end goes unnoticed.
    """

    path: Path
    sha256: str
    size_bytes: int
    width: int
    height: int
    fps: float
    duration_seconds: float
    frames: int
    variable_rate: bool
    dynamic_range: Transfer
    open_ended: bool


def open_clip(path: Path | str) -> Clip:
    """Open, measure and check a clip: a video file, an animated GIF or WebP, or numbered pictures.

    Raises VideoError, with one line, for what cannot be used.
    """
    with _video_errors(path):
        found = find_files(Path(path))
        if not (size_bytes := sum(file.stat().st_size for file in found.files)):
            raise UnusableError(f"is empty; {AGAIN}")
        reader = (PictureReader if found.fps or is_picture(found.files[0]) else Reader)(found)
        with reader.opened:
            reader.scan()
            first = next(frame for _, frame in reader.read([0]))
            conversion = find_conversion(first, reader.pixel_aspect)
            steps, frames = reader.ticks - reader.ticks[0], len(reader.ticks)
            span_seconds = float(int(steps[-1]) * reader.time_base)
            fps = (frames - 1) / span_seconds if span_seconds > 0 else reader.declared_fps
            duration_seconds = span_seconds + 1 / fps
            if duration_seconds < 1:
                reader.notes["short"] = f"the clip is under a second long ({duration_seconds:.2f} s, {frames} frames)"
            if conversion.transfer != "sdr":
                reader.notes["hdr"] = f"the clip is HDR ({conversion.transfer.upper()}) and is tone-mapped to SDR"
            info = ClipInfo(
                path=found.path,
                sha256=found.digest(),
                size_bytes=size_bytes,
                width=conversion.width,
                height=conversion.height,
                fps=fps,
                duration_seconds=duration_seconds,
                frames=frames,
                # More than one tick away from an even grid, which is more than rounding.
                variable_rate=float(np.max(np.abs(steps - np.linspace(0.0, float(steps[-1]), frames)))) > 1.1,
                dynamic_range=conversion.transfer,
                open_ended=reader.open_ended,
            )
            reader.check_unchanged()
            reader.opened = reader.opened.pop_all()
            return Clip(info, reader, conversion, first)


@contextlib.contextmanager
def _video_errors(path: Path | str) -> Generator[None]:
    """Turn what is wrong with a clip into a VideoError, unless a shortage of this machine is behind it."""
    try:
        yield
    except (UnusableError, FFmpegError, OSError) as error:
        if short := shortage_of(error.__cause__ or error):
            raise short from error
        reason = f"cannot be read or converted ({getattr(error, 'strerror', None)}): {AGAIN}, or convert it"
        raise VideoError(path, str(error) if isinstance(error, UnusableError) else reason) from None


class Clip:
    """An open video. Only shown frames stay in memory, at the size at which they were shown.

    For one thread at a time; two clips may be read by two threads, decoding runs outside the GIL.
    """

    def __init__(
        self, info: ClipInfo, reader: Reader | PictureReader, conversion: Conversion, first: VideoFrame
    ) -> None:
        self.info = info
        self.ticks = reader.ticks
        self.turn = conversion.turn
        self.decode_seconds = self.resize_seconds = 0.0
        self._reader = reader
        self._conversion = conversion
        self._first = first
        self._converter = VideoReformatter()
        self._shown: dict[tuple[int, Size], Pixels] = {}
        self._kept_in_passing: tuple[frozenset[int], Size] = frozenset(), (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and drop all frames. Arrays already returned stay valid."""
        self._reader.opened.close()
        self._shown.clear()

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line each: those from opening, and those from decoding so far."""
        return tuple(self._reader.notes.values())

    def seconds(self, index: int) -> float:
        """When a frame is shown, counted from the first."""
        return float((int(self.ticks[index]) - int(self.ticks[0])) * self._reader.time_base)

    def key_before(self, index: int) -> int:
        """Return the last frame up to this one where decoding can start."""
        starts = self._reader.starts
        return int(starts[starts.searchsorted(index, side="right") - 1])

    def frames(self, indices: Iterable[int], *, size: Size) -> dict[int, Pixels]:
        """Frames by 0-based presentation index, as read-only RGB arrays (height, width, 3) of `size` =
        (width, height): one bicubic, antialiased resize (Pillow) of the stored pixels.

        Raises ValueError for an index that does not exist, VideoError when the clip is too damaged.
        """
        ordered = sorted(set(indices))
        if ordered and not 0 <= ordered[0] <= ordered[-1] < self.info.frames:
            raise ValueError(f"frames {ordered[0]}..{ordered[-1]}: allowed are 0..{self.info.frames - 1}")
        missing = {index for index in ordered if (index, size) not in self._shown}
        first = [(0, self._first)] if 0 in missing else []
        asked = time.perf_counter()
        with _video_errors(self.info.path):
            for index, frame in chain(first, self._reader.read(missing - {0})):
                decoded = time.perf_counter()
                self._shown[index, size] = self._conversion.convert(frame, size, self._converter)
                self.decode_seconds += decoded - asked
                asked = time.perf_counter()
                self.resize_seconds += asked - decoded
        return {index: self._shown[index, size] for index in ordered}

    def keep_in_passing(self, indices: Iterable[int], *, size: Size) -> None:
        """Let the next `planes` keep these frames for `frames`, so that they are decoded once."""
        self._kept_in_passing = frozenset(indices), size

    def planes(self, runs: Iterable[range]) -> Iterator[tuple[int, Planes]]:
        """Yield (index, planes) for every frame of some runs, in order. Do not keep many: they hold decoded frames.

        A second reader decodes them, so that another thread may do it. What does not decode is left out.
        VideoError if the clip is not there any more, or was replaced.
        """
        (kept, size), converter = self._kept_in_passing, VideoReformatter()
        passed = dict[tuple[int, Size], Pixels]()
        with _video_errors(self.info.path), self._reader.again() as reader:
            with contextlib.suppress(VideoError), _video_errors(self.info.path):
                for index, frame in chain.from_iterable(map(reader.decode, runs)):
                    if index in kept:
                        passed[index, size] = self._conversion.convert(frame, size, converter)
                    yield index, self._conversion.read_planes(frame, converter)
            if reader.notes.keys() <= self._reader.notes.keys():  # of a damaged clip `frames` chooses and tells
                self._shown |= passed
