"""Reads the frames of a video file: its packets once for their times, then from the keyframe before a frame to it."""

from __future__ import annotations

import contextlib
import ctypes
from array import array
from collections.abc import Container, Generator, Iterable, Iterator
from fractions import Fraction
from itertools import chain, count, islice
from typing import Any, Final

import av
import av._core
import numpy as np
from av.error import FFmpegError
from av.packet import Packet
from av.stream import Discard, Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vrt_lite.shortage import shortage_of
from vrt_lite.video.frame_source import AGAIN, MAX_PIXELS, Frames, FrameSource, UnusableError, count_missing_bytes

MAX_FRAMES = 2_000_000
_NEAR = 48  # frames around one that does not decode that are searched for a replacement
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


class Reader(FrameSource):
    """A video file. Nothing outside may keep its container or stream: opening it again frees them."""

    _decoded = _damaged = 0

    def open(self) -> None:
        """Open the file, anew if it is open. UnusableError without a video track, or if the file was changed."""
        self.opened.close()
        try:
            # "file:" keeps a name from being read as a protocol, a device or an option.
            opened = av.open(f"file:{self.clip.files[0].absolute()}", "r", options=_OPTIONS, **_TOLERANT)
        except FFmpegError as error:
            raise UnusableError(
                f"cannot be opened ({error.strerror}): it is no video of a known kind (mp4, mov, mkv, webm, avi, ts, "
                "gif, webp), or is truncated, damaged or unfinished; copy it again, or convert it"
            ) from error
        self._container = self.opened.enter_context(opened)
        stream = opened.streams.best("video")
        # The codec context is typed as always there; it is None without a decoder. An attached picture is a cover.
        codec = getattr(stream, "codec_context", None)
        if not isinstance(stream, VideoStream) or codec is None or stream.disposition & Disposition.attached_pic:
            raise UnusableError(
                "holds no video track that can be decoded here, or is truncated; convert it, e.g. ffmpeg -i IN OUT.mp4"
            )
        if stream.width * stream.height > MAX_PIXELS:
            raise UnusableError(
                f"is {stream.width}x{stream.height}; at most {MAX_PIXELS} pixels (7680x4320) are read: "
                "shrink it first, e.g. ffmpeg -i IN -vf scale=1920:-2 OUT.mp4"
            )
        if stream.width * stream.height > _USUAL_PIXELS:
            _limit_allocations(MAX_PIXELS)
        for other in opened.streams:  # damage in another track does not matter
            if other.index != stream.index:
                other.discard = Discard.all
        self._stream, self._codec = stream, stream.codec_context
        self._codec.thread_type = "FRAME"
        # Two callers decode at once, and from one keyframe to a frame there is little parallel work. Each further
        # thread takes 10 MB at 1080p.
        self._codec.thread_count = self.threads
        # A frame's own header may claim more than the container did; alignment adds a little.
        self._codec.options = {"max_pixels": str(MAX_PIXELS + MAX_PIXELS // 8)}
        self.check_unchanged()

    def scan(self) -> None:
        """Read all packets once, without decoding, for their times.

        UnusableError if frames are missing there. Missing audio does not matter.
        """
        self.open()
        self.time_base = self._stream.time_base or Fraction(1)
        self.pixel_aspect = self._stream.sample_aspect_ratio or Fraction(1)
        self.declared_fps = float(self._stream.average_rate or 1)
        stamps, keys, hidden, undated, torn = array("q"), array("q"), array("q"), 0, False
        _check_count(len(self._stream.index_entries))  # what a whole index claims is refused before it is read
        for packet in islice(self._packets(), MAX_FRAMES + 1):
            stamp, position = _stamp_of(packet), len(stamps)
            undated += stamp is None and position == undated
            stamps.append(stamp if stamp is not None else stamps[-1] + 1 if stamps else 0)
            if packet.is_keyframe or not position:
                keys.append(position)
            # Decoded only for other frames: edit lists, VP8's invisible frames.
            if packet.is_discard or (self._codec.name == "vp8" and not bytes(packet)[0] & 0x10):
                hidden.append(position)
            torn = packet.is_corrupt
        indexed, kind = len(self._stream.index_entries), self._container.format.name
        _check_count(max(len(stamps), indexed))
        # The index of an MP4 in pieces has what was read of them.
        listed = indexed if kind.startswith("mov") else 0
        missing_bytes = count_missing_bytes(self.clip.files[0])
        if torn or len(stamps) < listed or (missing_bytes or 0) > 0:
            raise UnusableError(
                f"is truncated: it ends after frame {len(stamps)}{f' of {listed}' if listed else ''}; {AGAIN}"
            )
        if len(hidden) == len(stamps):
            raise UnusableError(f"holds no video frames, or is truncated; {AGAIN}")
        self._stamps, self._keys = np.array(stamps, np.int64), np.array(keys, np.int64)
        if undated < len(stamps):  # Matroska gives no time before zero
            self._stamps[:undated] += self._stamps[undated] - undated
        order = np.delete(np.arange(len(stamps)), np.array(hidden, np.int64))
        # AVI only counts frames, so that their times are not real where the codec reorders them.
        self._counted = kind == "avi" and self._codec.has_b_frames and bool((np.diff(self._stamps) > 0).all())
        self._order = order if self._counted else order[np.argsort(self._stamps[order], kind="stable")]
        self.ticks = self._stamps[self._order]
        self.starts = np.union1d([0], self.ticks.searchsorted(self._stamps[self._keys]))
        self.open_ended = missing_bytes is None and not 0 < listed <= self._stream.frames
        if self.open_ended:
            self.notes["end"] = "the file does not say how long it is, so a missing end would go unnoticed"

    def read(self, indices: Iterable[int]) -> Frames:
        """Yield (index, frame) for each of `indices`.

        A frame that does not decode is replaced by the nearest one that does, with a note. Raises UnusableError if
        there is none near it, or if most of what was decoded is damaged.
        """
        lost = yield from self.decode(indices, apart=True)
        for index in lost:
            near = self.decode(range(max(index - _NEAR, 0), min(index + _NEAR, len(self.ticks))))
            at, frame = min(near, key=lambda found: abs(found[0] - index), default=(0, None))
            if frame is None:
                raise UnusableError(f"has no decodable frame near frame {index} of {len(self.ticks)}; {AGAIN}")
            self.notes[str(index)] = f"frame {index} cannot be decoded; frame {at} is shown in its place"
            yield index, frame
        if self._damaged * 2 > self._decoded:
            raise UnusableError(f"is too damaged: {self._damaged} of {self._decoded} decoded frames; {AGAIN}")

    def decode(
        self, indices: Iterable[int], *, apart: bool = False
    ) -> Generator[tuple[int, VideoFrame], None, list[int]]:
        """Yield (index, frame) for those of `indices` that decode; return the others.

        apart: go from keyframe to keyframe, past what is not needed, instead of decoding all up to the last frame. If
        another frame than its keyframe comes first, a seek was inexact, or the keyframe only begins a gradual refresh.
        Then the rest is decoded from the first packet of the file on.
        """
        wanted = {int(self._order[index]): index for index in indices}
        groups = {self._find_key(position): position for position in sorted(wanted)}
        if self._counted:
            groups = {0: len(self._stamps) - 1}
        elif groups and not apart:
            groups = {min(groups): max(wanted)}
        for slot, last in sorted(groups.items()):
            exact = slot == 0
            for position, frame in self._decode_group(slot, last, wanted):
                exact = exact or self._stamps[position] <= self._stamps[self._keys[slot]]
                if not exact:
                    break
                if position in wanted:
                    yield wanted.pop(position), frame
            if wanted and not exact:
                for position, frame in self._decode_group(0, max(wanted), wanted):
                    if position in wanted:
                        yield wanted.pop(position), frame
                break
        return list(wanted.values())

    def _find_key(self, position: int) -> int:
        """Find at which of the keyframes to start, so that the packet at `position` decodes to its exact frame."""
        slot = int(self._keys.searchsorted(position, side="right")) - 1
        # It is shown before the keyframe that it follows (an open group of pictures): it needs the group before too.
        return max(slot - int(self._stamps[position] < self._stamps[self._keys[slot]]), 0)

    def _decode_group(self, slot: int, last: int, wanted: Container[int]) -> Frames:
        """Yield (position, frame), decoded from keyframe `slot` to the packet at `last`. A failure is counted.

        Then the decoder is drained, so that the frame of `last` needs no later packet. H.264 frames that are neither
        wanted nor a reference for others are skipped: with nal_ref_idc 0 nothing is predicted from them, so the rest
        is bit for bit the same. HEVC's "non-reference" means this only within a temporal layer, so HEVC is decoded in
        full.
        """
        output, skipping = count(), self._codec.name == "h264" and not self._counted
        start, found = self._reach(slot)
        for position, packet in chain(enumerate(islice(found, last + 1 - start), start), [(last, None)]):
            if packet:
                self._codec.skip_frame = "NONREF" if skipping and position not in wanted else "DEFAULT"
                # Decoders copy this to the frame, so that its packet is known even where times repeat or are missing.
                packet.pts = position
            try:
                frames = self._stream.decode(packet)  # pyright: ignore[reportUnknownMemberType]
            except FFmpegError as error:
                if shortage_of(error):
                    raise
                lost = not isinstance(error, EOFError)  # the decoder is drained
                self._decoded, self._damaged, frames = self._decoded + lost, self._damaged + lost, []
            for frame in frames:
                self._decoded += 1
                self._damaged += frame.is_corrupt
                at = next(output) if self._counted else frame.pts
                if at is not None and at < len(self._stamps):  # of two frames in a packet (DivX), the second has none
                    yield at, frame
        if self._damaged:
            self.notes["damaged"] = f"{self._damaged} of {self._decoded} decoded frames are damaged"

    def _reach(self, slot: int) -> tuple[int, Iterator[Packet[VideoStream]]]:
        """Return the position of keyframe `slot`, and the packets from there; none if no seek leads there."""
        start = int(self._keys[slot])
        stamp = self._stamps[start]
        if np.count_nonzero(self._stamps == stamp) == 1:
            with contextlib.suppress(FFmpegError):
                # MPEG-TS is sought by the time of decoding, which is earlier: the keyframe before is found for sure.
                self._container.seek(int(self._stamps[self._keys[max(slot - 1, 0)]]), stream=self._stream)
                packets = self._packets()
                for packet in packets:
                    found = _stamp_of(packet)
                    if packet.is_keyframe and found is not None and found >= stamp:
                        if found == stamp:
                            return start, chain((packet,), packets)
                        break
        if slot:
            return start, iter(())
        self.open()
        return 0, self._packets()

    def _packets(self) -> Iterator[Packet[VideoStream]]:
        """Yield the stream's packets; not the empty ones, which repeat a frame (AVI) or mark the end (PyAV)."""
        # PyAV 18.1 fails after the last packet, when it flushes a stream that appeared while reading (damaged MPEG-TS).
        with contextlib.suppress(IndexError):
            yield from (packet for packet in self._container.demux(self._stream) if packet.size)


def _check_count(frames: int) -> None:
    if frames > MAX_FRAMES:
        raise UnusableError(
            f"holds more than {MAX_FRAMES} frames; cut it first, e.g. ffmpeg -i IN -t 600 -c copy OUT.mp4"
        )


def _stamp_of(packet: Packet[VideoStream]) -> int | None:
    """Return when a packet is shown, else when it is decoded; None if neither is known or plausible."""
    stamp = packet.dts if packet.pts is None else packet.pts
    return stamp if stamp is not None and abs(stamp) < 1 << 62 else None
