"""Reads exact frames from videos and pictures. Only this package uses PyAV.

    open_clip -> Clip.info, Clip.frames

A video file is opened in three steps, each of which may refuse it. Is it a regular file and one of four containers? How
many frames are there, and are they complete (from packet headers, without decoding)? Does a first frame decode, and to
which colours? Then `Clip.frames` decodes from the keyframe before a frame up to that frame. The cost depends on the
frames shown, not on the clip's length. `picture_reader` reads animated and numbered pictures in the same way.
"""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from vrt_lite.clip_files import find_pictures
from vrt_lite.disk import file_sha256
from vrt_lite.errors import MissingClipError, VideoError
from vrt_lite.shortage import ThreadPool, shortage_of
from vrt_lite.video.frame_conversion import Conversion, find_conversion
from vrt_lite.video.planes import Planes, read_planes
from vrt_lite.video.reader import Reader
from vrt_lite.video.timeline import UnusableError

if TYPE_CHECKING:
    from vrt_lite.video.picture_reader import PictureReader

# swscale's default for 4:2:0 is a table-driven path that is off by up to two levels; this is exact.
EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT


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
    dynamic_range: Literal["sdr", "pq", "hlg"]
    warnings: tuple[str, ...]
    open_ended: bool = False


def open_clip(path: Path | str) -> Clip:
    """Open, measure and check a clip: a video file, an animated GIF or WebP, or numbered pictures.

    Raises VideoError, with one line, for what cannot be used.
    """
    with contextlib.ExitStack() as stack, _video_errors(path):
        pictures = find_pictures(Path(path))
        files = pictures.files if pictures else (_check_file(path),)
        reader: Reader | PictureReader
        if pictures or _is_picture(files[0]):
            from vrt_lite.video.picture_reader import PictureReader  # noqa: PLC0415 - few clips are pictures

            reader = PictureReader(pictures or files[0])
        else:
            reader = Reader(files[0])
        stack.callback(reader.close)
        with ThreadPool(1) as pool:  # hashing and demuxing keep one core busy each
            digest = pool.submit(pictures.digest) if pictures else pool.submit(file_sha256, files[0])
            warnings = reader.scan()
        timeline = reader.timeline
        first = next(frame for _, frame in reader.read([0]))
        conversion = find_conversion(first, reader.pixel_aspect)
        fps, duration_seconds = timeline.rate(reader.declared_fps)
        if duration_seconds < 1:
            warnings.append(f"the clip is under a second long ({duration_seconds:.2f} s, {len(timeline.order)} frames)")
        if conversion.transfer != "sdr":
            warnings.append(f"the clip is HDR ({conversion.transfer.upper()}) and is tone-mapped to SDR")
        info = ClipInfo(
            path=pictures.path if pictures else Path(path),
            sha256=digest.result(),
            size_bytes=sum(file.stat().st_size for file in files),
            width=conversion.width,
            height=conversion.height,
            fps=fps,
            duration_seconds=duration_seconds,
            frames=len(timeline.order),
            variable_rate=timeline.is_variable(),
            dynamic_range=conversion.transfer,
            warnings=tuple(warnings),
            open_ended=reader.open_ended,
        )
        stack.pop_all()
        return Clip(info, reader, conversion, first)


@contextlib.contextmanager
def _video_errors(path: Path | str) -> Generator[None]:
    """Turn what is wrong with a clip into a VideoError, unless a shortage of this machine is behind it."""
    try:
        yield
    except (UnusableError, FFmpegError, OSError) as error:
        if short := shortage_of(error.__cause__ or error):
            raise short from error
        reason = str(error) if isinstance(error, UnusableError) else f"cannot be read: {error.strerror}"
        raise VideoError(path, reason) from None


