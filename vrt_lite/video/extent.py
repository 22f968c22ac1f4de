"""What a path leads to and how long the file says it is. Knows regular files and the outermost headers of
MP4, Matroska, AVI and MPEG-TS, whose sizes it compares with the bytes there are; refuses to know streams,
codecs and PyAV.

A demuxer is forgiving: it plays what is left of a file that was cut. Only the container's own sizes
tell a short clip from a shortened one, and they are a few bytes to read.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vrt_lite.errors import VideoError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters at least: C:/ is a drive

_TRAILING_BOXES = frozenset({b"mfra", b"free", b"skip", b"udta", b"meta", b"uuid"})  # hold no picture
_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"moof", b"styp", b"free", b"skip", b"wide", b"pnot"})
# MPEG-TS: where the sync byte is and how long a packet is; plain, with a time code (M2TS), with parity.
_TS_PACKETS = ((0, 188), (4, 192), (0, 204))


@dataclass(frozen=True)
class Extent:
    """What the outermost structure of a file tells about its completeness.

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
    """Refuse all that is no plain file before anything opens it: a FIFO would block for ever."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        if _URL.match(str(path)):
            raise VideoError("looks like a URL, and URLs are never opened; download it first") from None
        reason = error.strerror if isinstance(error, OSError) else "not a possible file name"
        raise VideoError(f"cannot be opened: {reason}") from None
    if stat.S_ISDIR(status.st_mode):
        raise VideoError("is a folder; give the path of one video file")
    if not stat.S_ISREG(status.st_mode):
        raise VideoError("is not a regular file; copy its content to a file first")
    if not status.st_size:
        raise VideoError("is empty; copy or download it again")
    return Path(path).absolute()


def measure_extent(path: Path) -> Extent:
    """Read the outermost headers of `path`. An unknown format is an `Extent` without findings."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
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
    at, seen, indexed = 0, set[bytes](), False
    missing, cuts_media, open_ended = 0, False, False
    while at < size_bytes:
        file.seek(at)
        header = file.read(16)
        kind, box_bytes = header[4:8], int.from_bytes(header[:4], "big")
        if box_bytes == 1 and len(header) == 16:
            box_bytes = int.from_bytes(header[8:], "big")
        if len(header) < 8:  # the cut is inside a header: what it began is unknown
            missing, cuts_media = 8 - len(header), True
            break
        seen.add(kind)
        if box_bytes < 8:  # 0 = up to the end of the file; anything else is no box
            open_ended = box_bytes == 0 and kind == b"mdat"
            break
        at += box_bytes
        if at > size_bytes:
            missing, cuts_media = at - size_bytes, kind not in _TRAILING_BOXES
        elif kind == b"moov":
            indexed = True
    fragmented = b"moof" in seen
    ended = not fragmented or b"mfra" in seen or missing > 0
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
