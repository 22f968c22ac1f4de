"""Reads the frames of a video file: its packets once for their times, then from the keyframe before a frame to it."""

from __future__ import annotations

import contextlib
import ctypes
from array import array
from collections.abc import Container, Iterable, Iterator
from fractions import Fraction
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import av
import av._core
import numpy as np
from av.error import EOFError as DecoderDrained
from av.error import FFmpegError
from av.packet import Packet
from av.stream import Discard, Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vrt_lite.shortage import shortage_of
from vrt_lite.video.timeline import AGAIN, MAX_PIXELS, Timeline, UnusableError

MAX_FRAMES = 2_000_000
_MAX_DAMAGED_SHARE = 0.5  # of the decoded frames; with more the clip is refused
_NEAR = 48  # frames around one that does not decode that are searched for a replacement
# Two callers decode at once, and from one keyframe to a frame there is little parallel work. Each further thread takes
# 10 MB at 1080p.
_DECODER_THREADS = 2
# Containers that hold one video and nothing else: no playlists, no image sequences, no devices.
_OPTIONS: Final = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts",
    "max_streams": "16",
}
# PyAV 18 raises over a title that is not UTF-8 unless an option forbids it; PyAV 19 no longer takes the argument.
_TOLERANT: dict[str, Any] = {"metadata_errors": "replace"} if av.__version__.startswith("18.") else {}

_USUAL_PIXELS: Final = 2**23


