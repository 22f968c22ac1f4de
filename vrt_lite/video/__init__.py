"""Reads exact frames from videos and pictures. Only this package uses PyAV.

    open_clip -> Clip.info, Clip.frames

A video file is opened in three steps, each of which may refuse it. Is it a regular file and one of four containers? How
many frames are there, and are they complete (from packet headers, without decoding)? Does a first frame decode, and to
which colours? Then `Clip.frames` decodes from the keyframe before a frame up to that frame. The cost depends on the
frames shown, not on the clip's length. `picture_reader` reads animated and numbered pictures in the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, cast

import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from vrt_lite.errors import VideoError
from vrt_lite.shortage import ThreadPool, shortage_of
from vrt_lite.video.container import AGAIN, Timeline, UnusableError, measure_extent, regular_file
from vrt_lite.video.frame_conversion import Conversion, Orientation, find_conversion
from vrt_lite.video.planes import PlaneReader, Planes
from vrt_lite.video.reader import Reader

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
    reader = None
    try:
        reader = _open_reader(Path(path))
        return _examine(Path(path), reader)
    except BaseException as error:
        if reader:
            reader.close()
        if short := shortage_of(error):
            raise short from error
        if isinstance(error, UnusableError):
            raise VideoError(path, str(error)) from None
        if isinstance(error, FFmpegError | OSError):
            raise VideoError(path, f"cannot be read: {error.strerror}") from None
        raise


def _open_reader(path: Path) -> Reader | PictureReader:
    """Open what reads a clip. Few clips are pictures, so what reads these is imported when it is needed."""
    pictures = None
    if not os.path.isfile(path):  # noqa: PTH113 - it raises nothing
        from vrt_lite.clip_files import find_pictures  # noqa: PLC0415

        pictures = find_pictures(path)
    file = pictures or regular_file(path)
    if isinstance(file, Path) and not _is_picture(file):
        extent = measure_extent(file)
        if not extent.indexed:
            raise UnusableError(f"has no whole index (moov box): it is truncated or was never finished; {AGAIN}")
        return Reader(file, extent)
    from vrt_lite.video.picture_reader import PictureReader  # noqa: PLC0415

    return PictureReader(file)


def _is_picture(file: Path) -> bool:
    """Whether a file is a GIF, WebP or PNG, animated or not."""
    with file.open("rb") as opened:
        head = opened.read(12)
    return head.startswith((b"GIF8", b"\x89PNG")) or (head[:4], head[8:]) == (b"RIFF", b"WEBP")


def _examine(path: Path, reader: Reader | PictureReader) -> Clip:
    """The checks between an open clip and a usable one, cheapest first."""
    with ThreadPool(1) as pool:  # hashing and demuxing keep one core busy each
        digest = pool.submit(reader.digest)
        timeline = reader.scan()
        sha256 = digest.result()
    warnings = _check_complete(timeline, reader) if isinstance(reader, Reader) else reader.list_opening_warnings()
    frames = len(timeline.order)
    if not frames:
        raise UnusableError(f"holds no video frames; {AGAIN}")
    first = next(frame for _, frame in reader.read({0}))
    conversion = find_conversion(first, reader.pixel_aspect)
    fps, duration_seconds = timeline.rate(reader.declared_fps)
    if duration_seconds < 1:
        warnings.append(f"the clip is under a second long ({duration_seconds:.2f} s, {frames} frames)")
    if conversion.transfer != "sdr":
        warnings.append(f"the clip is HDR ({conversion.transfer.upper()}) and is tone-mapped to SDR")
    info = ClipInfo(
        path=path if isinstance(reader, Reader) else reader.name(path),
        sha256=sha256,
        size_bytes=sum(file.stat().st_size for file in reader.files),
        width=conversion.width,
        height=conversion.height,
        fps=fps,
        duration_seconds=duration_seconds,
        frames=frames,
        variable_rate=timeline.is_variable(),
        dynamic_range=conversion.transfer,
        warnings=tuple(warnings),
        open_ended=isinstance(reader, Reader) and _is_open_ended(reader),
    )
    return Clip(info, reader, conversion, first)


def _check_complete(timeline: Timeline, reader: Reader) -> list[str]:
    """Warnings about the end of the file; UnusableError if video is missing there. Missing audio does not matter."""
    extent, packets = reader.extent, len(timeline.stamps)
    expected = reader.expected_packets
    short = timeline.torn or bool(timeline.stopped) or packets < expected
    if extent.cuts_media and not short:
        # Bytes are missing. All video is there only if something in the file says how much there was.
        listed = expected > 0 and not extent.fragmented
        short = not (listed or timeline.fills(reader.written_seconds))
    whole = packets - timeline.torn
    if short:
        cause = timeline.stopped or "the file is truncated"
        if extent.missing_bytes:
            cause = f"the file is truncated (bytes missing: {extent.missing_bytes})"
        total = f" of {expected}" if expected > whole else ""
        raise UnusableError(f"ends after frame {whole}{total}; {cause}: {AGAIN}")
    if extent.missing_bytes:
        return [f"bytes missing at the end of the file: {extent.missing_bytes}; every video frame is there"]
    if _is_open_ended(reader):
        return ["the file does not say how long it is, so a missing end would go unnoticed"]
    return []


def _is_open_ended(reader: Reader) -> bool:
    return reader.extent.open_ended and (reader.extent.fragmented or not reader.expected_packets)


class Clip:
    """An open video. Only shown frames stay in memory, at the size at which they were shown.

    For one thread at a time; two clips may be read by two threads, decoding runs outside the GIL.
    """

    def __init__(
        self, info: ClipInfo, reader: Reader | PictureReader, conversion: Conversion, first: VideoFrame
    ) -> None:
        self.info = info
        self.ticks = reader.timeline.ticks
        self.decode_seconds = 0.0
        self.resize_seconds = 0.0
        self._reader = reader
        self._conversion = conversion
        self._decoded = {0: first}  # until it is shown
        self._shown: dict[tuple[int, tuple[int, int]], NDArray[np.uint8]] = {}
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
        self._decoded.clear()
        self._shown.clear()

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line each: those from opening, then those from decoding so far."""
        return (*self.info.warnings, *self._reader.warnings)

    def seconds(self, index: int) -> float:
        """When frame `index` is shown, counted from the first frame."""
        return self._reader.timeline.seconds(index)

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
        try:
            for index in missing & self._decoded.keys():
                missing.remove(index)
                self._show(index, self._decoded.pop(index), size)
            for index, frame in self._reader.read(missing):
                self._show(index, frame, size)
        except (UnusableError, FFmpegError) as error:
            if short := shortage_of(error):
                raise short from error
            raise VideoError(self.info.path, str(error)) from None
        resized_seconds = self.resize_seconds - resized_before
        self.decode_seconds += time.perf_counter() - started - resized_seconds
        return {index: self._shown[index, size] for index in ordered}

    def planes(self, runs: Iterable[range]) -> Iterator[tuple[int, Planes]]:
        """Yield (index, planes) for every frame of some runs, in order. Do not keep many: they hold decoded frames.

        A second reader decodes them, so that another thread may do it. What does not decode is left out.
        """
        reader = self._reader.again()
        taken = PlaneReader(self._conversion, self._stored_size)
        try:
            for index, frame in (found for run in runs for found in reader.stream(run)):
                yield index, taken.read(frame)
        except (UnusableError, FFmpegError) as error:
            if short := shortage_of(error):
                raise short from error
        finally:
            reader.close()

    def key_before(self, index: int) -> int:
        """Return the last frame up to this one where decoding can start."""
        timeline = self._reader.timeline
        return min(timeline.index_of(int(timeline.keys[timeline.key_slot(int(timeline.order[index]))])), index)

    @property
    def orientation(self) -> Orientation:
        """How stored pixels are turned to be shown."""
        return self._conversion.orientation

    def _show(self, index: int, frame: VideoFrame, size: tuple[int, int]) -> None:
        """Convert and keep one frame. Matrix and range are as tagged.

        Without tags they are BT.601 and limited range, whatever the picture's size. OpenCV and imageio write RGB frames
        in this way, without tags, and the reference reader decodes them so. It is swscale's default.
        """
        started = time.perf_counter()
        layout = "rgb48le" if self._conversion.wide_gamut else "rgb24"
        try:
            stored = self._converter.reformat(frame, format=layout, interpolation=EXACT).to_ndarray()
        except FFmpegError as error:
            if shortage_of(error):
                raise
            raise UnusableError(
                f"has a pixel format or colour matrix that cannot be converted ({frame.format.name}, "
                f"matrix {frame.colorspace}); convert it first, e.g. ffmpeg -i IN -pix_fmt yuv420p OUT.mp4"
            ) from None
        pixels = self._conversion.convert(cast("NDArray[np.uint8] | NDArray[np.uint16]", stored), size)
        pixels.setflags(write=False)
        self._shown[index, size] = pixels
        self.resize_seconds += time.perf_counter() - started
