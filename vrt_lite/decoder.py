"""Decodes clips in a process of its own, for a page: a file that ends the decoder ends nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from vrt_lite.errors import VideoError, WorkerEndedError
from vrt_lite.worker import Worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.records.judgement import JudgedClip
    from vrt_lite.video import Clip
    from vrt_lite.video.encoding import SmallCopy

_T = TypeVar("_T")
_MOST_SECONDS: Final = 300.0
LONGEST_SIDE: Final = 480
LARGEST: Final = 100_000
"""About the most bytes of a picture, as the text that a page holds."""
_STEPS = ((LONGEST_SIDE, 85), (LONGEST_SIDE, 70), (384, 60), (320, 50), (240, 40), (160, 30))
"""Longest side in pixels and JPEG quality; the first that fits is taken."""


class Decoder(Worker):
    """What a page asks of clips, in a worker. Methods raise VideoError.

    A clip that was judged is the first file of its `places` that has the content that was judged.
    """

    def check(self, path: Path) -> None:
        """Open a clip, and decode its first frame."""
        self._call(_check, [path])

    def draw_frame(self, path: Path, source: int | None) -> bytes:
        """Draw one frame of a clip as a JPEG: by its number in the file, or the middle one."""
        return self._call(_draw_frame, [path], source)

    def draw_judged(
        self, clip: JudgedClip, places: Sequence[Path], sources: Sequence[int], *, largest: int
    ) -> dict[int, bytes]:
        """Draw those frames that a judged clip has, at the size that the model saw, or smaller: JPEGs by number."""
        return self._call(_draw, places, sources, clip.shown_size, largest, judged=clip)

    def copy(self, places: Sequence[Path], judged: JudgedClip | None = None) -> SmallCopy:
        """Make a small copy of a clip that every browser plays."""
        return self._call(_copy, places, judged=judged)

    def _call(
        self, function: Callable[..., _T], places: Sequence[Path], *args: Any, judged: JudgedClip | None = None
    ) -> _T:
        """Call a function of an open clip in the process."""
        try:
            return self.call(_open_and_call, function, places, judged, args, seconds=_MOST_SECONDS)
        except WorkerEndedError as error:
            raise VideoError(judged.path if judged else places[0], f"cannot be decoded: {error}") from error


def _open_and_call(
    function: Callable[..., _T], places: Sequence[Path], judged: JudgedClip | None, args: tuple[Any, ...]
) -> _T:
    from vrt_lite.video import open_clip  # noqa: PLC0415 - in the worker alone

    for path in places:
        with open_clip(path) as clip:
            if judged is None or clip.info.sha256 == judged.sha256:
                return function(clip, *args)
    gone = "has changed since it was judged" if places else "is no longer there"
    raise VideoError(judged.path if judged else "", gone)


def _check(_: Clip) -> None:
    """It is open."""


def _draw_frame(clip: Clip, source: int | None) -> bytes:
    source = clip.info.frames // 2 if source is None else source
    drawn = _draw(clip, [source], (clip.info.width, clip.info.height), LARGEST)
    if not drawn:
        raise VideoError(clip.info.path, f"has no frame {source}: it has {clip.info.frames}")
    return drawn[source]


def _copy(clip: Clip) -> SmallCopy:
    from vrt_lite.video.encoding import write_small_copy  # noqa: PLC0415

    return write_small_copy(clip)


def _draw(clip: Clip, sources: Sequence[int], shown_size: tuple[int, int], largest: int) -> dict[int, bytes]:
    """Draw the frames that the clip has, within the longest side of a picture."""
    scale = min(1.0, LONGEST_SIDE / max(*shown_size, 1))
    size = (max(round(shown_size[0] * scale), 1), max(round(shown_size[1] * scale), 1))
    frames = clip.frames([source for source in sources if 0 <= source < clip.info.frames], size=size)
    return {source: _encode_jpeg(pixels, largest) for source, pixels in frames.items()}


def _encode_jpeg(pixels: NDArray[np.uint8], largest: int) -> bytes:
    """Encode a frame so that it takes about `largest` bytes at most, as text."""
    from PIL import Image

    whole, data = Image.fromarray(pixels), b""
    for side, quality in _STEPS:
        image = whole.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        image.save(written, "JPEG", quality=quality, subsampling=0 if quality > 80 else 2, optimize=True)
        data = written.getvalue()
        if 4 * -(-len(data) // 3) <= largest:
            break
    return data
