"""Ranks the clips of folders while they are being rendered: a loop over a ranking, begun anew when the folders change.

The same run goes on when it is started again. It ends by an interrupt, or when its budget is spent. Folders are polled,
as this works on every system and on network drives. A file that is being written is waited for.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.interfaces import TimeRange
from vrt_lite.ranking.entries import Group, list_videos
from vrt_lite.ranking.rank import Label, RankWatcher, RankWork
from vrt_lite.ranking.rank_run import ALL_PAIRS, ClipGroup, Effort
from vrt_lite.records.ladders import ExcludedClip, Progress, Ranking
from vrt_lite.records.pairs import Result
from vrt_lite.runs.store import Store

if TYPE_CHECKING:
    from vrt_lite.api import Judge
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

    def look(self, look_at: Callable[[Path], ClipLook]) -> tuple[tuple[Path, ...], dict[Path, str]]:
        """List the folders, and look at what has settled. `look_at` opens a clip, and raises VideoError.

        Returns the clips that are whole, in order of arrival, and why the others are waited for.
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
        waiting = {path: seen.fault for path, seen in self._seen.items() if seen.fault}
        return tuple(path for path in self._seen if path not in waiting), waiting


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


class FolderWatcher(RankWatcher, Protocol):
    """Gets the progress of a ranking, and what changes in its folders."""

    def changed(self, group: ClipGroup, progress: Progress, waiting: Mapping[Path, str], /) -> None:
        """Called when a clip came, changed or went, or is waited for; `waiting` says why it is."""


def watch_folders(
    watch: FolderWatch,
    *,
    prompt: str,
    store: Store,
    judge: Judge,
    watcher: FolderWatcher,
    effort: Effort = ALL_PAIRS,
    name: str | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> Ranking:
    """Rank the clips of the folders until an interrupt, or until the budget is spent. Returns the ranking by then.

    `name` is the run's name; by default it is made from the folders, the prompt and the judge. A clip that is gone is
    left out, and its judgements are kept. A clip that was changed is another clip. UsageError if a run of that name was
    made with another judge or prompt. Raises what the judge raises.
    """
    name = name or _name_run(watch, prompt, judge.key())
    looks = _Looks(watch, judge, watcher, poll_seconds)

    begin = functools.partial(
        RankWork, store=store, judge=judge, watcher=looks, effort=effort, name=name, least_clips=0
    )
    work, found = begin([Group("", prompt, ())]), None
    with contextlib.suppress(KeyboardInterrupt):
        while effort.budget is None or work.count()[0] < effort.budget:
            looks.wait()
            work = begin([Group("", prompt, looks.ready)])
            found = work.found if found is None else found
            work.judge_missing(looks.find_unchanged)
    ranking = work.rate()
    waiting = (ExcludedClip(path, "", why) for path, why in looks.waiting.items())
    ladders = tuple(ladder for ladder in ranking.ladders if len(ladder.clips) > 1)
    return replace(ranking, ladders=ladders, left_out=(*waiting, *ranking.left_out), found=found or 0)


class _Looks:
    """Looks at the folders between two judgements, and ends a ranking whose clips are not those that are there."""

    def __init__(self, watch: FolderWatch, judge: Judge, watcher: FolderWatcher, poll_seconds: float) -> None:
        self.ready: tuple[Path, ...] = ()
        self.waiting: Mapping[Path, str] = {}
        self.observe = watcher.observe
        self._watch, self._judge, self._watcher, self._poll_seconds = watch, judge, watcher, poll_seconds
        self._due = 0.0
        self._ranked: tuple[Path, ...] = ()
        self._told = ClipGroup("", "", ()), Progress(0, 0)

    def wait(self) -> None:
        """Wait until clips came, changed or went."""
        while self.find_unchanged():
            time.sleep(max(self._due - time.monotonic(), 0))

    def begins(self, groups: Sequence[ClipGroup], progress: Progress, predicted: TimeRange | None, /) -> None:
        """Tell which clips are there."""
        self._ranked = self.ready
        self._told = groups[0], progress
        self._watcher.changed(*self._told, self.waiting)

    def judged(self, label: Label, result: Result, progress: Progress, /) -> None:
        """Tell of a judgement."""
        self._told = self._told[0], progress
        self._watcher.judged(label, result, progress)

    def find_unchanged(self) -> bool:
        """Look at the folders, if it is time; return whether the clips that are whole are those that are ranked."""
        if time.monotonic() >= self._due:
            before = self.waiting
            self.ready, self.waiting = self._watch.look(self._judge.look_at)
            self._due = time.monotonic() + self._poll_seconds
            if self.ready == self._ranked and self.waiting != before:
                self._watcher.changed(*self._told, self.waiting)
        return self.ready == self._ranked


def _name_run(watch: FolderWatch, prompt: str, judge_key: str) -> str:
    """Return a name that is the same for the same folders, prompt and judge."""
    facts = [judge_key, prompt, *sorted(str(folder.absolute()) for folder in watch.folders)]
    return f"watch-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]}"
