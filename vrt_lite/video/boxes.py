"""Reads the outermost structure of a file, and counts what an MP4's boxes claim, before FFmpeg makes room for it.

A table of samples may take 12 bytes and claim billions of them. FFmpeg takes 57 bytes of memory for each.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO, Final

MOST_SAMPLES: Final = 6_000_000
"""Of all tracks together: 2 million frames, and 12 hours of sound."""
MOST_BOXES: Final = 1_000_000
MOST_EDITS: Final = 5_000
_DEPTH = 10
"""FFmpeg refuses boxes that are nested deeper."""
_PARENTS: Final = frozenset(
    (
        *(b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"dinf", b"mvex", b"moof", b"traf", b"udta", b"tref"),
        *(b"wave", b"sinf", b"schi", b"ilst", b"mdra", b"rmra"),
    )
)
"""Boxes that FFmpeg looks into. Any of them may stand anywhere."""
_SHORTEST_SOUND = 160
"""FFmpeg joins at least so many samples of uncompressed sound."""
_TABLE_BYTES = 64 * 2**20
_TRAILING_BOXES = frozenset({b"mfra", b"free", b"skip", b"udta", b"meta", b"uuid"})  # hold no picture


def check_claims(file: BinaryIO, size_bytes: int) -> None:
    """Raise ValueError, with what is wrong, if the boxes are too many or claim too many samples.

    In a file of another kind the first "box" ends the walk.
    """
    walk = _Walk(file)
    walk.look_into(0, size_bytes, 0)
    walk.end_track()


@dataclass(slots=True)
class _Track:
    """The tables of one track, as far as they say how many samples FFmpeg will list."""

    samples: int = 0
    edits: int = 0
    chunks: int = 0
    most_in_chunk: int = 0
    is_sound: bool = False
    is_counted_in_ticks: bool = False
    is_other: bool = False

    def count(self) -> int:
        """The samples that FFmpeg lists at most: it lists those of each edit."""
        # Of uncompressed sound every sample has a duration of one tick, and FFmpeg lists parts of chunks.
        joined = self.is_sound and self.is_counted_in_ticks and not self.is_other
        samples = self.chunks * (self.most_in_chunk // _SHORTEST_SOUND + 1) if joined else self.samples
        return samples * max(self.edits - 1, 1)  # one edit is usually empty: it delays the track


class _Walk:
    """A walk over all boxes, which adds up their claims. Its methods `read_…` read one box each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._boxes = 0
        self._samples = self._edits = 0
        self._track = _Track()

    def look_into(self, at: int, end: int, depth: int) -> None:
        """Read the headers of the boxes between two bytes of the file, and of those inside them."""
        seek, read, unpack = self._file.seek, self._file.read, struct.unpack
        while at + 8 <= end:
            self._boxes += 1
            if self._boxes > MOST_BOXES:
                raise ValueError(f"has more than {MOST_BOXES} boxes")
            seek(at)
            header = read(16)
            if len(header) < 8:
                return
            size, kind = unpack(">I4s", header[:8])
            body = at + 8
            if size == 1:
                size, body = int.from_bytes(header[8:]), at + 16
            elif size == 0:
                size = end - at
            if size < body - at:
                return
            stop = min(at + size, end)
            if kind in _PARENTS:
                self._enter(kind, body, stop, depth)
            elif kind in (b"free", b"hoov", b"meta", b"cmov"):
                self._look_at_disguised(kind, body, stop, depth)
            elif kind in _READERS:
                _READERS[kind](self, body, stop)
            at += size

    def end_track(self) -> None:
        """Add the samples of the track that ends here."""
        self._add(self._track.count())
        self._track = _Track()

    def _enter(self, kind: bytes, at: int, end: int, depth: int) -> None:
        if kind == b"trak":
            self.end_track()
        if depth < _DEPTH:
            self.look_into(at, end, depth + 1)

    def _look_at_disguised(self, kind: bytes, at: int, end: int, depth: int) -> None:
        """Look into boxes whose content depends on the first bytes."""
        if kind == b"cmov":
            raise ValueError("has a compressed index (cmov box)")
        start = self._bytes(at, end, 64)
        if kind == b"meta":
            if (found := start.find(b"hdlr")) >= 4:
                self._enter(kind, at + found - 4, end, depth)
        elif start[4:8] in (b"mvhd", b"cmov"):  # an index that a program has marked as free space
            self._enter(b"moov", at, end, depth)

    def read_handler(self, at: int, end: int) -> None:
        kind = self._bytes(at, end, 12)[8:]
        self._track.is_sound |= kind == b"soun"
        self._track.is_other |= kind in (b"vide", b"subp", b"clcp")  # these change a track's kind, others do not

    def read_sizes(self, at: int, end: int) -> None:
        self._track.samples = max(self._track.samples, int.from_bytes(self._bytes(at, end, 12)[8:]))

    def read_times(self, at: int, end: int) -> None:
        table = self._bytes(at, end, 16)
        self._track.is_counted_in_ticks = table[4:8] + table[12:] == b"\0\0\0\1" * 2
        self._track.is_other |= not self._track.is_counted_in_ticks

    def read_chunks(self, at: int, end: int) -> None:
        self._track.chunks = max(self._track.chunks, self._count(at, end))

    def read_chunk_sizes(self, at: int, end: int) -> None:
        table = self._bytes(at + 8, end, _TABLE_BYTES)
        most = max((count for _, count, _ in struct.iter_unpack(">3I", table[: len(table) // 12 * 12])), default=0)
        self._track.most_in_chunk = max(self._track.most_in_chunk, most)

    def read_edits(self, at: int, end: int) -> None:
        self._edits += (edits := self._count(at, end))
        self._track.edits += edits
        if self._edits > MOST_EDITS:
            raise ValueError(f"has more than {MOST_EDITS} edits")

    def read_run(self, at: int, end: int) -> None:
        self._add(self._count(at, end))

    def _add(self, samples: int) -> None:
        self._samples += samples
        if self._samples > MOST_SAMPLES:
            raise ValueError(f"claims to hold more than {MOST_SAMPLES} samples")

    def _count(self, at: int, end: int) -> int:
        """The number of entries of a table, after its version and flags."""
        return int.from_bytes(self._bytes(at, end, 8)[4:])

    def _bytes(self, at: int, end: int, most: int) -> bytes:
        self._file.seek(at)
        return self._file.read(max(min(end - at, most), 0))


_READERS: Final = {
    b"hdlr": _Walk.read_handler,
    b"stsz": _Walk.read_sizes,
    b"stz2": _Walk.read_sizes,
    b"stts": _Walk.read_times,
    b"stco": _Walk.read_chunks,
    b"co64": _Walk.read_chunks,
    b"stsc": _Walk.read_chunk_sizes,
    b"elst": _Walk.read_edits,
    b"trun": _Walk.read_run,
}


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


def measure_mp4(file: BinaryIO, size_bytes: int) -> Extent:
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


def measure_matroska(file: BinaryIO, size_bytes: int) -> Extent:
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


def measure_avi(file: BinaryIO, size_bytes: int) -> Extent:
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
