"""Finds the clips that a table names. No clip is opened.

A published table comes from another machine: its clips are searched inside the set's folder only. `..` is refused, and
an absolute path outside the folder is searched by its file name. In a user's own table both are followed. An address is
searched by its file name. If several files have that name, the folders above them decide.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from vrt_lite.clip_files import is_clip_there

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
        self._found: dict[str, Path | str] = {}

    def find(self, name: str) -> Path | str:
        """Return the clip's path, or why there is none. Searched once: many pairs share a clip."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Path | str:
        parts = parts_of(name, leaving=self._anywhere)
        if isinstance(parts, str):
            return parts
        shown = name if len(name) < 200 else f"{name[:199]}…"
        if _is_rooted(name):
            direct = Path(name)
            reached = self._anywhere or direct.is_relative_to(self.folder)
            if reached and not _ADDRESS.match(name) and is_clip_there(direct):
                return direct
        else:
            for base in self._bases:
                if is_clip_there(path := base.joinpath(*parts)):
                    return path
        return self._by_name(parts, shown)

    def _by_name(self, parts: tuple[str, ...], shown: str) -> Path | str:
        """Return the file of that name whose folders agree most, or why there is none or more than one."""
        found = self._paths_by_name.get(parts[-1], [])
        if not found:
            return f"{shown!r} is not in {self.folder}"
        agreeing = {path: _count_common(reversed(path.parts), reversed(parts)) for path in found}
        [first, *more] = [path for path, count in agreeing.items() if count == max(agreeing.values())]
        if more:
            return f"{shown!r} may be {first} or {more[0]}: keep the folders that the table names"
        return first

    @cached_property
    def _paths_by_name(self) -> dict[str, list[Path]]:
        paths: dict[str, list[Path]] = {}
        for path in _files(self.folder):
            paths.setdefault(path.name, []).append(path)
        return paths


def parts_of(name: str, *, leaving: bool = False) -> tuple[str, ...] | str:
    """Return the path's parts below its root or host, or why it is refused. `leaving` allows `..`."""
    path = unquote(urlsplit(name).path) if _ADDRESS.match(name) else name.replace("\\", "/")
    parts = tuple(part for part in PurePosixPath(_DRIVE.sub("/", path, count=1)).parts if part != "/")
    parts = tuple(part for part in parts if part != "//")
    if ".." in parts and not leaving:
        return f"{name[:200]!r} leaves the folder ('..') and is refused"
    if not parts or "\0" in path:
        return f"{name[:200]!r} is no file name"
    return parts


def _is_rooted(name: str) -> bool:
    """Return whether a name is an address, or absolute on any system."""
    return bool(_ADDRESS.match(name) or _DRIVE.match(name.replace("\\", "/"))) or name.startswith(("/", "\\"))


def _count_common(one: Iterable[str], other: Iterable[str]) -> int:
    """Count the parts that two paths have in common before the first that differs."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _files(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder; each linked folder is visited once, so that no link leads in a circle."""
    visited: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)
