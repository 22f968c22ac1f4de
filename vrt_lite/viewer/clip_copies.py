"""Small copies of clips as parts of a page, so that the page can be sent without its clips.

If a clip cannot be copied, the page shows the reason; that is never an exception.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vrt_lite.decoder import Decoder
from vrt_lite.errors import VideoError

if TYPE_CHECKING:
    from vrt_lite.records.judgement import JudgedClip

COPY_BYTES: Final = 48 * 2**20
"""Bytes of all copies in a page, as text."""


def _say_nothing(_: str) -> None:
    pass


@dataclass(slots=True)
class ClipCopies:
    """The copies of a page: the id of each one (by the clip's sha256), and what there is to say of it.

    `say` gets what is done now, in a line.
    """

    say: Callable[[str], None] = _say_nothing
    bytes_left: int = COPY_BYTES
    ids: dict[str, str] = field(default_factory=dict[str, str])
    notes: dict[str, str] = field(default_factory=dict[str, str])

    def embed(self, clip: JudgedClip, places: Sequence[Path], decoder: Decoder) -> str:
        """Make a copy of a clip, as a data URI. Returns an empty text, and notes why, if there can be none."""
        from vrt_lite.video.small_copy import MOST_BYTES  # noqa: PLC0415 - PyAV only for a copy

        if self.bytes_left < MOST_BYTES * 4 // 3:
            self.notes[clip.sha256] = "it is left out, to keep this page small"
            return ""
        self.say(f"copying {clip.name} into the report")
        try:
            copy = decoder.copy_judged(clip, places)
        except VideoError as error:
            self.notes[clip.sha256] = str(error)
            return ""
        uri = f"data:video/mp4;base64,{base64.b64encode(copy.data).decode()}"
        self.bytes_left -= len(uri)
        self.ids[clip.sha256] = f"v{len(self.ids)}"
        every = f", every {_ordinal(copy.step)} frame" if copy.step > 1 else ""
        self.notes[clip.sha256] = f"a small copy: {copy.width} × {copy.height}{every}"
        return uri


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"{number}{ending}"
