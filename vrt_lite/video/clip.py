"""A clip: opening with all its checks, and frames at the size asked for. Knows colour tags and what makes a
file whole; refuses to know how many frames a judge wants, at which moments, or anything about the other clip.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.reformatter import ColorPrimaries, ColorTrc, Interpolation, VideoReformatter
from numpy.typing import NDArray

from vrt_lite.errors import VideoError
from vrt_lite.video.extent import Extent, measure_extent, regular_file
from vrt_lite.video.picture import Picture, Turn
from vrt_lite.video.reader import AGAIN, Reader
from vrt_lite.video.timeline import Timeline
from vrt_lite.video.tonemap import Transfer

MAX_PIXEL_ASPECT = 16  # a pixel beyond 16:1 is a broken header, not a picture
# swscale's default for 4:2:0 is a table-driven path that is off by up to two levels; this is exact.
EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
_HDR: dict[int, Transfer] = {ColorTrc.SMPTE2084.value: "pq", ColorTrc.ARIB_STD_B67.value: "hlg"}


@dataclass(frozen=True)
class ClipInfo:
    """What is known once a clip is open. Width and height are as displayed: turned, with square pixels.

    fps comes from the timestamps ((frames - 1) / (last - first)); the declared rate is used only for a
    clip of one frame. duration_seconds is last - first + one mean interval.
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


def open_clip(path: Path | str) -> Clip:
    """Open, measure and check a video file; every refusal is a VideoError of one line."""
    reader = None
    try:
        file = regular_file(path)
        extent = measure_extent(file)
        if not extent.indexed:
            raise VideoError(f"has no whole index (moov box): it is truncated or was never finished; {AGAIN}")
        reader = Reader(file, extent)
        return _examine(Path(path), reader, extent)
    except BaseException as error:
        if reader:
            reader.close()
        if isinstance(error, VideoError | FFmpegError | OSError):
            reason = str(error) if isinstance(error, VideoError) else f"cannot be read: {error.strerror}"
            raise VideoError(f"{str(path)!r} {reason}") from None
        raise


def _examine(path: Path, reader: Reader, extent: Extent) -> Clip:
    """The checks between an open container and a usable clip, cheapest first."""
    with ThreadPoolExecutor(1) as pool:  # hashing and demuxing keep one core busy each
        digest = pool.submit(_sha256, reader.file)
        timeline = reader.scan()
        sha256 = digest.result()
    warnings = _check_complete(timeline, reader, extent)
    frames = len(timeline.order)
    if not frames:
        raise VideoError(f"holds no video frames; {AGAIN}")
    first = reader.first_frame()
    picture = _picture(first, reader.pixel_aspect)
    fps, duration_seconds = timeline.rate(reader.declared_fps)
    if duration_seconds < 1:
        warnings.append(f"the clip is under a second long ({duration_seconds:.2f} s, {frames} frames)")
    if picture.transfer != "sdr":
        warnings.append(f"the clip is HDR ({picture.transfer.upper()}) and is tone-mapped to SDR")
    info = ClipInfo(
        path=path,
        sha256=sha256,
        size_bytes=reader.file.stat().st_size,
        width=picture.width,
        height=picture.height,
        fps=fps,
        duration_seconds=duration_seconds,
        frames=frames,
        variable_rate=timeline.is_variable(),
        dynamic_range=picture.transfer,
        warnings=tuple(warnings),
    )
    return Clip(info, reader, picture, first)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _check_complete(timeline: Timeline, reader: Reader, extent: Extent) -> list[str]:
    """Warnings about the end of the file; VideoError if video is missing there. Longer audio is no matter."""
    seen = len(timeline.stamps)
    expected = reader.expected_packets
    short = timeline.torn or bool(timeline.stopped) or seen < expected
    if extent.cuts_media and not short:
        # Bytes are missing. All video is there only if something in the file says how much there was.
        listed = expected > 0 and not extent.fragmented
        short = not (listed or timeline.fills(reader.written_seconds))
    whole = seen - timeline.torn
    if short:
        cause = timeline.stopped or "the file is truncated"
        if extent.missing_bytes:
            cause = f"the file is truncated (bytes missing: {extent.missing_bytes})"
        of = f" of {expected}" if expected > whole else ""
        raise VideoError(f"ends after frame {whole}{of}; {cause}: {AGAIN}")
    if extent.missing_bytes:
        return [f"bytes missing at the end of the file: {extent.missing_bytes}; every video frame is there"]
    if extent.open_ended and (extent.fragmented or not expected):
        return ["the file does not say how long it is, so a missing end would go unnoticed"]
    return []


