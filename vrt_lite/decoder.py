"""Decodes clips in a process of its own, for a page: a file that ends the decoder ends nothing else."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from vrt_lite.errors import VideoError, WorkerEndedError
from vrt_lite.worker import Worker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.records.judgement import JudgedClip
    from vrt_lite.video import Clip
    from vrt_lite.video.small_copy import SmallCopy

_T = TypeVar("_T")
_MOST_SECONDS: Final = 300.0
LONGEST_SIDE: Final = 480
LARGEST: Final = 100_000
"""About the most bytes of a picture, as the text that a page holds."""
_STEPS = ((LONGEST_SIDE, 85), (LONGEST_SIDE, 70), (384, 60), (320, 50), (240, 40), (160, 30))
"""Longest side in pixels and JPEG quality; the first that fits is taken."""


@dataclass(frozen=True, slots=True)
class DrawnFrame:
    """A frame of a clip, by its number in the file, as a JPEG."""

    source: int
    width: int
    height: int
    data: bytes


class Decoder:
    """What a page asks of clips; a context manager. The process begins when it is needed. Methods raise VideoError.

    A clip that was judged is the first file of its `places` that has the content that was judged.
    """

    def __init__(self) -> None:
        self._worker = Worker()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def check(self, path: Path) -> None:
        """Open a clip, and decode its first frame."""
        self._call(path, _check, path)

    def draw_frame(self, path: Path, source: int | None) -> bytes:
        """Draw one frame of a clip as a JPEG: by its number in the file, or the middle one."""
        return self._call(path, _draw_frame, path, source)

    def draw_judged(
        self, clip: JudgedClip, places: Sequence[Path], sources: Sequence[int], *, largest: int
    ) -> list[DrawnFrame]:
        """Draw those frames that a judged clip has, at the size that the model saw, or smaller."""
        return self._call(Path(clip.path), _draw_judged, clip, places, sources, largest)

    def copy(self, path: Path) -> bytes:
        """Make a small copy of a clip that every browser plays."""
        return self._call(path, _copy, path)

    def copy_judged(self, clip: JudgedClip, places: Sequence[Path]) -> SmallCopy:
        """Make a small copy of a judged clip."""
        return self._call(Path(clip.path), _copy_judged, clip, places)

    def _call(self, path: Path, function: Callable[..., _T], *args: Any) -> _T:
        try:
            return self._worker.call(function, *args, seconds=_MOST_SECONDS)
        except WorkerEndedError as error:
            raise VideoError(path, f"cannot be decoded: {error}") from error


def _check(path: Path) -> None:
    from vrt_lite.video import open_clip  # noqa: PLC0415 - in the worker alone

    open_clip(path).close()


def _draw_frame(path: Path, source: int | None) -> bytes:
    from vrt_lite.video import open_clip  # noqa: PLC0415

    with open_clip(path) as clip:
        source = clip.info.frames // 2 if source is None else source
        drawn = _draw(clip, [source], (clip.info.width, clip.info.height), LARGEST)
        if not drawn:
            raise VideoError(path, f"has no frame {source}: it has {clip.info.frames}")
    return drawn[0].data


def _draw_judged(clip: JudgedClip, places: Sequence[Path], sources: Sequence[int], largest: int) -> list[DrawnFrame]:
    with _open_judged(clip, places) as opened:
        return _draw(opened, sources, clip.shown_size, largest)


def _copy(path: Path) -> bytes:
    from vrt_lite.video import open_clip  # noqa: PLC0415
    from vrt_lite.video.small_copy import write_small_copy  # noqa: PLC0415

    with open_clip(path) as clip:
        return write_small_copy(clip).data


def _copy_judged(clip: JudgedClip, places: Sequence[Path]) -> SmallCopy:
    from vrt_lite.video.small_copy import write_small_copy  # noqa: PLC0415

    with _open_judged(clip, places) as opened:
        return write_small_copy(opened)


@contextlib.contextmanager
def _open_judged(clip: JudgedClip, places: Sequence[Path]) -> Generator[Clip]:
    """Open the first file that has the content that was judged. VideoError if none has."""
    from vrt_lite.video import open_clip  # noqa: PLC0415

    if not places:
        raise VideoError(clip.path, "is no longer there")
    for path in places:
        with open_clip(path) as opened:
            if opened.info.sha256 == clip.sha256:
                yield opened
                return
    raise VideoError(clip.path, "has changed since it was judged")


def _draw(clip: Clip, sources: Sequence[int], shown_size: tuple[int, int], largest: int) -> list[DrawnFrame]:
    """Draw the frames that the clip has, within the longest side of a picture."""
    scale = min(1.0, LONGEST_SIDE / max(*shown_size, 1))
    size = (max(round(shown_size[0] * scale), 1), max(round(shown_size[1] * scale), 1))
    frames = clip.frames([source for source in sources if 0 <= source < clip.info.frames], size=size)
    return [_encode_jpeg(source, pixels, largest) for source, pixels in frames.items()]


def _encode_jpeg(source: int, pixels: NDArray[np.uint8], largest: int) -> DrawnFrame:
    """Encode a frame so that it takes about `largest` bytes at most, as text."""
    from PIL import Image

    whole = Image.fromarray(pixels)
    image, data = whole, b""
    for side, quality in _STEPS:
        image = whole.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        image.save(written, "JPEG", quality=quality, subsampling=0 if quality > 80 else 2, optimize=True)
        data = written.getvalue()
        if 4 * -(-len(data) // 3) <= largest:
            break
    return DrawnFrame(source, *image.size, data)
