"""Keeps what was measured of a clip by its content, so that a clip is measured once in its life.

    FOLDER/<sha256>-<version>.measures   a digest of the rest of the file, then JSON

Files are written whole, without a lock; two processes write the same. One that fails its check counts as absent. When
there are too many, those that were not used for longest are deleted. A disk that cannot be written is no failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from vrt_lite.disk import draft_of, home
from vrt_lite.measures.clip_measures import LOOK, VERSION, ClipMeasures
from vrt_lite.measures.definitions import DEFINITIONS
from vrt_lite.reading import read_json

MOST_FILES: Final = 20_000
"""About 60 MB."""
_LARGEST_BYTES = 100_000
_MOST_IN_MEMORY = 500
_NAME = re.compile(r"[0-9a-f]{64}-\d+\.measures")
_LOOK_BYTES = LOOK[0] * LOOK[1] * LOOK[2]


def measures_folder() -> Path:
    """The user's folder for measures; it may not exist yet."""
    return home() / "measures"


class KeptMeasures:
    """The measures in a folder, or in memory, by the clip's sha256. Several threads may use them."""

    def __init__(self, folder: Path | None) -> None:
        """Take a folder; None keeps those of the last clips in memory."""
        self._folder = folder
        self._known: dict[str, ClipMeasures] = {}
        self._swept = False

    def get(self, sha256: str) -> ClipMeasures | None:
        """Return what was measured of a clip; None if it was not, or by other measures, or if the file is damaged."""
        if not self._folder:
            return self._known.get(sha256)
        path = _place(self._folder, sha256)
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
                return None
            digest, _, data = path.read_bytes().partition(b"\n")
            if digest == _digest(sha256, data):
                found = read_json(data, ClipMeasures)
                if found.values.keys() == DEFINITIONS.keys() and len(found.look) == _LOOK_BYTES:
                    os.utime(path)
                    return found
        return None

    def put(self, sha256: str, measures: ClipMeasures) -> None:
        """Keep what was measured of a clip."""
        if not self._folder:
            self._known[sha256] = measures
            for oldest in list(self._known)[:-_MOST_IN_MEMORY]:
                self._known.pop(oldest, None)
            return
        data = msgspec.json.encode(measures)
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._swept:
                self._swept = True
                _sweep(self._folder)
            with draft_of(_place(self._folder, sha256)) as draft:
                draft.write_bytes(_digest(sha256, data) + b"\n" + data)


def _place(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}-{VERSION}.measures"


def _sweep(folder: Path) -> None:
    files = sorted(list_files(folder), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: max(len(files) - MOST_FILES, 0)]:
        file.unlink(missing_ok=True)


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files of measures in a folder; none if it does not exist."""
    with contextlib.suppress(OSError):
        yield from (path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())


def clear(folder: Path) -> None:
    """Delete the files of measures in a folder, and nothing else. Raises OSError."""
    for file in list_files(folder):
        file.unlink(missing_ok=True)


def _digest(sha256: str, data: bytes) -> bytes:
    return hashlib.blake2b(sha256.encode() + data, digest_size=16).hexdigest().encode()
