"""What a container holds, within allow-lists and limits: the extent of the file, its video track, and its timeline."""

from __future__ import annotations

import errno
import re
import stat
from array import array
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError, InvalidDataError
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from vrt_lite.errors import MissingClipError
from vrt_lite.shortage import shortage_of
from vrt_lite.video.boxes import check_claims

MAX_PIXELS = 7680 * 4320
MAX_FRAMES = 2_000_000
AGAIN = "copy, download or export it again"
TOO_LONG = f"holds more than {MAX_FRAMES} frames; cut it first, e.g. ffmpeg -i IN -t 600 -c copy OUT.mp4"
# Containers that hold one video and nothing else: no playlists, no image sequences, no devices.
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts"
# PyAV 18 raises over a title that is not UTF-8 unless an option forbids it; PyAV 19 no longer takes the argument.
_TOLERANT: dict[str, Any] = {"metadata_errors": "replace"} if av.__version__.startswith("18.") else {}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters at least: C:/ is a drive
_TRAILING_BOXES = frozenset({b"mfra", b"free", b"skip", b"udta", b"meta", b"uuid"})  # hold no picture
_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"moof", b"styp", b"free", b"skip", b"wide", b"pnot"})
# MPEG-TS: where the sync byte is and how long a packet is; plain, with a time code (M2TS), with parity.
_TS_PACKETS = ((0, 188), (4, 192), (0, 204))


def open_container(file: Path, extent: Extent) -> InputContainer:
    """Open a file as one of the allowed containers. Raises UnusableError."""
    try:
        # "file:" keeps a name from being read as a protocol, a device or an option.
        options = {"protocol_whitelist": "file", "format_whitelist": _CONTAINERS}
        return av.open(f"file:{file}", "r", options=options, **_TOLERANT)
    except FFmpegError as error:
        if shortage_of(error):
            raise
        raise UnusableError(_why_unreadable(extent, error)) from None


def find_video_stream(container: InputContainer) -> VideoStream:
    """The main video track, without cover art. UnusableError, before decoding, for what exceeds the limits."""
    still = Disposition.attached_pic | Disposition.timed_thumbnails
    tracks = [stream for stream in container.streams.video if not stream.disposition & still]
    if not tracks:
        raise UnusableError("holds no video track; give a file with moving pictures")
    best = container.streams.best("video")
    stream = next((track for track in tracks if best and track.index == best.index), tracks[0])
    codec = getattr(stream, "codec_context", None)  # typed as always there; None without a decoder
    if codec is None:
        raise UnusableError("uses a codec that cannot be decoded here; convert it, e.g. ffmpeg -i IN OUT.mp4")
    if stream.width * stream.height > MAX_PIXELS:
        raise UnusableError(
            f"is {stream.width}x{stream.height}; at most {MAX_PIXELS} pixels (7680x4320) are read: "
            "shrink it first, e.g. ffmpeg -i IN -vf scale=1920:-2 OUT.mp4"
        )
    if max(stream.frames, len(stream.index_entries)) > MAX_FRAMES:
        raise UnusableError(TOO_LONG)
    return stream


def written_seconds(stream: VideoStream) -> float:
    """Matroska's per-track DURATION tag ("00:00:03.001000000"), where the last frame ends; else 0."""
    tag = re.fullmatch(r"(\d+):(\d+):(\d+\.\d+)", stream.metadata.get("DURATION", ""))
    return int(tag[1]) * 3600 + int(tag[2]) * 60 + float(tag[3]) if tag else 0.0


def _why_unreadable(extent: Extent, error: FFmpegError) -> str:
    """Why a file cannot be opened, as far as the outermost headers show."""
    if extent.cuts_media:
        return f"is truncated (bytes missing: {extent.missing_bytes}) and cannot be opened; {AGAIN}"
    if isinstance(error, InvalidDataError) or error.errno == errno.EINVAL:  # EINVAL: not an allowed container
        return "is no video of a known kind (mp4, mov, mkv, webm, avi, ts, gif, webp), or is damaged; convert it"
    return f"cannot be opened ({error.strerror}); {AGAIN}"


class UnusableError(Exception):
    """What is wrong with a video file, without its path. `vrt_lite.video` turns it into a VideoError."""


