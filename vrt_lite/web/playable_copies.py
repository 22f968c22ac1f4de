"""Small MP4 copies of clips that a browser cannot play as they are: pictures, GIF, WebP, and files of older kinds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from vrt_lite.clip_files import stamp_clip
from vrt_lite.decoder import Decoder
from vrt_lite.disk import write_file

_PLAYED: Final = frozenset((".mp4", ".m4v", ".mov", ".webm"))
_MOST_COPIES: Final = 200
"""Each takes 1 MB at most."""


def is_played(path: Path) -> bool:
    """Return whether browsers play a clip as it is, by its name."""
    return path.suffix.lower() in _PLAYED


class PlayableCopies:
    """The copies, in a folder of the server's own. One is made at a time."""

    def __init__(self, folder: Path, decoder: Decoder) -> None:
        self._folder = folder
        self._decoder = decoder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def copy(self, clip: Path, opened: Path) -> Path:
        """Return the copy of a clip, `opened` by `ClipStore.open`; it is made at the first call.

        Raises OSError; VideoError if there can be none.
        """
        stamp, _ = stamp_clip(opened)
        name = hashlib.sha256(f"{clip}\n{stamp}".encode("utf-8", "surrogateescape")).hexdigest()
        copy = self._folder / f"{name}.mp4"
        if not copy.is_file():
            write_file(copy, self._decoder.copy(opened))
            self._remove_oldest()
        return copy

    def _remove_oldest(self) -> None:
        copies = sorted(self._folder.glob("*.mp4"), key=lambda copy: copy.stat().st_mtime)
        for copy in copies[:-_MOST_COPIES]:
            copy.unlink(missing_ok=True)
