"""Reads the frames of a video file: its packets once for their times, then from the keyframe before a frame to it."""

from __future__ import annotations

import contextlib
import ctypes
from array import array
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain, count, islice
from typing import Any, Final

import av
import av._core
import numpy as np
from av.error import FFmpegError
from av.packet import Packet
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vrt_lite.clip_files import ClipFiles
from vrt_lite.shortage import shortage_of
from vrt_lite.video.frame_source import AGAIN, MAX_PIXELS, FrameSource, UnusableError, count_missing_bytes

MAX_FRAMES = 500_000
# Containers that hold one video and nothing else: no playlists, no image sequences, no devices.
_OPTIONS: Final = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts",
    "max_streams": "16",
}
# PyAV 18 raises over a title that is not UTF-8 unless an option forbids it; PyAV 19 no longer takes the argument.
_TOLERANT: dict[str, Any] = {"metadata_errors": "replace"} if av.__version__.startswith("18.") else {}

# A file may claim any number of samples in a few bytes, and FFmpeg makes room for all of them: let it allocate no more
# at once than a picture takes in 16-bit RGB. Where the function is not found (Windows), only the worker's limit of
# memory is left.
with contextlib.suppress(AttributeError, OSError):
    ctypes.CDLL(av._core.__file__).av_max_alloc(ctypes.c_size_t(8 * MAX_PIXELS))