def _limit_allocations(pixels: int) -> None:
    """Let FFmpeg allocate no more at once than a picture of so many pixels takes in 16-bit RGB.

    A file may claim any number of samples in a few bytes, and FFmpeg makes room for all of them. Where the function is
    not found (Windows), only the worker's limit of memory is left.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(av._core.__file__).av_max_alloc(ctypes.c_size_t(8 * pixels))


_limit_allocations(_USUAL_PIXELS)


class Reader:
    """An open video file. Nothing outside may keep its container or stream: reopening it frees them."""

    timeline: Timeline
    open_ended: bool

    def __init__(self, file: Path, *, threads: int = _DECODER_THREADS) -> None:
        self._file = file
        self._threads = threads
        self._decoded = self._damaged = 0
        self._replaced: dict[int, str] = {}
        self._end_bytes = _find_end(file)
        self._open()
        self.pixel_aspect = self._stream.sample_aspect_ratio or Fraction(1)
        self.declared_fps = float(self._stream.average_rate or 0)

    def _open(self) -> None:
        try:
            # "file:" keeps a name from being read as a protocol, a device or an option.
            self._container = av.open(f"file:{self._file}", "r", options=_OPTIONS, **_TOLERANT)
        except FFmpegError as error:
            raise UnusableError(
                f"cannot be opened ({error.strerror}): it is no video of a known kind (mp4, mov, mkv, webm, avi, ts, "
                "gif, webp), or is truncated, damaged or unfinished; copy it again, or convert it"
            ) from error
        try:
            self._stream = self._find_stream()
        except UnusableError:
            self._container.close()
            raise
        for stream in self._container.streams:
            stream.discard = Discard.default if stream.index == self._stream.index else Discard.all
        self._codec = self._stream.codec_context
        self._codec.thread_type = "FRAME"
        self._codec.thread_count = self._threads
        # A frame's own header may claim more than the container did; alignment adds a little.
        self._codec.options = {"max_pixels": str(MAX_PIXELS + MAX_PIXELS // 8)}

    def _find_stream(self) -> VideoStream:
        """Return the main video track, without cover art. UnusableError for what exceeds the limits."""
        still = Disposition.attached_pic | Disposition.timed_thumbnails
        tracks = [stream for stream in self._container.streams.video if not stream.disposition & still]
        if not tracks:
            raise UnusableError("holds no video track, or is truncated; give a file with moving pictures")
        best = self._container.streams.best("video")
        stream = next((track for track in tracks if best and track.index == best.index), tracks[0])
        if getattr(stream, "codec_context", None) is None:  # typed as always there; None without a decoder
            raise UnusableError(
                "uses a codec that cannot be decoded here, or is truncated; convert it, e.g. ffmpeg -i IN OUT.mp4"
            )
        if stream.width * stream.height > MAX_PIXELS:
            raise UnusableError(
                f"is {stream.width}x{stream.height}; at most {MAX_PIXELS} pixels (7680x4320) are read: "
                "shrink it first, e.g. ffmpeg -i IN -vf scale=1920:-2 OUT.mp4"
            )
        _check_length(len(stream.index_entries))
        if stream.width * stream.height > _USUAL_PIXELS:
            _limit_allocations(MAX_PIXELS)
        return stream

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        self._container.close()

    def again(self) -> Reader:
        """Open the file once more, to decode beside other work: in one thread, with the memory of one."""
        other = Reader(self._file, threads=1)
        other.timeline = self.timeline
        return other

    @property
    def warnings(self) -> list[str]:
        """Warnings from decoding so far."""
        damage = [f"{self._damaged} of {self._decoded} decoded frames are damaged"] if self._damaged else []
        return [*self._replaced.values(), *damage]

    def scan(self) -> list[str]:
        """Read all packets once, without decoding, for their times. Returns warnings about the end of the file.

        UnusableError if frames are missing there. Missing audio does not matter.
        """
        stamps, keys, hidden = array("q"), array("q"), array("q")
        undated, torn, stopped = 0, False, ""
        try:
            for packet in self._packets():
                stamp, position = _stamp_of(packet), len(stamps)
                _check_length(position)
                if stamp is None and position == undated:
                    undated += 1  # Matroska gives no time before zero
                elif stamp is not None and position == undated > 0:
                    stamps = array("q", range(stamp - undated, stamp))
                stamps.append(stamp if stamp is not None else stamps[-1] + 1 if stamps else 0)
                if packet.is_keyframe or not position:
                    keys.append(position)
                # Decoded only for other frames: edit lists, VP8's invisible frames.
                if packet.is_discard or (self._codec.name == "vp8" and not bytes(packet)[0] & 0x10):
                    hidden.append(position)
                torn = packet.is_corrupt
        except FFmpegError as error:
            _raise_shortage(error)
            stopped = f"the rest cannot be read ({error.strerror})"
        times, kind = np.array(stamps, np.int64), self._container.format.name
        order = np.delete(np.arange(len(times)), np.array(hidden, np.int64))
        # AVI only counts frames. Times in the order of decoding are not real where the codec reorders.
        counted = kind == "avi" and self._codec.has_b_frames and bool((np.diff(times) > 0).all())
        if not counted:
            order = order[np.argsort(times[order], kind="stable")]
        time_base = self._stream.time_base or Fraction(1)
        self.timeline = Timeline(times, order, np.array(keys, np.int64), time_base, counted)
        return self._check_end(len(times) - torn, stopped or ("the file is truncated" if torn else ""))

    def _check_end(self, whole: int, stopped: str) -> list[str]:
        """Return warnings about the end of the file, of which so many packets are whole. UnusableError if it is cut."""
        listed = len(self._stream.index_entries) if self._container.format.name.startswith("mov") else 0
        all_listed = 0 < listed <= self._stream.frames  # else it may be an MP4 in pieces
        self.open_ended = self._end_bytes is None and not all_listed
        missing_bytes = max((self._end_bytes or 0) - self._file.stat().st_size, 0)
        if missing_bytes and not all_listed:
            stopped = f"the file is truncated (bytes missing: {missing_bytes})"
        if stopped or whole < listed:
            total = f" of {listed}" if listed > whole else ""
            raise UnusableError(f"ends after frame {whole}{total}; {stopped or 'the file is truncated'}: {AGAIN}")
        if not len(self.timeline.order):
            raise UnusableError(f"holds no video frames; {AGAIN}")
        return ["the file does not say how long it is, so a missing end would go unnoticed"] if self.open_ended else []

    def read(self, indices: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for each of `indices`.

        A frame that does not decode is replaced by the nearest one that does, with a warning. Raises
        UnusableError when there is none near it or when too much of what was decoded is damaged.
        """
        wanted = {int(self.timeline.order[index]): index for index in indices}
        yield from self._take(wanted, self.timeline.groups(wanted))
        for index in wanted.values():
            yield index, self._replace(index)
        if self._damaged > _MAX_DAMAGED_SHARE * self._decoded:
            raise UnusableError(f"is too damaged: {self._damaged} of {self._decoded} decoded frames; {AGAIN}")

    def _replace(self, index: int) -> VideoFrame:
        frames = len(self.timeline.order)
        near = self.stream(range(max(index - _NEAR, 0), min(index + _NEAR, frames)))
        at, frame = min(near, key=lambda found: abs(found[0] - index), default=(0, None))
        if frame is None:
            raise UnusableError(f"has no decodable frame near frame {index} of {frames}; {AGAIN}")
        self._replaced[index] = f"frame {index} cannot be decoded; frame {at} is shown in its place"
        return frame

    def stream(self, run: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for the frames of a run that decode, in order."""
        wanted = {int(self.timeline.order[index]): index for index in run}
        slot, last = self.timeline.groups(wanted)[0]
        return self._take(wanted, [(slot, max(last, *wanted))])

    def _take(self, wanted: dict[int, int], groups: Iterable[tuple[int, int]]) -> Iterator[tuple[int, VideoFrame]]:
        """Decode groups of pictures, and take those frames that are in `wanted`, by position.

        If another frame than its keyframe comes first, a seek was inexact, or the keyframe only begins a gradual
        refresh. Then the rest is decoded from the first packet of the file on.
        """
        stamps, keys = self.timeline.stamps, self.timeline.keys
        for slot, last in groups:
            exact = slot == 0
            for position, frame in self._decode(slot, last, wanted):
                exact = exact or stamps[position] <= stamps[keys[slot]]
                if not exact:
                    break
                if position in wanted:
                    yield wanted.pop(position), frame
            if wanted and not exact:
                yield from self._take(wanted, [(0, max(wanted))])
                return

    def _decode(self, slot: int, last: int, wanted: Container[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Decode from keyframe `slot` to the packet at `last`, yielding (position, frame). A failure is counted.

        Then the decoder is drained, so that the frame of `last` needs no later packet. H.264 frames that are neither
        wanted nor a reference for others are skipped: with nal_ref_idc 0 nothing is predicted from them, so the rest
        is bit for bit the same. HEVC's "non-reference" means this only within a temporal layer, so HEVC is decoded in
        full.
        """
        counted, packets = self.timeline.counted, len(self.timeline.stamps)
        output, skipping = count(), self._codec.name == "h264" and not counted
        start, found = self._reach(slot)
        for position, packet in chain(enumerate(islice(found, last + 1 - start), start), [(last, None)]):
            if packet:
                self._codec.skip_frame = "NONREF" if skipping and position not in wanted else "DEFAULT"
                # Decoders copy this to the frame, so that its packet is known even where times repeat or are missing.
                packet.pts = position
            try:
                frames = self._stream.decode(packet)  # pyright: ignore[reportUnknownMemberType]
            except FFmpegError as error:
                _raise_shortage(error)
                lost = not isinstance(error, DecoderDrained)
                self._decoded, self._damaged = self._decoded + lost, self._damaged + lost
                continue
            for frame in frames:
                self._decoded += 1
                self._damaged += frame.is_corrupt
                at = next(output) if counted else frame.pts
                if at is not None and at < packets:  # of two frames in a packet (DivX), the second has no position
                    yield at, frame

    def _reach(self, slot: int) -> tuple[int, Iterator[Packet[VideoStream]]]:
        """Return the position of keyframe `slot`, and the packets from there; none if no seek leads there."""
        stamps, keys = self.timeline.stamps, self.timeline.keys
        start = int(keys[slot])
        if np.count_nonzero(stamps == stamps[start]) == 1:
            with contextlib.suppress(FFmpegError):
                # MPEG-TS is sought by the time of decoding, which is earlier: the keyframe before is found for sure.
                self._container.seek(int(stamps[keys[max(slot - 1, 0)]]), stream=self._stream)
                packets = self._packets()
                for packet in packets:
                    if packet.is_keyframe and (stamp := _stamp_of(packet)) is not None and stamp >= stamps[start]:
                        if stamp == stamps[start]:
                            return start, chain((packet,), packets)
                        break
        if slot:
            return start, iter(())
        self._container.close()
        self._open()
        return 0, self._packets()

    def _packets(self) -> Iterator[Packet[VideoStream]]:
        """Yield the stream's packets; not the empty ones, which repeat a frame (AVI) or mark the end (PyAV)."""
        # PyAV 18.1 fails after the last packet, when it flushes a stream that appeared while reading (damaged MPEG-TS).
        with contextlib.suppress(IndexError):
            yield from (packet for packet in self._container.demux(self._stream) if packet.size)


def _raise_shortage(error: FFmpegError) -> None:
    if short := shortage_of(error):
        raise short from error


def _stamp_of(packet: Packet[VideoStream]) -> int | None:
    """Return when a packet is shown, else when it is decoded; None if neither is known or plausible."""
    stamp = packet.dts if packet.pts is None else packet.pts
    return stamp if stamp is not None and abs(stamp) < 1 << 62 else None


def _check_length(frames: int) -> None:
    if frames >= MAX_FRAMES:
        raise UnusableError(
            f"holds more than {MAX_FRAMES} frames; cut it first, e.g. ffmpeg -i IN -t 600 -c copy OUT.mp4"
        )


def _find_end(path: Path) -> int | None:
    """Return the byte where a file ends, as its outermost headers say; None if they do not."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(12)
        if start[:4] == b"\x1a\x45\xdf\xa3":  # Matroska: a header, then one segment
            file.seek(4)
            file.seek(_read_length(file) or 0, 1)
            length = _read_length(file) if file.read(4) == b"\x18\x53\x80\x67" else None
            return None if length is None else file.tell() + length
        if start[:4] == b"RIFF":  # AVI
            length = int.from_bytes(start[4:8], "little")
            return 8 + length if length else None
        if b"\x47" in (start[:1], start[4:5]):  # MPEG-TS: plain, with a time code, or with parity
            whole = any(size_bytes % packet == 0 for packet in (188, 192, 204))
            return None if whole else size_bytes + -size_bytes % 188
        at, kind = 0, b""
        while at + 8 <= size_bytes:  # the boxes of an MP4
            file.seek(at)
            header = file.read(16)
            kind, length = header[4:8], int.from_bytes(header[:4])
            if length == 1:
                length = int.from_bytes(header[8:])
            if length < 8:  # up to the end of the file
                return None
            at += length
    if kind == b"mfra":  # the last of an MP4 in pieces, for players alone
        return size_bytes
    return None if at == size_bytes else max(at, size_bytes + 1)


def _read_length(file: BinaryIO) -> int | None:
    """Read a number of Matroska, whose first bits say how many bytes it has; None if it means "unknown"."""
    first = file.read(1)
    bits = 7 * (9 - first[0].bit_length()) if first else 7
    value = int.from_bytes(first + file.read(bits // 7 - 1)) & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value
