"""Ranks the clips of folders while they are being rendered: a loop over a ranking, begun anew when the folders change.

The same run goes on when it is started again. It ends by an interrupt, or when its budget is spent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from vrt_lite.interfaces import TimeRange
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.folder_watch import POLL_SECONDS, FolderState, FolderWatch
from vrt_lite.ranking.rank import (
    Label,
    RankWatcher,
    RankWork,
    begin_ranking,
    judge_missing,
    rate_work,
)
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.records.ladders import ExcludedClip, Ranking
from vrt_lite.records.pairs import Result
from vrt_lite.records.progress import Progress
from vrt_lite.runs.judging import PairJudge
from vrt_lite.runs.store import Store


class FolderWatcher(RankWatcher, Protocol):
    """Gets the progress of a ranking, and what changes in its folders."""

    def changed(self, group: ClipGroup, progress: Progress, waiting: Mapping[Path, str], /) -> None:
        """Called when a clip came, changed or went, or is waited for; `waiting` says why it is."""
        ...


def watch_folders(
    watch: FolderWatch,
    *,
    prompt: str,
    store: Store,
    judge: PairJudge,
    watcher: FolderWatcher,
    effort: Effort | None = None,
    name: str | None = None,
    jobs: int = 1,
    poll_seconds: float = POLL_SECONDS,
) -> Ranking:
    """Rank the clips of the folders until an interrupt, or until the budget is spent. Returns the ranking by then.

    `name` is the run's name; by default it is made from the folders, the prompt and the judge. A clip that is gone is
    left out, and its judgements are kept. A clip that was changed is another clip. UsageError if a run of that name was
    made with another judge or prompt. Raises what the judge raises.
    """
    effort, name = effort or Effort(), name or _name_run(watch, prompt, judge.key())
    looks = _Looks(watch, judge, watcher, poll_seconds)

    def begin() -> RankWork:
        group = Group("", prompt, looks.state.ready)
        return begin_ranking([group], store=store, judge=judge, watcher=looks, effort=effort, name=name, least_clips=0)

    work = begin()
    found = sum(1 for _ in work.run.all_results())
    with contextlib.suppress(KeyboardInterrupt):
        while effort.budget is None or effort.count(work.groups)[0] < effort.budget:
            looks.wait()
            work = begin()
            judge_missing(work, store=store, judge=judge, watcher=looks, jobs=jobs, go_on=looks.find_unchanged)
    ranking = rate_work(work)
    waiting = (ExcludedClip(path, "", why, broken=False) for path, why in looks.state.waiting.items())
    ladders = tuple(ladder for ladder in ranking.ladders if len(ladder.clips) > 1)
    return replace(ranking, ladders=ladders, left_out=(*waiting, *ranking.left_out), found=found)


class _Looks:
    """Looks at the folders between two judgements, and ends a ranking whose clips are not those that are there."""

    def __init__(self, watch: FolderWatch, judge: PairJudge, watcher: FolderWatcher, poll_seconds: float) -> None:
        self.state = FolderState()
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
        self._ranked = self.state.ready
        self._told = groups[0], progress
        self._watcher.changed(*self._told, self.state.waiting)

    def judged(self, label: Label, result: Result, progress: Progress, /) -> None:
        """Tell of a judgement."""
        self._told = self._told[0], progress
        self._watcher.judged(label, result, progress)

    def find_unchanged(self) -> bool:
        """Look at the folders, if it is time; return whether the clips that are whole are those that are ranked."""
        if time.monotonic() >= self._due:
            before, self.state = self.state, self._watch.look(self._judge.look_at)
            self._due = time.monotonic() + self._poll_seconds
            if self.state.ready == self._ranked and self.state != before:
                self._watcher.changed(*self._told, self.state.waiting)
        return self.state.ready == self._ranked


def _name_run(watch: FolderWatch, prompt: str, judge_key: str) -> str:
    """Return a name that is the same for the same folders, prompt and judge."""
    facts = [judge_key, prompt, *sorted(str(folder.absolute()) for folder in watch.folders)]
    return f"watch-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]}"