def _check_file(path: Path | str) -> Path:
    """Check that a path is a plain file, before it is opened: a FIFO would block for ever. Returns it, absolute."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        if ":/" in str(path)[2:]:  # not C:/
            raise UnusableError("looks like a URL, and URLs are never opened; download it first") from None
        reason = f"cannot be opened: {getattr(error, 'strerror', None) or 'not a possible file name'}"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise MissingClipError(path, reason) from None
        raise UnusableError(reason) from None
    if not stat.S_ISREG(status.st_mode):
        raise UnusableError("is not a regular file; give the path of one video file")
    if not status.st_size:
        raise UnusableError("is empty; copy or download it again")
    return Path(path).absolute()


def _is_picture(file: Path) -> bool:
    """Whether a file is a GIF, WebP or PNG, animated or not."""
    with file.open("rb") as opened:
        head = opened.read(12)
    return head.startswith((b"GIF8", b"\x89PNG")) or (head[:4], head[8:]) == (b"RIFF", b"WEBP")


class Clip:
    """An open video. Only shown frames stay in memory, at the size at which they were shown.

    For one thread at a time; two clips may be read by two threads, decoding runs outside the GIL.
    """

    def __init__(
        self, info: ClipInfo, reader: Reader | PictureReader, conversion: Conversion, first: VideoFrame
    ) -> None:
        self.info = info
        self.ticks = reader.timeline.ticks
        self.seconds = reader.timeline.seconds
        self.key_before = reader.timeline.key_before
        self.orientation = conversion.orientation
        self.decode_seconds = 0.0
        self.resize_seconds = 0.0
        self._reader = reader
        self._conversion = conversion
        self._first: VideoFrame | None = first  # until it is shown
        self._shown: dict[tuple[int, tuple[int, int]], NDArray[np.uint8]] = {}
        self._kept_in_passing: tuple[frozenset[int], tuple[int, int]] = frozenset(), (0, 0)
        self._converter = VideoReformatter()
        self._stored_size = first.width, first.height

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and drop all frames. Arrays already returned stay valid."""
        self._reader.close()
        self._first = None
        self._shown.clear()

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line each: those from opening, then those from decoding so far."""
        return (*self.info.warnings, *self._reader.warnings)

    def frames(self, indices: Iterable[int], *, size: tuple[int, int]) -> dict[int, NDArray[np.uint8]]:
        """Frames by 0-based presentation index, as read-only RGB arrays (height, width, 3) of `size` =
        (width, height): one bicubic, antialiased resize (Pillow) of the stored pixels.

        Raises ValueError for an index that does not exist, VideoError when the clip is too damaged.
        """
        ordered = sorted(set(indices))
        if ordered and not 0 <= ordered[0] <= ordered[-1] < self.info.frames:
            raise ValueError(f"frames {ordered[0]}..{ordered[-1]}: allowed are 0..{self.info.frames - 1}")
        missing = {index for index in ordered if (index, size) not in self._shown}
        started, resized_before = time.perf_counter(), self.resize_seconds
        with _video_errors(self.info.path):
            if self._first and 0 in missing:
                missing.remove(0)
                self._show(0, self._first, size)
                self._first = None
            for index, frame in self._reader.read(missing):
                self._show(index, frame, size)
        resized_seconds = self.resize_seconds - resized_before
        self.decode_seconds += time.perf_counter() - started - resized_seconds
        return {index: self._shown[index, size] for index in ordered}

    def keep_in_passing(self, indices: Iterable[int], *, size: tuple[int, int]) -> None:
        """Let the next `planes` keep these frames for `frames`, so that they are decoded once."""
        self._kept_in_passing = frozenset(indices), size

    def planes(self, runs: Iterable[range]) -> Iterator[tuple[int, Planes]]:
        """Yield (index, planes) for every frame of some runs, in order. Do not keep many: they hold decoded frames.

        A second reader decodes them, so that another thread may do it. What does not decode is left out.
        """
        converter, transfer, size = VideoReformatter(), self._conversion.transfer, self._stored_size
        (wanted, shown_size), shown = self._kept_in_passing, dict[tuple[int, tuple[int, int]], NDArray[np.uint8]]()
        unusable = contextlib.suppress(VideoError)
        with unusable, _video_errors(self.info.path), contextlib.closing(self._reader.again()) as reader:
            for index, frame in (found for run in runs for found in reader.stream(run)):
                if index in wanted:
                    with unusable, _video_errors(self.info.path):  # `frames` will say it
                        shown[index, shown_size] = self._convert(frame, shown_size, converter)
                yield index, read_planes(frame, size, transfer=transfer, converter=converter)
            if not reader.warnings:  # of a damaged clip `frames` chooses and warns
                self._shown |= shown

    def _show(self, index: int, frame: VideoFrame, size: tuple[int, int]) -> None:
        """Convert and keep one frame."""
        started = time.perf_counter()
        self._shown[index, size] = self._convert(frame, size, self._converter)
        self.resize_seconds += time.perf_counter() - started

    def _convert(self, frame: VideoFrame, size: tuple[int, int], converter: VideoReformatter) -> NDArray[np.uint8]:
        """Return a frame as it is shown. Matrix and range are as tagged.

        Without tags they are BT.601 and limited range, whatever the picture's size. OpenCV and imageio write RGB frames
        in this way, without tags, and the reference reader decodes them so. It is swscale's default.
        """
        layout = "rgb48le" if self._conversion.wide_gamut else "rgb24"
        try:
            stored = converter.reformat(frame, format=layout, interpolation=EXACT).to_ndarray()
        except FFmpegError as error:
            raise UnusableError(
                f"has a pixel format or colour matrix that cannot be converted ({frame.format.name}, "
                f"matrix {frame.colorspace}); convert it first, e.g. ffmpeg -i IN -pix_fmt yuv420p OUT.mp4"
            ) from error
        pixels = self._conversion.convert(stored, size)
        pixels.setflags(write=False)
        return pixels
