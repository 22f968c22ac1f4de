"""The frames that a judge was shown, decoded again from the clips and kept small enough to be part of a page.

If a frame cannot be decoded, the page shows the reason; that is never an exception.
"""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True)
class EmbeddedFrame:
    """One frame as a picture in a page. `uri` is empty once the picture is in the page elsewhere."""

    id: str
    width: int
    height: int
    uri: str = ""


@dataclass(slots=True)
class FrameAlbum:
    """Pictures by clip (its sha256) and frame in the file, and why those of a clip are `absent`.

    `bytes_left` is what the pictures to come may take; `largest` is about the most that one of them takes.
    """

    bytes_left: int
    largest: int = 100_000
    frames: dict[tuple[str, int], EmbeddedFrame] = field(default_factory=dict[tuple[str, int], EmbeddedFrame])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    full: bool = False

    def embed(self, clip: JudgedClip, sources: Iterable[int], places: Sequence[Path]) -> Iterator[EmbeddedFrame]:
        """Make pictures of frames of a clip while there are bytes left. Each is returned once, and kept without `uri`.

        A clip that is gone, or is another than was judged, goes to `absent`.
        """
        missing = sorted({source for source in sources if (clip.sha256, source) not in self.frames})
        if not missing or clip.sha256 in self.absent or self.full:
            return
        try:
            for source, pixels in _decode(clip, missing, places):
                (width, height), data = _encode_jpeg(pixels, self.largest)
                if len(data) > self.bytes_left:
                    self.full = True
                    return
                self.bytes_left -= len(data)
                uri = f"data:image/jpeg;base64,{data.decode()}"
                frame = EmbeddedFrame(f"f{len(self.frames)}", width, height, uri)
                self.frames[clip.sha256, source] = replace(frame, uri="")
                yield frame
        except VideoError as error:
            self.absent[clip.sha256] = str(error)

    def embed_in_place(self, clip: JudgedClip, sources: Iterable[int], places: Sequence[Path]) -> None:
        """Make pictures that go where they are first shown: until then they stay in memory."""
        for frame in self.embed(clip, sources, places):
            [key] = [key for key, kept in self.frames.items() if kept.id == frame.id]
            self.frames[key] = frame

    def find(self, clip: JudgedClip, source: int) -> EmbeddedFrame | None:
        """Find the picture of a frame; None if there is none."""
        return self.frames.get((clip.sha256, source))

    def show(self, clip: JudgedClip, source: int) -> EmbeddedFrame | None:
        """Find the picture of a frame to show now; it has its `uri` if this is its first place."""
        found = self.find(clip, source)
        if found and found.uri:
            self.frames[clip.sha256, source] = replace(found, uri="")
        return found

    def explain(self, clip: JudgedClip) -> str:
        """Say why a frame of a clip is not there."""
        return self.absent.get(clip.sha256, "left out, to keep this page small")


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


def draw_frame(path: Path, source: int) -> bytes:
    """Draw one frame of a clip, by its number in the file, as a JPEG. VideoError if that cannot be done."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    with open_clip(path) as clip:
        if not 0 <= source < clip.info.frames:
            raise VideoError(path, f"has no frame {source}: it has {clip.info.frames}")
        scale = min(1.0, LONGEST_SIDE / max(clip.info.width, clip.info.height))
        size = (max(round(clip.info.width * scale), 1), max(round(clip.info.height * scale), 1))
        _, data = _encode_jpeg(clip.frames([source], size=size)[source], 100_000)
    return base64.b64decode(data)


def _encode_jpeg(pixels: NDArray[np.uint8], largest: int) -> tuple[tuple[int, int], bytes]:
    """Encode a picture so that it takes about `largest` bytes at most. Returns its size and its bytes in base64."""
    from PIL import Image

    whole = Image.fromarray(pixels)
    image, data = whole, b""
    for side, quality in _STEPS:
        image = whole.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        image.save(written, "JPEG", quality=quality, subsampling=0 if quality > 80 else 2, optimize=True)
        data = base64.b64encode(written.getvalue())
        if len(data) <= largest:
            break
    return image.size, data
