"""Writes RGB frames to an MP4 file, in memory: without loss, or small, for a page that is sent to others."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

import av
import av.codec
from av.error import FFmpegError

from vrt_lite.errors import VideoError
from vrt_lite.video.frame_source import Pixels, Size

if TYPE_CHECKING:
    from vrt_lite.video import Clip

LOSSLESS: Final = "libx264rgb"
"""The encoder of `write_lossless`."""
MOST_BYTES: Final = 1_000_000
"""Bytes of a small copy."""
LONGEST_SIDE: Final = 480
MOST_FRAMES: Final = 300
"""Frames of a small copy: of a longer clip every second frame is taken, or every third, and so on."""
_TICK: Final = Fraction(1, 90_000)


def has_codec(name: str) -> bool:
    """Whether this build of PyAV has an encoder or a decoder."""
    return name in av.codec.codecs_available


def write_lossless(frames: Sequence[Pixels], *, frame_seconds: Fraction) -> bytes:
    """An MP4 of RGB frames (height, width, 3), each shown for `frame_seconds`: H.264 in RGB with a quantiser of 0.

    Every reader gets the same pixels and times from it, and every frame is a key frame. The time base is the
    denominator of `frame_seconds`, so that the frame rate is exact.
    """
    timed = {number * frame_seconds.numerator: pixels for number, pixels in enumerate(frames)}
    tick = Fraction(1, frame_seconds.denominator)
    height, width, _ = frames[0].shape
    return _encode(timed, (width, height), LOSSLESS, "rgb24", {"qp": "0", "g": "1"}, rate=1 / frame_seconds, tick=tick)


@dataclass(frozen=True, slots=True)
class SmallCopy:
    """A copy as the bytes of an MP4 file, without sound. It has every frame of the clip, or every `step`-th one."""

    data: bytes
    width: int
    height: int
    step: int


def write_small_copy(clip: Clip) -> SmallCopy:
    """Write a copy of a whole clip that every browser plays: upright, SDR, small, each frame at its own time.

    Nothing else of the file gets into it: no sound, no metadata. VideoError if there can be no copy.
    """
    step = -(-clip.info.frames // MOST_FRAMES)
    stored = clip.info.width, clip.info.height
    scale = min(1.0, LONGEST_SIDE / max(stored))
    frames = clip.frames(range(0, clip.info.frames, step), size=_scale(stored, scale))
    timed = {round(clip.seconds(index) / _TICK): pixels for index, pixels in frames.items()}
    rate = Fraction(clip.info.fps / step).limit_denominator(1001)
    most_bits = str(int(8 * 0.9 * MOST_BYTES / (clip.info.duration_seconds + 1)))  # a second, with a full buffer
    options = {"crf": "24", "g": "24", "maxrate": most_bits, "bufsize": most_bits}
    for shrink in (1, 2, 4, 8):  # noise may need more than that, however coarse it is
        size = _scale(stored, scale / shrink)
        try:
            data = _encode(timed, size, "libx264", "yuv420p", options, rate=rate, tick=_TICK)
        except (FFmpegError, ValueError) as error:  # ValueError: it is built without this encoder
            raise VideoError(clip.info.path, f"cannot be copied: {error}") from None
        if len(data) <= MOST_BYTES:
            return SmallCopy(data, *size, step)
    raise VideoError(clip.info.path, f"cannot be copied into {MOST_BYTES / 1e6:g} MB")


def _scale(size: Size, scale: float) -> Size:
    """Return a size with both sides scaled, and even, as 4:2:0 needs."""
    width, height = (max(round(length * scale / 2) * 2, 2) for length in size)
    return width, height


def _encode(
    timed: Mapping[int, Pixels],
    size: Size,
    encoder: str,
    layout: str,
    options: dict[str, str],
    *,
    rate: Fraction,
    tick: Fraction,
) -> bytes:
    """Encode RGB frames, by their times in ticks, at an even size. The same frames give the same bytes. FFmpegError."""
    file, (width, height) = io.BytesIO(), size
    # No B-frames: nothing is reordered, so that the file needs no edit list.
    options = {**options, "preset": "veryfast", "bf": "0", "threads": "1"}
    with cast(Any, av.open(file, "w", format="mp4", options={"fflags": "+bitexact"})) as container:
        stream = container.add_stream(
            encoder, rate, options, width=width, height=height, pix_fmt=layout, time_base=tick
        )
        for at, pixels in timed.items():
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.duration, frame.time_base = at, round(1 / rate / tick), tick
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()
