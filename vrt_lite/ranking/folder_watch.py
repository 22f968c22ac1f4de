"""Watches folders for clips: new, changed and deleted ones. A file that is being written is waited for.

Polls, as this works on every system and on network drives.
"""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.ranking.entries import list_videos

if TYPE_CHECKING:
    from vrt_lite.pair_frames import ClipLook

POLL_SECONDS: Final = 1.0
SETTLED_SECONDS: Final = 2.0
"""A file is opened when its size and time have been the same for so long."""
OPEN_ENDED_SECONDS: Final = 30.0
"""The same for a file that does not say how long it is, so that opening it does not show whether it is whole."""
_LONGEST_PAUSE_SECONDS: Final = 60.0
BEING_WRITTEN: Final = "is still being written"

_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class _Seen:
    """A file, since when its size and time are the same, when to open it, and why it is not ready ("" if it is)."""

    stamp: _Stamp
    since: float
    due: float
    fault: str = BEING_WRITTEN


@dataclass(frozen=True, slots=True)
class FolderState:
    """The clips of the folders: those that are whole, in order of arrival, and why the others are waited for."""

    ready: tuple[Path, ...] = ()
    waiting: dict[Path, str] = field(default_factory=dict[Path, str])


class FolderWatch:
    """Looks at folders again and again. Between two looks nothing is open."""

    def __init__(self, folders: Sequence[str], *, settled_seconds: float = SETTLED_SECONDS) -> None:
        """Take folders alone; UsageError for anything else."""
        self.folders = [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise UsageError(f"--watch needs folders, and {str(folder)!r} is none: give the folder of the renders.")
        self._settled_seconds = settled_seconds
        self._seen: dict[Path, _Seen] = {}

    def look(self, look_at: Callable[[Path], ClipLook]) -> FolderState:
        """List the folders, look at what has settled, and return the clips that are there now.

        `look_at` opens a clip, and raises VideoError.
        """
        now = time.monotonic()
        found: dict[Path, _Stamp] = {}
        for folder in self.folders:
            with contextlib.suppress(OSError):  # it may be back later
                found |= {path: stamp for path in list_videos(folder) if (stamp := _stamp(path))}
        for path in self._seen.keys() - found.keys():
            del self._seen[path]
        for path, stamp in found.items():
            seen = self._seen.get(path)
            if seen is None or seen.stamp != stamp:
                self._seen[path] = _Seen(stamp, now, now + self._settled_seconds)
            elif seen.fault and now >= seen.due:
                _open(path, seen, now, look_at)
        ready = tuple(path for path, seen in self._seen.items() if not seen.fault)
        return FolderState(ready, {path: seen.fault for path, seen in self._seen.items() if seen.fault})


def _open(path: Path, seen: _Seen, now: float, look_at: Callable[[Path], ClipLook]) -> None:
    """Open a file that has settled, and note whether it is whole. One that is not is opened again later, ever less."""
    settled_seconds = now - seen.since
    try:
        open_ended = look_at(path).open_ended
    except VideoError as error:
        seen.fault, seen.due = error.reason, now + min(settled_seconds, _LONGEST_PAUSE_SECONDS)
        return
    if open_ended and settled_seconds < OPEN_ENDED_SECONDS:
        seen.due = seen.since + OPEN_ENDED_SECONDS
    elif _stamp(path) == seen.stamp:
        seen.fault = ""


def _stamp(path: Path) -> _Stamp | None:
    """Return a regular file's size, time and number; None for anything else, and for what is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino) if stat.S_ISREG(status.st_mode) else None