class Reader(FrameSource):
    """A video file. Nothing outside may keep its container or stream: opening it again frees them."""

    def __init__(self, clip: ClipFiles) -> None:
        super().__init__(clip)
        self._file = clip.files[0].absolute()
        self._decoded = self._damaged = 0

    def open(self) -> None:
        """Open the file, anew if it is open. UnusableError without a video track that can be decoded."""
        self.opened.close()
        try:
            # "file:" keeps a name from being read as a protocol, a device or an option.
            opened = av.open(f"file:{self._file}", "r", options=_OPTIONS, **_TOLERANT)
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
                f"is {stream.width}x{stream.height}; at most {MAX_PIXELS} pixels (4096x2304) are read: "
                "shrink it first, e.g. ffmpeg -i IN -vf scale=1920:-2 OUT.mp4"
            )
        self._stream, self._codec = stream, stream.codec_context
        self._codec.thread_type = "FRAME"
        # Two callers decode at once, and from one keyframe to a frame there is little parallel work. Each further
        # thread takes 10 MB at 1080p.
        self._codec.thread_count = 2
        # A frame's own header may claim more than the container did; alignment adds a little.
        self._codec.options = {"max_pixels": str(MAX_PIXELS + MAX_PIXELS // 8)}

    def scan(self) -> list[str]:
        """Read all packets once, without decoding, for their times. Returns warnings about the end of the file.

        UnusableError if frames are missing there. Missing audio does not matter.
        """
        self.open()
        self.time_base = self._stream.time_base or Fraction(1)
        self.pixel_aspect = self._stream.sample_aspect_ratio or Fraction(1)
        stamps, shown, keys, torn = array("q"), array("q"), dict[int, int](), False
        for packet in islice(self._packets(), MAX_FRAMES + 1):
            stamp = _stamp_of(packet)
            if stamp is None:  # Matroska has no time before zero
                stamp = stamps[-1] if stamps else -1
            stamps.append(stamp)
            if packet.is_keyframe:
                keys[stamp] = stamp if packet.dts is None else packet.dts
            # Others are decoded only for other frames: edit lists, VP8's invisible frames.
            if not (packet.is_discard or (self._codec.name == "vp8" and not bytes(packet)[0] & 0x10)):
                shown.append(stamp)
            torn = packet.is_corrupt
        indexed, kind = len(self._stream.index_entries), self._container.format.name
        if max(len(stamps), indexed) > MAX_FRAMES:
            raise UnusableError(
                f"holds more than {MAX_FRAMES} frames; cut it first, e.g. ffmpeg -i IN -t 600 -c copy OUT.mp4"
            )
        # The index of an MP4 in pieces has what was read of them.
        listed = indexed if kind.startswith("mov") else 0
        missing_bytes = count_missing_bytes(self._file)
        if torn or len(stamps) < listed or (missing_bytes or 0) > 0:
            raise UnusableError(
                f"is truncated: it ends after frame {len(stamps)}{f' of {listed}' if listed else ''}; {AGAIN}"
            )
        if not shown:
            raise UnusableError(f"holds no video frames, or is truncated; {AGAIN}")
        self.ticks = np.sort(np.array(shown, np.int64))
        # AVI only counts frames, so that their times are not real where the codec reorders them.
        reordered = kind == "avi" and self._codec.has_b_frames and list(stamps) == sorted(stamps)
        counted = reordered or len(set(stamps)) < len(stamps)
        self._keys = {} if counted else keys
        self._numbers = {} if counted else {stamp: number for number, stamp in enumerate(self.ticks.tolist())}
        self.starts = np.union1d([0], np.flatnonzero(np.isin(self.ticks, list(self._keys))))
        self.open_ended = missing_bytes is None and not 0 < listed <= self._stream.frames
        return ["the file does not say how long it is, so a missing end would go unnoticed"] if self.open_ended else []

    def decode(self, indices: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame) for each of `indices`, in order, those that cannot be decoded left out.

        If another frame than its keyframe comes first, a seek was inexact, or the keyframe only begins a gradual
        refresh. Then the rest is decoded from the first packet of the file on. Raises UnusableError at the end if a
        frame was left out, or most of what was decoded is damaged.
        """
        runs: list[tuple[int, list[int]]] = []
        for index in sorted(indices):
            start = self.start_before(index)
            if runs and start <= runs[-1][1][-1] + 1:
                runs[-1][1].append(index)
            else:
                runs.append((start, [index]))
        lost: list[int] = []
        while runs:
            start, run = runs.pop(0)
            left = set(run)
            for index, frame in self._decode_run(start, run):
                if index > start > 0:
                    break
                start = 0
                if index in left:
                    left.remove(index)
                    yield index, frame
                if not left:
                    break
            if start:
                runs = [(0, [*run, *(index for _, later in runs for index in later)])]
            else:
                lost += left
        if lost or self._damaged * 2 > self._decoded:
            damage = f"{self._damaged} of {self._decoded} decoded frames, and {len(lost)} frames are missing"
            raise UnusableError(f"is too damaged: {damage}; {AGAIN}")

    def _decode_run(self, start: int, run: Iterable[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (index, frame), decoded from keyframe `start` until the decoder has all that a run of frames needs.

        Then the decoder is drained, so that they need no later packet. H.264 frames that are neither wanted nor a
        reference for others are skipped: with nal_ref_idc 0 nothing is predicted from them, so the rest is bit for bit
        the same. HEVC's "non-reference" means this only within a temporal layer, so HEVC is decoded in full.
        """
        wanted, left, counter = frozenset(run), set(run), count()
        for packet in self._reach(start):
            # Decoders copy this to the frame.
            packet.pts = number = self._numbers.get(_stamp_of(packet), -1)
            skipped = self._codec.name == "h264" and self._numbers and number not in wanted
            self._codec.skip_frame = "NONREF" if skipped else "DEFAULT"
            yield from self._send(packet, counter)
            left.discard(number)
            if not left:
                break
        yield from self._send(None, counter)

    def _send(self, packet: Packet[VideoStream] | None, counter: Iterator[int]) -> Iterator[tuple[int, VideoFrame]]:
        """Give the decoder a packet, None for the last; yield the frames that come. A failure is counted."""
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
            index = frame.pts if self._numbers else next(counter)
            if index is not None and index >= 0:  # of two frames in a packet (DivX), the second has none
                yield index, frame
        if self._damaged:
            self.notes["damaged"] = f"{self._damaged} of {self._decoded} decoded frames are damaged"

    def _reach(self, start: int) -> Iterator[Packet[VideoStream]]:
        """Yield the packets from keyframe `start` on; from the first one of the file if no seek leads there."""
        stamp = int(self.ticks[start])
        if (place := self._keys.get(stamp)) is not None:
            with contextlib.suppress(FFmpegError):
                self._container.seek(place, stream=self._stream)
            packets = self._packets()
            for packet in packets:
                if _stamp_of(packet) == stamp:
                    yield from chain((packet,), packets)
                    return
        self.open()
        yield from self._packets()

    def _packets(self) -> Iterator[Packet[VideoStream]]:
        """Yield the stream's packets; not the empty ones, which repeat a frame (AVI) or mark the end (PyAV)."""
        # PyAV 18.1 fails after the last packet, when it flushes a stream that appeared while reading (damaged MPEG-TS).
        with contextlib.suppress(IndexError):
            yield from (packet for packet in self._container.demux(self._stream) if packet.size)


def _stamp_of(packet: Packet[VideoStream]) -> int | None:
    """Return when a packet is shown, else when it is decoded; None if neither is known."""
    return packet.dts if packet.pts is None else packet.pts
