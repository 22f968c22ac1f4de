"""The clips of a page: which of their frames were shown, pictures of these, small copies, and where the clips are.

If a clip cannot be decoded, the page shows the reason; that is never an exception.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TextIO
from urllib.parse import quote

from vrt_lite.clip_files import is_clip_there
from vrt_lite.decoder import LARGEST, Decoder
from vrt_lite.errors import VideoError
from vrt_lite.viewer.page_file import write_data

if TYPE_CHECKING:
    from vrt_lite.records.judgement import JudgedClip, Judgement, PlainData

COPY_BYTES: Final = 48 * 2**20
"""Bytes of all copies in a page, as text."""


@dataclass(frozen=True, slots=True)
class ShownClip:
    """A clip, and which of its frames were shown: in first rounds, and because the judge asked for them."""

    clip: JudgedClip
    first: set[int] = field(default_factory=set[int])
    called: set[int] = field(default_factory=set[int])

    @property
    def middle(self) -> int:
        """The frame that stands for the clip."""
        return sorted(self.first or {0})[len(self.first) // 2]


def list_shown(judgements: Iterable[Judgement]) -> dict[str, ShownClip]:
    """List the clips of judgements, by their sha256."""
    found: dict[str, ShownClip] = {}
    for judgement in judgements:
        clips = [found.setdefault(clip.sha256, ShownClip(clip)) for clip in judgement.inputs]
        for this in (of for order in judgement.orders for of in order.rounds):
            for frame in this.frames:
                clip = clips[frame.video - 1]
                (clip.first if this.number == 1 else clip.called).add(frame.source_frame)
    return found


def find_places(
    clip: JudgedClip, beside: Path | None = None, known: Mapping[str, str] = MappingProxyType({})
) -> list[Path]:
    """Find where a clip may lie: at the path `known` for its sha256, where it was judged, in the folder `beside`."""
    candidates = [known.get(clip.sha256) or clip.path, clip.path]
    candidates += [beside / clip.path, beside / clip.name] if beside else []
    try:
        return [path for path in dict.fromkeys(map(Path, candidates)) if is_clip_there(path)]
    except (OSError, ValueError):  # a name that this system cannot have
        return []


@dataclass(slots=True)
class ClipMedia:
    """Writes pictures and copies of clips into the file of a `page`.

    `bytes_left` is what the pictures to come may take, and `largest` about the most that one of them takes. `find` says
    where a clip may lie. With `embed` the page has small copies of clips, and it is told what is done now.
    """

    file: TextIO
    page: Path
    decoder: Decoder
    bytes_left: int
    largest: int = LARGEST
    find: Callable[[JudgedClip], list[Path]] = find_places
    embed: Callable[[str], None] | None = None
    copy_bytes_left: int = COPY_BYTES
    frames: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    _numbers: count[int] = field(default_factory=count)

    def draw(self, clip: JudgedClip, sources: Iterable[int]) -> None:
        """Write pictures of frames of a clip while there are bytes left, each once."""
        made = self.frames.setdefault(clip.sha256, {})
        wanted = sorted(set(sources) - made.keys())
        if not wanted or clip.sha256 in self.missing or not self.bytes_left:
            return
        try:
            drawn = self.decoder.draw_judged(clip, self.find(clip), wanted, largest=self.largest)
            for source, picture in drawn.items():
                data = base64.b64encode(picture).decode()
                if len(data) > self.bytes_left:
                    self.bytes_left = 0
                    return
                self.bytes_left -= len(data)
                made[source] = self._write("f", f"data:image/jpeg;base64,{data}")
        except VideoError as error:
            self.missing[clip.sha256] = str(error)

    def place(self, of: ShownClip) -> PlainData:
        """Say where a clip is: a copy in the page, which is written now, or its own file.

        That is the film's address, "#id" for what is in the page, empty if it cannot be played; `frames`, ids of
        pictures by frame, or the beginning of their addresses; `note`, which copy is played or why none is; `missing`,
        why there are no pictures; and `middle`, the frame that stands for the clip.
        """
        clip, missing = of.clip, self.missing.get(of.clip.sha256, "")
        places = self.find(clip)
        note = ""
        if self.embed:
            self.embed(f"copying {clip.name} into the report")
            address, note = self._copy(clip, places)
        else:
            address = make_address(places[0], self.page) if places and not missing else ""
        frames = self.frames.get(clip.sha256, {})
        return {"address": address, "frames": frames, "note": note, "missing": missing, "middle": of.middle}

    def _copy(self, clip: JudgedClip, places: Sequence[Path]) -> tuple[str, str]:
        """Write a copy of a clip. Returns its address and what there is to say of it; no address if there is none."""
        from vrt_lite.video.encoding import MOST_BYTES  # noqa: PLC0415 - PyAV only for a copy

        if self.copy_bytes_left < MOST_BYTES * 4 // 3:
            return "", "it is left out, to keep this page small"
        try:
            copy = self.decoder.copy(places, clip)
        except VideoError as error:
            return "", str(error)
        uri = f"data:video/mp4;base64,{base64.b64encode(copy.data).decode()}"
        self.copy_bytes_left -= len(uri)
        every = f", one frame in {copy.step}" if copy.step > 1 else ""
        return f"#{self._write('v', uri)}", f"a small copy: {copy.width} × {copy.height}{every}"

    def _write(self, kind: str, uri: str) -> str:
        name = f"{kind}{next(self._numbers)}"
        write_data(self.file, name, uri)
        return name


def place_served(address: str) -> PlainData:
    """Say where a server's page has a clip, as `ClipMedia.place` does for a report."""
    frames = f"{address.removesuffix('.mp4')}/frames/" if address else dict[int, str]()
    missing = "" if address else "it is no longer where it was judged, has changed, or is in no allowed folder"
    return {"address": address, "frames": frames, "missing": missing, "middle": "middle"}


def make_address(clip: Path, page: Path) -> str:
    """Make a clip's address from a page: relative, so that both can be moved; a file URL if it is on another drive."""
    try:
        relative = Path(os.path.relpath(clip.absolute(), page.absolute().parent)).as_posix()
    except ValueError:
        return clip.absolute().as_uri()
    # What a file system gives as bytes goes back as bytes. "./" keeps a name like "data:x" from being a scheme.
    return "./" + quote(os.fsencode(relative))
