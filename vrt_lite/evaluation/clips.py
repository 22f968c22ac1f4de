"""Finds the clips that a table names. No clip is opened.

A published table comes from another machine: its clips are searched inside the set's folder only. `..` is refused, and
an absolute path outside the folder is searched by its file name. In a user's own table both are followed. An address is
searched by its file name. If several files have that name, the folders above them decide.
"""

from __future__ import annotations

import os
import re
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from vrt_lite.clip_files import is_clip_there

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_ROOT: Final = re.compile(r"^(?:[a-z]:/|/+)", re.IGNORECASE)
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
        self.find = cache(self._find)  # searched once: many pairs share a clip

    def _find(self, name: str) -> Path | str:
        """Return the clip's path, or why there is none."""
        parts = parts_of(name, leaving=self._anywhere)
        if isinstance(parts, str):
            return parts
        if _ADDRESS.match(name):
            direct = []
        elif _ROOT.match(name.replace("\\", "/")):
            direct = [Path(name)] if self._anywhere or Path(name).is_relative_to(self.folder) else []
        else:
            direct = [base.joinpath(*parts) for base in self._bases]
        found = next(filter(is_clip_there, direct), None)
        return found or self._find_by_name(parts, name if len(name) < 200 else f"{name[:199]}…")

    def _find_by_name(self, parts: tuple[str, ...], shown: str) -> Path | str:
        """Return the file of that name whose folders agree most, or why there is none or more than one."""
        agreeing = {path: _count_common(path.parts, parts) for path in self._paths_by_name.get(parts[-1], ())}
        if not agreeing:
            return f"{shown!r} is not in {self.folder}"
        first, *more = [path for path, count in agreeing.items() if count == max(agreeing.values())]
        return f"{shown!r} may be {first} or {more[0]}: keep the folders that the table names" if more else first

    @cached_property
    def _paths_by_name(self) -> dict[str, list[Path]]:
        """Every file below the folder; each linked folder is visited once, so that no link leads in a circle."""
        found: dict[str, list[Path]] = {}
        visited: set[str] = set()
        for place, folders, names in os.walk(self.folder, followlinks=True):
            if (real := os.path.realpath(place)) in visited:
                folders.clear()
                continue
            visited.add(real)
            folders.sort()
            for name in names:
                found.setdefault(name, []).append(Path(place, name))
        return found


def parts_of(name: str, *, leaving: bool = False) -> tuple[str, ...] | str:
    """Return the path's parts below its root or host, or why it is refused. `leaving` allows `..`."""
    path = unquote(urlsplit(name).path) if _ADDRESS.match(name) else name.replace("\\", "/")
    parts = PurePosixPath(_ROOT.sub("", path)).parts
    if ".." in parts and not leaving:
        return f"{name[:200]!r} leaves the folder ('..') and is refused"
    if not parts or "\0" in path:
        return f"{name[:200]!r} is no file name"
    return parts


def _count_common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Count the parts at the end that two paths have in common."""
    alike = (a == b for a, b in zip(reversed(one), reversed(other), strict=False))
    return sum(1 for _ in takewhile(bool, alike))
