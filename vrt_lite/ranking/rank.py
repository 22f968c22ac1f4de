"""Ranks groups of clips: chooses which pairs are judged, in what order, and when to stop.

What is stored is not judged again: if all results are there, no clip is opened and no model is loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, takewhile
from typing import TYPE_CHECKING, Protocol

import msgspec

from vrt_lite.errors import MissingClipError, VideoError, WorkerEndedError
from vrt_lite.interfaces import Event, TimeRange
from vrt_lite.measures.flags import Flag
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.ranking.clip_groups import ClipGroup, find_members
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.ladder import collect_votes, rate_group
from vrt_lite.ranking.pairing import is_order_certain, next_judgement
from vrt_lite.ranking.participants import choose_clips, gather_clips, look_at_clips
from vrt_lite.ranking.rank_run import CONFIDENCE, Effort, RankAbout, read_rank_about
from vrt_lite.ranking.ratings import fit
from vrt_lite.records.ladders import RankedClip, Ranking
from vrt_lite.records.pairs import Result
from vrt_lite.records.progress import Progress
from vrt_lite.runs.identity import Identity
from vrt_lite.runs.judging import RunClock, Task, judge_all
from vrt_lite.runs.store import Run, Store

if TYPE_CHECKING:
    from vrt_lite.api import Judge

_MOST_LISTED = 64
"""Clips of a group, judged by themselves, up to which its pairs are listed too: there are half as many as their square.
"""
_UNREAD = (VideoError.kind, MissingClipError.kind)


Label = tuple[int, int, int]
"""A group's number and two of its clips, the one shown as video 1 first, or one clip twice."""


class RankWatcher(Protocol):
    """Gets the progress of a ranking."""

    def begins(self, groups: Sequence[ClipGroup], progress: Progress, predicted: TimeRange | None, /) -> None:
        """Called before judging: what is done already, and how long the rest is to take."""
        ...

    def judged(self, label: Label, result: Result, progress: Progress, /) -> None:
        """Called when a judgement was made, or found in the store."""
        ...

    def observe(self, event: Event, /) -> None:
        """Called with each event of the judge."""
        ...


def rank_clips(
    groups: Sequence[Group],
    *,
    store: Store,
    judge: Judge,
    watcher: RankWatcher,
    effort: Effort | None = None,
    name: str | None = None,
    jobs: int = 1,
) -> Ranking:
    """Rank the clips of each group. The same call resumes where an earlier one stopped.

    `name` is the run's name in the store; by default it is made from clips, prompts and judge. UsageError if a run of
    that name was made with another judge or prompt. `judge` is loaded only if something is left to judge. Raises
    UsageError or VideoError if no group has two clips that can be used, and what the judge raises; NoVerdictError and
    VideoError of a pair are kept as its result.
    """
    work = begin_ranking(groups, store=store, judge=judge, watcher=watcher, effort=effort, name=name)
    judge_missing(work, store=store, judge=judge, watcher=watcher, jobs=jobs)
    return rate_work(work)


@dataclass(frozen=True, slots=True)
class RankWork:
    """A ranking that has begun: its run, its clips with the results so far, and how much is to be judged."""

    run: Run
    about: RankAbout
    groups: tuple[ClipGroup, ...]
    effort: Effort
    found: int


def begin_ranking(
    groups: Sequence[Group],
    *,
    store: Store,
    judge: Judge,
    watcher: RankWatcher,
    effort: Effort | None = None,
    name: str | None = None,
    least_clips: int | None = None,
) -> RankWork:
    """Find the clips of a ranking and all that is known of them. Groups of fewer than `least_clips` are left out.

    A run may be resumed by the same judge, with the same prompt for each group. Clips and groups may come and go.
    """
    effort = (effort or Effort()).for_judge(judge)
    least = 2 - effort.pointwise if least_clips is None else least_clips
    gathered, unused = gather_clips(groups, store.digest)
    facts = {f"prompt of group {group.name!r}" if group.name else "prompt": group.prompt for group in gathered}
    identity = Identity(judge.key(), judge.describe(), facts)
    run = store.begin(name or _name_run(gathered, identity.judge), kind="rank", identity=identity)
    looks: dict[str, tuple[Flag, ...] | VideoError] = {clip.sha256: clip.flags for clip in read_rank_about(run).clips}
    unknown = {clip.sha256: clip.path for of in gathered for clip in of.clips if clip.sha256 not in looks}
    looks |= look_at_clips(unknown, judge, watcher.observe)
    exclude = effort.exclude_flagged
    ranked, left_out = choose_clips(gathered, unused, looks, exclude_flagged=exclude, least=least)
    about = RankAbout(
        groups=tuple(ClipGroup(group.name, group.prompt, _find_absolute(group.clips)) for group in ranked),
        prompts=tuple(dict.fromkeys(group.prompt for group in ranked)),
        judge=identity.judge,
        model=identity.model,
        scope=judge.scope,
        options=effort,
        left_out=left_out,
    )
    run.note(about.to_json())
    run.list_only(find_members(ranked))
    results = list(run.all_results())
    for group in ranked:
        group.add_stored(results)
    return RankWork(run, about, ranked, effort, effort.count(ranked)[0])


