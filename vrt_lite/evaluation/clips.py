"""Where the clips that a table names lie. Knows names; opens no clip.

A published table comes from somewhere else: what it names is looked for inside the set's folder only. `..` is refused,
an absolute path outside the folder is looked for by its file name. In a user's own table both are followed. An address
is looked for by its file name, and a name that several files have is told apart by the folders above it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_DRIVE: Final = re.compile(r"[a-z]:/", re.IGNORECASE)
_BESIDE: Final = ("", "videos", "video", "clips")


class Clips:
    """The clips of one folder; with `anywhere`, also those that absolute and `..` paths lead to.

    The folder's files are listed once, and only when a clip is not where the table says.
    """

    def __init__(self, folder: Path, *, table: Path | None = None, anywhere: bool = False) -> None:
        self.folder = folder.absolute()
        self._anywhere = anywhere
        bases = [self.folder] if table is None else [self.folder, table.absolute().parent]
        self._bases = [base / name for base in dict.fromkeys(bases) for name in _BESIDE]
        self._listed: dict[str, list[Path]] | None = None
        self._found: dict[str, Path | str] = {}

    def find(self, named: str) -> Path | str:
        """The clip's path, or why there is none, in words. Looked for once: many pairs share a clip."""
        if named not in self._found:
            self._found[named] = self._find(named)
        return self._found[named]

    def _find(self, named: str) -> Path | str:
        parts = parts_of(named, leaving=self._anywhere)
        if isinstance(parts, str):
            return parts
        shown = named if len(named) < 200 else f"{named[:199]}…"
        if is_rooted(named):
            direct = Path(named)
            reached = self._anywhere or direct.is_relative_to(self.folder)
            if reached and not _ADDRESS.match(named) and _is_file(direct):
                return direct
        else:
            for base in self._bases:
                if _is_file(path := base.joinpath(*parts)):
                    return path
        return self._by_name(parts, shown)

    def _by_name(self, parts: tuple[str, ...], shown: str) -> Path | str:
        """The file of that name whose folders agree the longest; nothing if two agree alike."""
        found = self._names().get(parts[-1], [])
        if not found:
            return f"{shown!r} is not in {self.folder}"
        agreeing = [(_agreeing(path.parts, parts), path) for path in found]
        best = max(length for length, _ in agreeing)
        [first, *more] = [path for length, path in agreeing if length == best]
        if more:
            return f"{shown!r} may be {first} or {more[0]}: keep the folders that the table names"
        return first

    def _names(self) -> dict[str, list[Path]]:
        if self._listed is None:
            self._listed = {}
            for path in _files(self.folder):
                self._listed.setdefault(path.name, []).append(path)
        return self._listed


def parts_of(named: str, *, leaving: bool = False) -> tuple[str, ...] | str:
    """The path's parts below its root or host; or why it is refused. `leaving` allows `..`."""
    path = unquote(urlsplit(named).path) if _ADDRESS.match(named) else named.replace("\\", "/")
    parts = tuple(part for part in PurePosixPath(_DRIVE.sub("/", path, count=1)).parts if part != "/")
    parts = tuple(part for part in parts if part != "//")
    if ".." in parts and not leaving:
        return f"{named[:200]!r} leaves the folder ('..') and is refused"
    if not parts or "\0" in path:
        return f"{named[:200]!r} is no file name"
    return parts


def is_rooted(named: str) -> bool:
    """Whether a name is an address, or absolute on any system."""
    return bool(_ADDRESS.match(named) or _DRIVE.match(named.replace("\\", "/"))) or named.startswith(("/", "\\"))


def _agreeing(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    length = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        length += 1
    return length


def _files(folder: Path) -> Iterator[Path]:
    """Every file below; links to folders are followed once, so that none leads in a circle."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
