"""The frames that a judge was shown, decoded again from the clips and kept small enough to be part of a page.

If a frame cannot be decoded, the page shows the reason; that is never an exception.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.clip_files import is_clip_there
from vrt_lite.decoder import LARGEST, Decoder
from vrt_lite.errors import VideoError

if TYPE_CHECKING:
    from vrt_lite.records.judgement import JudgedClip


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

    decoder: Decoder
    bytes_left: int
    largest: int = LARGEST
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
            for drawn in self.decoder.draw_judged(clip, places, missing, largest=self.largest):
                data = base64.b64encode(drawn.data).decode()
                if len(data) > self.bytes_left:
                    self.full = True
                    return
                self.bytes_left -= len(data)
                uri = f"data:image/jpeg;base64,{data}"
                frame = EmbeddedFrame(f"f{len(self.frames)}", drawn.width, drawn.height, uri)
                self.frames[clip.sha256, drawn.source] = replace(frame, uri="")
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
