"""Writes a small copy of a clip, for a page that is sent to others: a short H.264 file that every browser plays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from av.error import FFmpegError

from vrt_lite.errors import VideoError
from vrt_lite.video.encoding import encode_mp4, has_codec

if TYPE_CHECKING:
    from vrt_lite.video import Clip

MOST_BYTES: Final = 1_000_000
"""Bytes of a copy."""
LONGEST_SIDE: Final = 480
MOST_FRAMES: Final = 300
"""Frames of a copy: of a longer clip every second frame is taken, or every third, and so on."""
_ENCODER = "libx264"
_STEPS = ((LONGEST_SIDE, 24), (LONGEST_SIDE, 30), (360, 34), (240, 38), (160, 44))
"""Longest side in pixels, and x264's rate factor: the first that fits is taken."""
_TICK = Fraction(1, 90_000)


@dataclass(frozen=True, slots=True)
class SmallCopy:
    """A copy as the bytes of an MP4 file, without sound. It has every frame of the clip, or every `step`-th one."""

    data: bytes
    width: int
    height: int
    step: int


def write_small_copy(clip: Clip) -> SmallCopy:
    """Write a copy of a whole clip: upright, SDR, at most `MOST_BYTES` long, each frame at its own time.

    Nothing else of the file gets into it: no sound, no metadata. VideoError if there can be no copy.
    """
    if not has_codec(_ENCODER):
        raise VideoError(clip.info.path, f"cannot be copied: this build of PyAV has no encoder {_ENCODER}")
    step = -(-clip.info.frames // MOST_FRAMES)
    stored = clip.info.width, clip.info.height
    frames = clip.frames(range(0, clip.info.frames, step), size=_fit(stored, LONGEST_SIDE))
    for side, factor in _STEPS:
        width, height = _fit(stored, side)
        try:
            data = encode_mp4(
                ((round(clip.seconds(index) / _TICK), pixels) for index, pixels in frames.items()),
                encoder=_ENCODER,
                options={"crf": str(factor), "preset": "veryfast", "g": "24", "bf": "0"},
                pix_fmt="yuv420p",
                size=(width, height),
                rate=Fraction(clip.info.fps / step).limit_denominator(1001),
                tick=_TICK,
            )
        except FFmpegError as error:
            raise VideoError(clip.info.path, f"cannot be copied: {error.strerror}") from None
        if len(data) <= MOST_BYTES:
            return SmallCopy(data, width, height, step)
    raise VideoError(clip.info.path, f"cannot be copied into {MOST_BYTES / 1e6:g} MB")


def _fit(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return the size with its longer side at most `side`; both sides are even, as 4:2:0 needs."""
    scale = min(1.0, side / max(size))
    width, height = (max(round(length * scale / 2) * 2, 2) for length in size)
    return width, height