@dataclass(frozen=True)
class Extent:
    """What the outermost structure of a file shows about its completeness.

    missing_bytes: bytes the file claims beyond its end; 0 = none. cuts_media: the cut may have hit
    video data or the index (False: only a trailing index, padding or metadata). open_ended: no length
    is written, so a cut at a packet border leaves no trace. indexed: False for an MP4 without a whole `moov`.
    fragmented: an MP4 in pieces, whose first index does not list every frame.
    """

    missing_bytes: int = 0
    cuts_media: bool = False
    open_ended: bool = False
    indexed: bool = True
    fragmented: bool = False


def regular_file(path: Path | str) -> Path:
    """Check that a path is a plain file, before it is opened: a FIFO would block for ever. Returns it, absolute."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        if _URL.match(str(path)):
            raise UnusableError("looks like a URL, and URLs are never opened; download it first") from None
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise MissingClipError(path, f"cannot be opened: {error.strerror}") from None
        reason = error.strerror if isinstance(error, OSError) else "not a possible file name"
        raise UnusableError(f"cannot be opened: {reason}") from None
    if stat.S_ISDIR(status.st_mode):
        raise UnusableError("is a folder; give the path of one video file")
    if not stat.S_ISREG(status.st_mode):
        raise UnusableError("is not a regular file; copy its content to a file first")
    if not status.st_size:
        raise UnusableError("is empty; copy or download it again")
    return Path(path).absolute()


def measure_extent(path: Path) -> Extent:
    """Read the outermost headers of `path`. Raises UnusableError. An unknown format is an `Extent` without findings."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        try:
            check_claims(file, size_bytes)
        except ValueError as error:
            raise UnusableError(f"{error}: it is damaged, or no clip; {AGAIN}") from error
        file.seek(0)
        head = file.read(256)
        if head[4:8] in _FIRST_BOXES:
            return _mp4(file, size_bytes)
        if head[:4] == b"\x1a\x45\xdf\xa3":
            return _matroska(file, size_bytes)
        if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
            return _avi(file, size_bytes)
    for sync, packet_bytes in _TS_PACKETS:
        if head[sync : sync + 1] == head[sync + packet_bytes : sync + packet_bytes + 1] == b"\x47":
            missing = -size_bytes % packet_bytes
            return Extent(missing_bytes=missing, cuts_media=missing > 0, open_ended=True)
    return Extent()


def _mp4(file: BinaryIO, size_bytes: int) -> Extent:
    """Walk the top-level boxes: 32-bit size, type, 64-bit size if the first is 1, to the end if it is 0."""
    at, kinds, indexed = 0, set[bytes](), False
    missing, cuts_media, open_ended = 0, False, False
    while at < size_bytes:
        file.seek(at)
        header = file.read(16)
        kind, box_bytes = header[4:8], int.from_bytes(header[:4], "big")
        if box_bytes == 1 and len(header) == 16:
            box_bytes = int.from_bytes(header[8:], "big")
        if len(header) < 8:  # the cut is inside a header: the kind of the box is unknown
            missing, cuts_media = 8 - len(header), True
            break
        kinds.add(kind)
        if box_bytes < 8:  # 0 = up to the end of the file; anything else is no box
            open_ended = box_bytes == 0 and kind == b"mdat"
            break
        at += box_bytes
        if at > size_bytes:
            missing, cuts_media = at - size_bytes, kind not in _TRAILING_BOXES
        elif kind == b"moov":
            indexed = True
    fragmented = b"moof" in kinds
    ended = not fragmented or b"mfra" in kinds or missing > 0
    return Extent(missing, cuts_media, open_ended or not ended, indexed, fragmented)


def _matroska(file: BinaryIO, size_bytes: int) -> Extent:
    """EBML header, then one Segment whose size is a variable-length integer; all ones = unknown."""
    file.seek(4)
    header_bytes, width, _ = _vint(file.read(8))
    segment_at = 4 + width + header_bytes
    file.seek(segment_at)
    segment = file.read(12)
    if segment[:4] != b"\x18\x53\x80\x67":
        return Extent()
    payload_bytes, width, unknown = _vint(segment[4:])
    if unknown:
        return Extent(open_ended=True)
    missing = max(segment_at + 4 + width + payload_bytes - size_bytes, 0)
    return Extent(missing_bytes=missing, cuts_media=missing > 0)


def _vint(data: bytes) -> tuple[int, int, bool]:
    """An EBML size: its value, how many bytes it takes, and whether it means "unknown"."""
    width = 9 - data[0].bit_length() if data else 1
    bits = 7 * width
    value = int.from_bytes(data[:width], "big") & ((1 << bits) - 1)
    return value, width, value == (1 << bits) - 1


