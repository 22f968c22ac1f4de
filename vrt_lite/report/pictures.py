"""The frames that were shown, decoded again from the clips and kept small enough to be part of a page.

Knows where a clip may lie, whether it still is the clip that was judged, and how large a picture may be. Refuses to
know HTML beyond a data URI. What cannot be had is a reason to show, never an exception.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.errors import VideoError
from vrt_lite.report.case import Footage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST_SIDE = 480
_STEPS = ((LONGEST_SIDE, 85), (LONGEST_SIDE, 70), (384, 60), (320, 50), (240, 40), (160, 30))
"""Longest side in pixels and JPEG quality; the first that fits is taken."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One frame to embed. `uri` is empty once it is written to the page apart from its place."""

    id: str
    width: int
    height: int
    uri: str = ""


@dataclass(slots=True)
class Album:
    """Pictures by clip (its sha256) and frame in the file, and why others are not there. `room` is bytes to come."""

    room: int
    most: int = 100_000
    pictures: dict[tuple[str, int], Picture] = field(default_factory=dict[tuple[str, int], Picture])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    full: bool = False
    _placed: set[str] = field(default_factory=set[str])

    def add(self, clip: Footage, sources: Iterable[int], places: Sequence[Path]) -> Iterator[Picture]:
        """Embed frames of a clip while there is room; each is given once, with its `uri`, and kept without.

        A clip that is gone, or is another than was judged, goes to `absent`.
        """
        missing = sorted({source for source in sources if (clip.sha256, source) not in self.pictures})
        if not missing or clip.sha256 in self.absent:
            return
        if self.full:
            return
        try:
            for source, pixels in _decode(clip, missing, places):
                size, data = _jpeg(pixels, self.most)
                if len(data) > self.room:
                    self.full = True
                    return
                self.room -= len(data)
                picture = Picture(f"f{len(self.pictures)}", *size, f"data:image/jpeg;base64,{data.decode()}")
                self.pictures[clip.sha256, source] = Picture(picture.id, picture.width, picture.height)
                yield picture
        except VideoError as error:
            self.absent[clip.sha256] = str(error)

    def keep(self, clip: Footage, sources: Iterable[int], places: Sequence[Path]) -> None:
        """Embed frames of a clip where they are first shown: they stay in memory until then."""
        for picture in self.add(clip, sources, places):
            [key] = [key for key, known in self.pictures.items() if known.id == picture.id]
            self.pictures[key] = picture

    def find(self, clip: Footage, source: int) -> Picture | None:
        """The picture of a frame, if it is embedded."""
        return self.pictures.get((clip.sha256, source))

    def place(self, picture: Picture) -> bool:
        """Whether this is the picture's first place, where its bytes go."""
        first = bool(picture.uri) and picture.id not in self._placed
        self._placed.add(picture.id)
        return first

    def why(self, clip: Footage) -> str:
        """Why a frame of a clip is not there."""
        return self.absent.get(clip.sha256, "left out, to keep this page small")


def places_of(clip: Footage, beside: Path | None, *, known: str = "") -> list[Path]:
    """Where a clip may lie: where it is `known` to, as it was given, relative to the folder `beside`, in it."""
    try:
        given = Path(clip.path)
        candidates = [*([Path(known)] if known else []), given]
        candidates += [beside / given, beside / clip.name] if beside else []
        return [path for path in dict.fromkeys(candidates) if path.is_file()]
    except (OSError, ValueError):  # a name that this system cannot have
        return []


def _decode(clip: Footage, sources: Sequence[int], places: Sequence[Path]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Frames by their number in the file, at the size that the model saw, or smaller."""
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    if not places:
        raise VideoError(f"no longer at {clip.path}")
    scale = min(1.0, LONGEST_SIDE / max(*clip.shown, 1))
    size = (max(round(clip.shown[0] * scale), 1), max(round(clip.shown[1] * scale), 1))
    for path in places:
        with open_clip(path) as opened:
            if opened.info.sha256 != clip.sha256:
                continue
            wanted = [source for source in sources if source < opened.info.frames]
            yield from opened.frames(wanted, size=size).items()
            return
    raise VideoError("the clip has changed since it was judged")


def _jpeg(pixels: NDArray[np.uint8], most: int) -> tuple[tuple[int, int], bytes]:
    """Size and base64 bytes of a picture, at most about `most` of them."""
    from PIL import Image

    whole = Image.fromarray(pixels)
    image, data = whole, b""
    for side, quality in _STEPS:
        image = whole.copy()
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        image.save(written, "JPEG", quality=quality, subsampling=0 if quality > 80 else 2, optimize=True)
        data = base64.b64encode(written.getvalue())
        if len(data) <= most:
            break
    return image.size, data
