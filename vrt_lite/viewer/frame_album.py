"""The frames that a judge was shown, decoded again from the clips and kept small enough to be part of a page.

If a frame cannot be decoded, the page shows the reason; that is never an exception.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.clip_files import is_clip_there
from vrt_lite.decoder import LARGEST, Decoder
from vrt_lite.errors import VideoError

if TYPE_CHECKING:
    from vrt_lite.records.judgement import JudgedClip


@dataclass(slots=True)
class FrameAlbum:
    """The ids of pictures by clip (its sha256) and frame in the file, and why those of a clip are `absent`.

    `bytes_left` is what the pictures to come may take; `largest` is about the most that one of them takes.
    """

    decoder: Decoder
    bytes_left: int
    largest: int = LARGEST
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
            for drawn in self.decoder.draw_judged(clip, places, missing, largest=self.largest):
                data = base64.b64encode(drawn.data).decode()
                if len(data) > self.bytes_left:
                    self.full = True
                    return
                self.bytes_left -= len(data)
                made[drawn.source] = f"f{self.count}"
                self.count += 1
                yield made[drawn.source], f"data:image/jpeg;base64,{data}"
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