def _find_absolute(clips: Sequence[RankedClip]) -> tuple[RankedClip, ...]:
    return tuple(msgspec.structs.replace(clip, path=clip.path.absolute()) for clip in clips)


def judge_missing(
    work: RankWork,
    *,
    store: Store,
    judge: Judge,
    watcher: RankWatcher,
    jobs: int,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Judge what a ranking needs and the store does not have, as long as it is to `go_on`."""
    groups, count = work.groups, lambda: work.effort.count(work.groups)
    tasks = _choose_tasks(groups, work.effort)
    first = next(tasks, None)
    clock = RunClock(judge.predict(first.first) if first else None, lambda: count()[1] - count()[0], jobs=jobs)
    watcher.begins(groups, Progress(work.found, count()[1]), clock.predict())

    def add_result(task: Task, result: Result, now: bool) -> None:
        label: Label = task.label
        number, i, j = label
        groups[number].add(i, j, result)
        if now and not result.error:
            clock.add(result.seconds)
        watcher.judged(label, result, Progress(*count(), clock.seconds_left()))

    every = takewhile(lambda _: go_on(), chain((first,), tasks) if first else tasks)
    judge_all(every, work.run, store=store, judge=judge, jobs=jobs, done=add_result, observe=watcher.observe)


def rate_work(work: RankWork) -> Ranking:
    """Rate the clips by what is judged by now. The pairs that follow from clips judged by themselves are listed too."""
    for group in work.groups:
        if group.alone and len(group.clips) <= _MOST_LISTED:
            work.run.list_derived(group.results.values())
    failures = [result.failure for group in work.groups for result in group.results.values()]
    return Ranking(
        run=work.run.name,
        judge=work.about.model,
        scope=work.about.scope,
        ladders=tuple(map(rate_group, work.groups)),
        left_out=work.about.left_out,
        found=work.found,
        unread=sum(kind in _UNREAD for kind in failures),
        died=failures.count(WorkerEndedError.kind),
    )


def _choose_tasks(groups: Sequence[ClipGroup], effort: Effort) -> Iterator[Task]:
    """Yield the next task, chosen from the results so far. Groups that share a budget take turns.

    Without a budget, one group is finished before the next, so that the judge's caches are used.
    """
    choosing = deque((number, _choose_orders(group, effort)) for number, group in enumerate(groups))
    left = math.inf if effort.budget is None else effort.budget - effort.count(groups)[0]
    while choosing and left > 0:
        number, orders = choosing[0]
        if (order := next(orders, None)) is None:
            choosing.popleft()
            continue
        left -= 1
        i, j = order
        clips = groups[number].clips
        yield Task(clips[i].path, None if i == j else clips[j].path, groups[number].prompt, (number, i, j))
        if effort.budget is not None:
            choosing.rotate(-1)


def _choose_orders(group: ClipGroup, effort: Effort) -> Iterator[tuple[int, int]]:
    """Yield the order to judge next: of a pair, or (i, i) for a clip by itself; ends when the group is done."""
    count, chosen = len(group.clips), set(group.results)
    if effort.pointwise:
        yield from ((i, i) for i in range(count) if i not in group.alone)
    elif effort.chooses(count):
        confidence = CONFIDENCE if effort.confidence is None else effort.confidence
        while True:
            votes = collect_votes(group, OVERALL)
            ratings = fit(votes, count)
            if is_order_certain(ratings, confidence):
                return
            order = next_judgement(votes, count, judged=chosen, both_orders=effort.both_orders, ratings=ratings)
            if order is None:
                return
            chosen.add(order)
            yield order
    else:
        for i, j in combinations(range(count), 2):
            # With one order only, each clip is shown first in about half of its pairs.
            orders = [(i, j), (j, i)] if (i + j) % 2 else [(j, i), (i, j)]
            if effort.both_orders or chosen.isdisjoint(orders):
                yield from (order for order in orders[: 1 + effort.both_orders] if order not in chosen)


def _name_run(groups: Iterable[ClipGroup], judge_key: str) -> str:
    """Return a name that is the same for the same clips, prompts and judge, wherever the files are."""
    facts = sorted([group.prompt, group.name, *sorted(clip.sha256 for clip in group.clips)] for group in groups)
    return f"rank-{hashlib.sha256(json.dumps([judge_key, facts]).encode()).hexdigest()[:8]}"
