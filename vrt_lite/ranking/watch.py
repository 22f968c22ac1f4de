"""Ranks the clips of folders while they are being rendered: each new clip is judged when it is whole.

The same run goes on when it is started again. It ends by an interrupt, or when its budget is spent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vrt_lite.ranking.clip_groups import ClipGroup, find_members
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.folder_watch import POLL_SECONDS, FolderState, FolderWatch
from vrt_lite.ranking.judgements_left import JudgementsLeft
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.measured_clips import measure_clips
from vrt_lite.ranking.participants import ExcludedClip, Participants, drop_flagged, flag_clips, gather_clips
from vrt_lite.ranking.rank import (
    Ranking,
    RankProgress,
    RankWatcher,
    count_died,
    count_unread,
    missing_orders,
    next_orders,
)
from vrt_lite.ranking.rank_run import Effort, describe_run, identify_run
from vrt_lite.records.pairs import Result
from vrt_lite.runs.judging import PairJudge, Task, judge_all
from vrt_lite.runs.store import Run, Store

if TYPE_CHECKING:
    from vrt_lite.runs.identity import Identity

_Pair = tuple[str, str]


class FolderWatcher(RankWatcher, Protocol):
    """Gets the progress of a ranking, and what changes in its folders."""

    def changed(self, group: ClipGroup, done: int, most: int, waiting: Mapping[Path, str], /) -> None:
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
    effort = (effort or Effort()).for_judge(judge)
    identity = identify_run([ClipGroup("", prompt, ())], judge)
    run = store.begin(name or _name_run(watch, prompt, identity.judge), kind="rank", identity=identity)
    work = _WatchedRun(watch, prompt, store, run, judge, identity, watcher, effort, poll_seconds)
    with contextlib.suppress(KeyboardInterrupt):
        judge_all(work.choose_tasks(), run, store=store, judge=judge, jobs=jobs, done=work.add, observe=watcher.observe)
    return work.finish()


class _WatchedRun:
    """The clips, the results by the contents of their two clips, and what was chosen to be judged."""

    def __init__(
        self,
        watch: FolderWatch,
        prompt: str,
        store: Store,
        run: Run,
        judge: PairJudge,
        identity: Identity,
        watcher: FolderWatcher,
        effort: Effort,
        poll_seconds: float,
    ) -> None:
        self._watch, self._prompt, self._store, self._run, self._judge = watch, prompt, store, run, judge
        self._identity, self._watcher, self._effort = identity, watcher, effort
        self._poll_seconds = poll_seconds
        self._due = 0.0
        self._state: FolderState | None = None
        self._participants = Participants((ClipGroup("", prompt, ()),), ())
        self._results: dict[_Pair, Result] = {
            (result.first, result.second): result for result in run.all_results() if result.prompt == prompt
        }
        self._chosen: set[_Pair] = set(self._results)
        self._found = len(self._results)

    @property
    def _group(self) -> ClipGroup:
        return self._participants.groups[0]

    def choose_tasks(self) -> Iterator[Task | None]:
        """Yield what to judge next, None if nothing is to be judged now. Ends when the budget is spent."""
        while True:
            self._look()
            group, effort = self._group, self._effort
            number = {clip.sha256: i for i, clip in enumerate(group.clips)}
            chosen = {(number[a], number[b]) for a, b in self._chosen if a in number and b in number}
            missing = [order for order in missing_orders(group, effort) if order not in chosen]
            orders = missing[-1:] or (next_orders(group, chosen, effort) if len(group.clips) > 1 else [])
            if effort.pointwise:
                orders = [(i, i) for sha256, i in number.items() if (sha256, "") not in self._chosen][:1]
            if effort.budget is not None and len(self._chosen) + max(len(orders), 1) > effort.budget:
                return
            for i, j in orders:
                one, two = group.clips[i], group.clips[j]
                pair = one.sha256, two.sha256 if i != j else ""
                self._chosen.add(pair)
                yield Task(one.path, two.path if i != j else None, self._prompt, pair)
            if not orders:
                yield None

    def add(self, task: Task, result: Result, now: bool) -> None:
        """Add a result. That of a clip that is gone by now does not count."""
        self._results[task.label] = result
        number = {clip.sha256: i for i, clip in enumerate(self._group.clips)}
        i, j = (number.get(sha256 or task.label[0]) for sha256 in task.label)
        if i is not None and j is not None:
            self._group.add(i, j, result)
            self._watcher.judged(RankProgress(self._left.done, self._left.most, None, (0, i, j), result))

    def finish(self) -> Ranking:
        """Rate the clips. Returns the ranking."""
        waiting = self._state.waiting if self._state else {}
        left_out = tuple(ExcludedClip(path, "", why, broken=False) for path, why in waiting.items())
        ladders = (rate_group(self._group),) if len(self._group.clips) > 1 else ()
        left_out += self._participants.left_out
        groups = self._participants.groups
        unread, died = count_unread(groups), count_died(groups)
        name, model, scope = self._run.name, self._identity.model, self._judge.scope
        return Ranking(name, model, ladders, left_out, self._found, unread, died, scope)

    def _look(self) -> None:
        """Look at the folders, if it is time, and take what changed."""
        if time.monotonic() < self._due:
            return
        state, before = self._watch.look(self._judge.look_at), self._state
        self._due = time.monotonic() + self._poll_seconds
        if before == state:
            return
        self._state = state
        if state.ready != (before.ready if before else ()):
            self._regroup(state)
        self._watcher.changed(self._group, self._left.done, self._left.most, state.waiting)

    def _regroup(self, state: FolderState) -> None:
        """Group the clips that are there now, with all results about them."""
        gathered = gather_clips([Group("", self._prompt, state.ready)], digest=self._store.digest)
        flags = measure_clips(gathered.groups, self._run, self._judge, self._watcher.observe)
        self._participants = flag_clips(gathered, flags)
        if self._effort.exclude_flagged:
            self._participants = drop_flagged(self._participants, least=0)
        there = {clip.sha256 for clip in self._group.clips}
        # A clip that was gone may have failed for that; when it comes back it is judged again.
        for pair, result in list(self._results.items()):
            if not there.issuperset(filter(None, pair)) and result.error:
                del self._results[pair]
                self._chosen.discard(pair)
        self._group.add_stored(self._results.values())
        self._run.note(describe_run(self._participants, self._identity, self._effort, self._judge.scope).to_json())
        self._run.list_only(find_members(self._participants.groups))

    @property
    def _left(self) -> JudgementsLeft:
        return JudgementsLeft(self._participants.groups, self._effort)


def _name_run(watch: FolderWatch, prompt: str, judge_key: str) -> str:
    """Return a name that is the same for the same folders, prompt and judge."""
    facts = [judge_key, prompt, *sorted(str(folder.absolute()) for folder in watch.folders)]
    return f"watch-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]}"