def _picture(frame: VideoFrame, pixel_aspect: Fraction) -> Picture:
    """Orientation and colour from the first frame. Raises VideoError for colours that cannot be converted."""
    turn = Turn()
    side_data = cast(Any, frame.side_data)  # by name: PyAV 18 iterates over the data, PyAV 19 over its types
    if matrix := side_data.get("DISPLAYMATRIX"):
        a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
        turn = Turn.of_matrix(a, b, c, d)
    dolby_vision = side_data.get("DOVI_METADATA") is not None
    transfer = _HDR.get(frame.color_trc, "sdr")
    wide_gamut = frame.color_primaries == ColorPrimaries.BT2020.value
    if transfer == "sdr" and dolby_vision:
        raise VideoError("is Dolby Vision without an HDR10 or HLG base; convert it to SDR first")
    if transfer != "sdr" and not wide_gamut and frame.color_primaries != ColorPrimaries.UNSPECIFIED.value:
        raise VideoError(f"is HDR with primaries other than BT.2020 ({frame.color_primaries}); convert it first")
    if not 1 / MAX_PIXEL_ASPECT <= pixel_aspect <= MAX_PIXEL_ASPECT:
        pixel_aspect = Fraction(1)
    width, height = max(round(frame.width * pixel_aspect), 1), frame.height
    if turn.transpose:
        width, height = height, width
    return Picture(width, height, turn, transfer, wide_gamut or transfer != "sdr")


class Clip:
    """An open video. Shown frames stay in memory at the size asked for; nothing else does.

    For one thread at a time; two clips may be read by two threads, decoding runs outside the GIL.
    """

    def __init__(self, info: ClipInfo, reader: Reader, picture: Picture, first: VideoFrame) -> None:
        self.info = info
        self.ticks = reader.timeline.ticks
        self.decode_seconds = 0.0
        self.resize_seconds = 0.0
        self._reader = reader
        self._picture = picture
        self._decoded = {0: first}  # until it is asked for
        self._shown: dict[tuple[int, tuple[int, int]], NDArray[np.uint8]] = {}
        self._converter = VideoReformatter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and of all frames. Arrays already handed out stay valid."""
        self._reader.close()
        self._decoded.clear()
        self._shown.clear()

    @property
    def decoded_frames(self) -> int:
        """How many frames went through the decoder so far, wanted or on the way to a wanted one."""
        return self._reader.decoded

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line each: those of opening, then what decoding found so far."""
        return (*self.info.warnings, *self._reader.warnings)

    def seconds(self, index: int) -> float:
        """When frame `index` is shown, counted from the first frame."""
        return self._reader.timeline.seconds(index)

    def frames(self, indices: Iterable[int], *, size: tuple[int, int]) -> dict[int, NDArray[np.uint8]]:
        """Frames by 0-based presentation index, as read-only RGB arrays (height, width, 3) of `size` =
        (width, height): one bicubic, antialiased resize (Pillow) of the stored pixels.

        Raises ValueError for an index that does not exist, VideoError when the clip is too damaged.
        """
        wanted = sorted(set(indices))
        if wanted and not 0 <= wanted[0] <= wanted[-1] < self.info.frames:
            raise ValueError(f"frames {wanted[0]}..{wanted[-1]}: allowed are 0..{self.info.frames - 1}")
        missing = {index for index in wanted if (index, size) not in self._shown}
        started, resized_before = time.perf_counter(), self.resize_seconds
        try:
            for index in missing & self._decoded.keys():
                missing.remove(index)
                self._show(index, self._decoded.pop(index), size)
            for index, frame in self._reader.read(missing):
                self._show(index, frame, size)
        except (VideoError, FFmpegError) as error:
            raise VideoError(f"{str(self.info.path)!r} {error}") from None
        resized_seconds = self.resize_seconds - resized_before
        self.decode_seconds += time.perf_counter() - started - resized_seconds
        return {index: self._shown[index, size] for index in wanted}

    def _show(self, index: int, frame: VideoFrame, size: tuple[int, int]) -> None:
        """Convert and keep one frame. Matrix and range are as tagged.

        Untagged is read as BT.601, limited range, whatever the picture's size: so do OpenCV and imageio
        write RGB frames, untagged, and so does the reference reader decode them. It is swscale's default.
        """
        started = time.perf_counter()
        layout = "rgb48le" if self._picture.wide_gamut else "rgb24"
        try:
            stored = self._converter.reformat(frame, format=layout, interpolation=EXACT).to_ndarray()
        except FFmpegError:
            raise VideoError(
                f"has a pixel format or colour matrix that cannot be converted ({frame.format.name}, "
                f"matrix {frame.colorspace}); convert it first, e.g. ffmpeg -i IN -pix_fmt yuv420p OUT.mp4"
            ) from None
        pixels = self._picture.fit(cast("NDArray[np.uint8] | NDArray[np.uint16]", stored), size)
        pixels.setflags(write=False)
        self._shown[index, size] = pixels
        self.resize_seconds += time.perf_counter() - started