def _avi(file: BinaryIO, size_bytes: int) -> Extent:
    """A chain of RIFF chunks (more than one above a gigabyte); size 0 = the writer never finished."""
    at = 0
    while at + 8 <= size_bytes:
        file.seek(at)
        header = file.read(8)
        chunk_bytes = int.from_bytes(header[4:], "little")
        if header[:4] != b"RIFF":
            break
        if chunk_bytes == 0:
            return Extent(open_ended=True)
        at += 8 + chunk_bytes
    missing = max(at - size_bytes, 0)
    return Extent(missing_bytes=missing, cuts_media=missing > 0)


@dataclass(frozen=True)
class Timeline:
    """Every packet of a video stream. "Position" counts in decode order, "index" in the order shown.

    stamps: time by position, in units of time_base. keys: positions where decoding can start; 0 is always
    one. order: the position of each shown frame, by index. counted: the container has no presentation
    times, so decoded frames are identified by counting. torn: a packet is shorter than the container says.
    stopped: why reading ended before the end of the file, empty if it did not.
    """

    stamps: NDArray[np.int64]
    keys: NDArray[np.int64]
    order: NDArray[np.int64]
    time_base: Fraction
    counted: bool = False
    torn: bool = False
    stopped: str = ""

    @property
    def ticks(self) -> NDArray[np.int64]:
        """Presentation times of the shown frames, sorted, in units of time_base."""
        return self.stamps[self.order]

    def key_slot(self, position: int) -> int:
        """Which of `keys` to start at, so that the packet at `position` decodes to its exact frame."""
        slot = int(self.keys.searchsorted(position, side="right")) - 1
        # It is shown before the keyframe that it follows (an open group of pictures): it needs the group before too.
        leading = not self.counted and self.stamps[position] < self.stamps[self.keys[slot]]
        return max(slot - int(leading), 0)

    def index_of(self, position: int) -> int:
        """The index of the frame at `position`; for one that is never shown, the index that it would have."""
        indices: list[int] = np.flatnonzero(np.equal(self.order, position)).tolist()
        return indices[0] if indices else int(np.searchsorted(self.ticks, int(self.stamps[position])))

    def seconds(self, index: int) -> float:
        """When a frame is shown, counted from the first."""
        return float((int(self.stamps[self.order[index]]) - int(self.stamps[self.order[0]])) * self.time_base)

    def rate(self, declared_fps: float) -> tuple[float, float]:
        """Frames per second and seconds, last frame included. The declared rate serves a single frame only."""
        span_seconds, intervals = self.seconds(-1), len(self.order) - 1
        fps = intervals / span_seconds if span_seconds > 0 else declared_fps or 1.0
        return fps, span_seconds + 1 / fps

    def is_variable(self) -> bool:
        """Whether a frame is more than one tick away from an even grid, which is more than rounding."""
        steps: NDArray[np.float64] = np.asarray(self.ticks, np.float64) - float(self.ticks[0])
        even = np.linspace(0.0, float(steps[-1]), len(steps))
        return float(np.max(np.abs(steps - even))) > 1.1

    def fills(self, seconds: float) -> bool:
        """Whether the frames last until `seconds` (0 = unknown) without a gap. One frame may be missing at the end."""
        if len(self.order) < 2 or not seconds or self.is_variable():
            return False
        interval_seconds = self.seconds(-1) / (len(self.order) - 1)
        return float(int(self.ticks[-1]) * self.time_base) + 1.5 * interval_seconds >= seconds


def build_timeline(
    stamps: array[int],
    keys: array[int],
    hidden: array[int],
    *,
    time_base: Fraction,
    frames_counted: bool = False,
    torn: bool = False,
    stopped: str = "",
) -> Timeline:
    """Make the timeline of packets in a demuxer's order. `hidden` are positions decoded but never shown.

    `frames_counted` means that the container only counts frames and the codec may reorder them. If the times then come
    in decode order, they are not real, and decoded frames are counted instead.
    """
    times = np.array(stamps, np.int64)
    starts = np.union1d(np.zeros(1, np.int64), np.array(keys, np.int64))
    shown = np.setdiff1d(np.arange(len(times)), np.array(hidden, np.int64), assume_unique=True)
    counted = frames_counted and bool((np.diff(times) > 0).all())
    order = shown if counted else shown[np.argsort(times[shown], kind="stable")]
    return Timeline(times, starts, order, time_base, counted, torn, stopped)
