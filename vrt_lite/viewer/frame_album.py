"""The frames that a judge was shown, decoded again from the clips and kept small enough to be part of a page.

If a frame cannot be decoded, the page shows the reason; that is never an exception.
"""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.clip_files import is_clip_there
from vrt_lite.errors import VideoError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.records.judgement import JudgedClip
    from vrt_lite.video import Clip

LONGEST_SIDE = 480
_STEPS = ((LONGEST_SIDE, 85), (LONGEST_SIDE, 70), (384, 60), (320, 50), (240, 40), (160, 30))
"""Longest side in pixels and JPEG quality; the first that fits is taken."""


@dataclass(slots=True)
class FrameAlbum:
    """The ids of pictures by clip (its sha256) and frame in the file, and why those of a clip are `absent`.

    `bytes_left` is what the pictures to come may take; `largest` is about the most that one of them takes.
    """

    bytes_left: int
    largest: int = 100_000
    frames: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    full: bool = False
    count: int = 0

    def embed(self, clip: JudgedClip, sources: Iterable[int], places: Sequence[Path]) -> Iterator[tuple[str, str]]:
        """Make pictures of frames of a clip while there are bytes left. Yields the id and the data URI of each, once.

        A clip that is gone, or is another than was judged, goes to `absent`.
        """
        made = self.frames.setdefault(clip.sha256, {})
        missing = sorted(set(sources) - made.keys())
        if not missing or clip.sha256 in self.absent or self.full:
            return
        try:
            for source, pixels in _decode(clip, missing, places):
                data = _encode_jpeg(pixels, self.largest)
                if len(data) > self.bytes_left:
                    self.full = True
                    return
                self.bytes_left -= len(data)
                made[source] = f"f{self.count}"
                self.count += 1
                yield made[source], f"data:image/jpeg;base64,{data.decode()}"
        except VideoError as error:
            self.absent[clip.sha256] = str(error)


def find_places(clip: JudgedClip, beside: Path | None, *, known: str = "") -> list[Path]:
    """Find where a clip may lie: at the path `known`, where it was judged, relative to the folder `beside`, in it."""
    try:
        given = Path(clip.path)
        candidates = [*([Path(known)] if known else []), given]
        candidates += [beside / given, beside / clip.name] if beside else []
        return [path for path in dict.fromkeys(candidates) if is_clip_there(path)]
    except (OSError, ValueError):  # a name that this system cannot have
        return []


def _decode(
    clip: JudgedClip, sources: Sequence[int], places: Sequence[Path]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Decode frames by their number in the file, at the size that the model saw, or smaller.

    VideoError if no file has the content that was judged.
    """
    scale = min(1.0, LONGEST_SIDE / max(*clip.shown_size, 1))
    size = (max(round(clip.shown_size[0] * scale), 1), max(round(clip.shown_size[1] * scale), 1))
    with open_judged_clip(clip, places) as opened:
        there = [source for source in sources if source < opened.info.frames]
        yield from opened.frames(there, size=size).items()


@contextlib.contextmanager
def open_judged_clip(clip: JudgedClip, places: Sequence[Path]) -> Generator[Clip]:
    """Open the first file that has the content that was judged. VideoError if none has."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    if not places:
        raise VideoError(clip.path, "is no longer there")
    for path in places:
        with open_clip(path) as opened:
            if opened.info.sha256 == clip.sha256:
                yield opened
                return
    raise VideoError(clip.path, "has changed since it was judged")


def draw_frame(path: Path, source: int | None) -> bytes:
    """Draw one frame of a clip as a JPEG: by its number in the file, or the middle one. VideoError if that fails."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    with open_clip(path) as clip:
        source = clip.info.frames // 2 if source is None else source
        if not 0 <= source < clip.info.frames:
            raise VideoError(path, f"has no frame {source}: it has {clip.info.frames}")
        scale = min(1.0, LONGEST_SIDE / max(clip.info.width, clip.info.height))
        size = (max(round(clip.info.width * scale), 1), max(round(clip.info.height * scale), 1))
        return base64.b64decode(_encode_jpeg(clip.frames([source], size=size)[source], 100_000))


def _encode_jpeg(pixels: NDArray[np.uint8], largest: int) -> bytes:
    """Encode a picture so that it takes about `largest` bytes at most. Returns its bytes in base64."""
    from PIL import Image

    whole, data = Image.fromarray(pixels), b""
    for side, quality in _STEPS:
        image = whole.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        image.save(written, "JPEG", quality=quality, subsampling=0 if quality > 80 else 2, optimize=True)
        data = base64.b64encode(written.getvalue())
        if len(data) <= largest:
            break
    return data
