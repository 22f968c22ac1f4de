"""One open container: packets, seeking, decoding, and the number of damaged frames."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain, count, islice
from pathlib import Path

from av.error import EOFError as DecoderDrained
from av.error import FFmpegError
from av.packet import Packet
from av.stream import Discard
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vrt_lite.disk import file_sha256
from vrt_lite.shortage import check_memory, shortage_of
from vrt_lite.video.container import (
    AGAIN,
    MAX_FRAMES,
    MAX_PIXELS,
    TOO_LONG,
    Extent,
    KeyTimes,
    Timeline,
    UnusableError,
    build_timeline,
    find_video_stream,
    open_container,
    read_packets,
    stamp_of,
    written_seconds,
)

MAX_DAMAGED_SHARE = 0.5  # of the decoded frames; with more the clip is refused
_LONGEST_SEEK = 5_000  # packets after a seek that are searched for a keyframe
_LOOK_AHEAD = 32  # packets after an undecodable frame that are searched for a replacement
# Two callers decode at once, and from one keyframe to a frame there is little parallel work. Each further thread takes
# 10 MB at 1080p.
_DECODER_THREADS = 2
_REFRESH_GROUPS = 3  # where keyframes only begin a gradual refresh, it is complete after this many


class Reader:
    """The open container. Nothing outside may keep its container or stream: reopening it for a seek frees them."""

    timeline: Timeline

    def __init__(self, file: Path, extent: Extent, *, threads: int = _DECODER_THREADS) -> None:
        self.files = (file,)
        self._threads = threads
        self.decoded = 0
        self.damaged = 0
        self.extent = extent
        self._replaced: dict[int, str] = {}
        self._in_order: Iterator[tuple[int, Packet[VideoStream]]] | None = None
        self._next = 0
        self._open()
        self.pixel_aspect = self._stream.sample_aspect_ratio or Fraction(1)
        self.declared_fps = float(self._stream.average_rate or 0)
        self.written_seconds = written_seconds(self._stream)

    def _open(self) -> None:
        self._container = open_container(self.files[0], self.extent)
        try:
            self._stream = find_video_stream(self._container)
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

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        self._container.close()

    @property
    def expected_packets(self) -> int:
        """How many packets the container lists: an MP4's index (edits applied), a cut AVI's header; else 0."""
        kind = self._container.format.name
        if kind.startswith("mov"):
            return len(self._stream.index_entries)
        return self._stream.frames if kind == "avi" and self.extent.missing_bytes else 0

    @property
    def warnings(self) -> list[str]:
        """Warnings from decoding so far."""
        warnings = list(self._replaced.values())
        if self.damaged:
            warnings.append(f"{self.damaged} of {self.decoded} decoded frames are damaged")
        return warnings

    def scan(self) -> Timeline:
        """Demux the whole file once without decoding. Keeps eight bytes of each packet."""
        stamps, keys, hidden = array("q"), array("q"), array("q")
        alt_refs = self._codec.name == "vp8"
        undated, corrupt, torn, stopped = 0, 0, False, ""
        try:
            for packet in read_packets(self._container, self._stream):
                stamp, position = stamp_of(packet), len(stamps)
                if stamp is None and position == undated:
                    undated += 1  # Matroska gives no time before zero
                elif stamp is not None and position == undated > 0:
                    stamps = array("q", range(stamp - undated, stamp))
                stamps.append(stamp if stamp is not None else stamps[-1] + 1 if stamps else 0)
                if packet.is_keyframe:
                    keys.append(position)
                if packet.is_discard or (alt_refs and not bytes(packet)[0] & 0x10):
                    hidden.append(position)  # decoded only for other frames: edit lists, VP8's invisible frames
                torn = packet.is_corrupt
                corrupt += torn
                if position >= MAX_FRAMES:
                    raise UnusableError(TOO_LONG)
        except FFmpegError as error:
            if shortage_of(error):
                raise
            stopped = f"the rest cannot be read ({error.strerror})"
        timeline = self.timeline = build_timeline(
            stamps,
            keys,
            hidden,
            time_base=self._stream.time_base or Fraction(1),
            frames_counted=self._container.format.name == "avi" and self._codec.has_b_frames,
            torn=torn or bool(corrupt and self.extent.missing_bytes),
            stopped=stopped,
        )
        self._key_times = KeyTimes(timeline.stamps[timeline.keys] if len(timeline.stamps) else timeline.stamps)
        return timeline

    def digest(self) -> str:
        """The sha256 of the file, in hexadecimal."""
        return file_sha256(self.files[0])

    def read(self, indices: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for each of `indices`; each group of pictures is decoded once.

        A frame that does not decode is replaced by the nearest one that does, with a warning. Raises
        UnusableError when there is none near it or when too much of what was decoded is damaged.
        """
        index_at = {int(self.timeline.order[index]): index for index in indices}
        for slot, left in sorted(self._group(index_at).items()):
            for start in (slot, max(slot - _REFRESH_GROUPS, 0)):
                if not left:
                    break
                key_stamp, whole = self.timeline.stamps[self.timeline.keys[start]], start < slot or slot == 0
                for position, frame in self._decode(start, max(left), frozenset(left)):
                    whole = whole or self.timeline.stamps[position] <= key_stamp
                    if not whole:
                        break  # the keyframe itself was not decoded: it only begins a gradual refresh
                    if position in left:
                        left.remove(position)
                        yield index_at[position], frame
            for position in sorted(left):
                yield index_at[position], self._nearest(position, slot)
        if self.damaged > MAX_DAMAGED_SHARE * self.decoded:
            raise UnusableError(f"is too damaged: {self.damaged} of {self.decoded} decoded frames; {AGAIN}")

    def again(self) -> Reader:
        """Open the file once more, to decode beside other work: in one thread, with the memory of one."""
        other = Reader(self.files[0], self.extent, threads=1)
        other.timeline, other._key_times = self.timeline, self._key_times
        return other

    def stream(self, run: range) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for the frames of a run in order, each once. Those that do not decode are left out."""
        index_at = {int(self.timeline.order[index]): index for index in run}
        if self.timeline.counted:
            parts = sorted(self._group(index_at).items())
        else:
            parts = [(self.timeline.key_slot(min(index_at)), set(index_at))]
        for slot, positions in parts:
            for position, frame in self._decode(slot, max(positions)):
                if (index := index_at.pop(position, None)) is not None:
                    yield index, frame

    def _group(self, positions: Iterable[int]) -> dict[int, set[int]]:
        """Return packets by the group of pictures that they lie in."""
        groups: dict[int, set[int]] = {}
        for position in positions:
            groups.setdefault(self.timeline.key_slot(position), set()).add(position)
        return groups

    def _decode(self, slot: int, last: int, needed: frozenset[int] | None = None) -> Iterator[tuple[int, VideoFrame]]:
        """Decode from keyframe `slot` to the packet at `last`, yielding (position, frame).

        Then the decoder is drained, so that the frame of `last` needs no later packet. With `needed`, H.264 frames that
        are neither needed nor a reference for others are skipped: with nal_ref_idc 0 nothing is predicted from them, so
        the rest is bit for bit the same. HEVC's "non-reference" means this only within a temporal layer, so HEVC is
        decoded in full.
        """
        timeline = self.timeline
        output = count(int(timeline.keys[slot])) if timeline.counted else None
        if timeline.counted:  # counting takes every frame of the group
            after = timeline.keys[slot + 1 : slot + 2].tolist() or [len(timeline.stamps)]
            last, needed = after[0] - 1, None
        skipping = needed is not None and self._codec.name == "h264"
        for position, packet in self._packets_from(slot):
            skip = skipping and needed is not None and position not in needed
            self._codec.skip_frame = "NONREF" if skip else "DEFAULT"
            # Decoders copy this to the frame, so that its packet is known even where times repeat or are missing.
            packet.pts = position
            yield from self._feed(packet, output)
            if position >= last:
                break
        yield from self._feed(None, output)

    def _feed(self, packet: Packet[VideoStream] | None, output: count[int] | None) -> list[tuple[int, VideoFrame]]:
        """Decode one packet, or None for the end. A failure is counted, not raised."""
        try:
            frames = self._stream.decode(packet)  # pyright: ignore[reportUnknownMemberType]
        except DecoderDrained:
            return []
        except FFmpegError as error:
            if shortage_of(error):
                raise
            self.decoded += 1
            self.damaged += 1
            return []
        self.decoded += len(frames)
        self.damaged += sum(frame.is_corrupt for frame in frames)
        known = ((next(output) if output else frame.pts, frame) for frame in frames)
        packets = len(self.timeline.stamps)  # of two frames in a packet (DivX), the second has no position: dropped
        return [(position, frame) for position, frame in known if position is not None and position < packets]

    def _packets_from(self, slot: int) -> Iterator[tuple[int, Packet[VideoStream]]]:
        """Yield (position, packet) from keyframe `slot` on.

        A seek may be inexact: its position is that of the first keyframe that follows. If that is too late, the seek is
        repeated from farther back. Where no seek helps, as keyframes have equal times, there are no seeks from then on.
        """
        start = int(self.timeline.keys[slot])
        targets = {slot, max(slot - 1, 0), max(slot - 8, 0)} if self._in_order is None else ()
        for target in sorted(targets, reverse=True):
            landed = self._land(target)
            if landed and landed[0] <= start:
                yield from ((at, packet) for at, packet in enumerate(landed[1], landed[0]) if at >= start)
                return
        if self._in_order is None or self._next > start:
            self._container.close()
            self._open()
            self._in_order, self._next = enumerate(read_packets(self._container, self._stream)), 0
        else:
            self._codec.flush_buffers()
        for at, packet in self._in_order:
            self._next = at + 1
            if at >= start:
                yield at, packet

    def _land(self, slot: int) -> tuple[int, Iterator[Packet[VideoStream]]] | None:
        """Seek to a keyframe; returns the position reached and the packets from there, or None."""
        keys = self.timeline.keys
        try:
            self._container.seek(int(self.timeline.stamps[keys[slot]]), stream=self._stream)
            packets = read_packets(self._container, self._stream)
            for packet in islice(packets, _LONGEST_SEEK):
                if packet.is_keyframe and (found := self._key_times.find(stamp_of(packet))) is not None:
                    return int(keys[found]), chain((packet,), packets)
        except FFmpegError as error:
            if shortage_of(error):
                raise
            return None
        return None

    def _nearest(self, position: int, slot: int) -> VideoFrame:
        """The decodable frame nearest in time to the one at `position`, from its group, the next or the previous."""
        check_memory()  # a decoder without memory may give no frame, and no error
        timeline = self.timeline
        index = timeline.index_of(position)
        best: tuple[int, int, VideoFrame] | None = None
        for start in (slot, slot + 1, slot - 1):
            if best or not 0 <= start < len(timeline.keys):
                continue
            for decoded, frame in self._decode(start, max(position, int(timeline.keys[start])) + _LOOK_AHEAD):
                other = timeline.index_of(decoded)
                if best is None or abs(other - index) < best[0]:
                    best = abs(other - index), other, frame
        if best is None:
            raise UnusableError(f"has no decodable frame near frame {index} of {len(timeline.order)}; {AGAIN}")
        self._replaced[index] = f"frame {index} cannot be decoded; frame {best[1]} is shown in its place"
        return best[2]
