"""Ranks groups of clips: chooses which pairs are judged, in what order, and when to stop.

What is stored is not judged again: if all results are there, no clip is opened and no model is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Protocol

import msgspec

from vrt_lite.errors import MissingClipError, VideoError, WorkerEndedError
from vrt_lite.interfaces import Event, TimeRange
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.ranking.clip_groups import ClipGroup, collect_votes, find_members
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.judgements_left import JudgementsLeft
from vrt_lite.ranking.ladder import Ladder, rate_group
from vrt_lite.ranking.pairing import is_order_certain, next_judgement
from vrt_lite.ranking.participants import (
    ExcludedClip,
    Participants,
    drop_flagged,
    gather_clips,
    look_at_clips,
)
from vrt_lite.ranking.rank_run import CONFIDENCE, Effort, RankAbout, describe_run, identify_run
from vrt_lite.ranking.ratings import fit
from vrt_lite.records.pairs import Result
from vrt_lite.runs.identity import Identity
from vrt_lite.runs.judging import PairJudge, Task, judge_all
from vrt_lite.runs.run_clock import RunClock
from vrt_lite.runs.store import Run, Store

_MOST_LISTED = 64
"""Clips of a group, judged by themselves, up to which its pairs are listed too: there are half as many as their square.
"""
_UNREAD = (VideoError.kind, MissingClipError.kind)


@dataclass(frozen=True, slots=True)
class RankProgress:
    """The progress after a result. At most `most` judgements are made, fewer if the order is certain before that.

    `label` is the group's number and the clips, the one shown as video 1 first, or one clip twice. `seconds_left` is
    None until known.
    """

    done: int
    most: int
    seconds_left: float | None
    label: tuple[int, int, int]
    result: Result


class RankWatcher(Protocol):
    """Gets the progress of a ranking."""

    def begins(self, groups: Sequence[ClipGroup], done: int, most: int, predicted: TimeRange | None, /) -> None:
        """Called before judging: `done` of at most `most` judgements exist, the others are to take `seconds`."""
        ...

    def judged(self, progress: RankProgress, /) -> None:
        """Called when a judgement was made, or found in the store."""
        ...

    def observe(self, event: Event, /) -> None:
        """Called with each event of the judge."""
        ...


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result: a ladder for each group, in the order given, the clips left out, and the run that keeps it.

    `run` is that run's name, `judge` the name of the judge's model, and `scope` says what that sees.

    `found` is the number of judgements that existed before, `unread` of those without a verdict as a clip could not be
    read, `died` of those at which the engine died. `before` is the ranking by a quicker judge that chose these clips.
    """

    run: str
    judge: str
    ladders: tuple[Ladder, ...]
    left_out: tuple[ExcludedClip, ...]
    found: int
    unread: int = 0
    died: int = 0
    scope: str = ""
    before: Ranking | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "run": self.run,
            "judge": self.judge,
            "scope": self.scope,
            "ladders": [ladder.to_json() for ladder in self.ladders],
            "left_out": [msgspec.to_builtins(clip, enc_hook=str) for clip in self.left_out],
            "found": self.found,
            "unread": self.unread,
            "died": self.died,
            **({"before": self.before.to_json()} if self.before else {}),
        }


def rank_clips(
    groups: Sequence[Group],
    *,
    store: Store,
    judge: PairJudge,
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
    judge: Identity
    scope: str
    participants: Participants
    effort: Effort
    found: int

    @property
    def left(self) -> JudgementsLeft:
        """What is left to judge."""
        return JudgementsLeft(self.participants.groups, self.effort)


def begin_ranking(
    groups: Sequence[Group],
    *,
    store: Store,
    judge: PairJudge,
    watcher: RankWatcher,
    effort: Effort | None = None,
    name: str | None = None,
    least_clips: int | None = None,
) -> RankWork:
    """Find the clips of a ranking and all that is known of them. Groups of fewer than `least_clips` are left out."""
    effort = (effort or Effort()).for_judge(judge)
    least = effort.least_clips if least_clips is None else least_clips
    participants = gather_clips(groups, digest=store.digest)
    identity = identify_run(participants.groups, judge)
    run = store.begin(name or _name_run(participants, identity.judge), kind="rank", identity=identity)
    participants = look_at_clips(participants, run, judge, watcher.observe, least=least)
    participants = drop_flagged(participants, least=least) if effort.exclude_flagged else participants
    _update_about(run, describe_run(participants, identity, effort, judge.scope))
    run.list_only(find_members(participants.groups))
    results = list(run.all_results())
    for group in participants.groups:
        group.add_stored(results)
    return RankWork(run, identity, judge.scope, participants, effort, JudgementsLeft(participants.groups, effort).done)


def judge_missing(work: RankWork, *, store: Store, judge: PairJudge, watcher: RankWatcher, jobs: int) -> None:
    """Judge what a ranking needs and the store does not have."""
    groups, left = work.participants.groups, work.left
    tasks = _choose_tasks(groups, work.effort)
    first = next(tasks, None)
    clock = RunClock(judge.predict(first.first) if first else None, lambda: left.most - left.done, jobs=jobs)
    watcher.begins(groups, work.found, left.most, clock.predict())

    def add_result(task: Task, result: Result, now: bool) -> None:
        label: tuple[int, int, int] = task.label
        number, i, j = label
        groups[number].add(i, j, result)
        if now and (judgement := work.run.judgement(result.key)):
            clock.add(judgement)
        watcher.judged(RankProgress(left.done, left.most, clock.seconds_left(), label, result))

    every = chain((first,), tasks) if first else tasks
    judge_all(every, work.run, store=store, judge=judge, jobs=jobs, done=add_result, observe=watcher.observe)


def rate_work(work: RankWork) -> Ranking:
    """Rate the clips by what is judged by now."""
    groups = work.participants.groups
    ladders = tuple(_rate_and_list(group, work.run) for group in groups)
    unread, died = (_count_failures(groups, kinds) for kinds in (_UNREAD, (WorkerEndedError.kind,)))
    return Ranking(
        work.run.name, work.judge.model, ladders, work.participants.left_out, work.found, unread, died, work.scope
    )


def _rate_and_list(group: ClipGroup, run: Run) -> Ladder:
    """Rate a group. Lists its pairs too if they follow from clips that were judged by themselves."""
    if group.alone and len(group.clips) <= _MOST_LISTED:
        run.list_derived(group.results.values())
    return rate_group(group)


def _count_failures(groups: Sequence[ClipGroup], kinds: Sequence[str]) -> int:
    """Count the judgements without a verdict for an error of these kinds."""
    return sum(result.failure in kinds for group in groups for result in group.results.values())


def _choose_tasks(groups: Sequence[ClipGroup], effort: Effort) -> Iterator[Task]:
    """Yield the next task, chosen from the results so far. Groups that share a budget take turns."""
    if effort.pointwise:
        for number, group in enumerate(groups):
            for i, clip in enumerate(group.clips):
                if i not in group.alone:
                    yield Task(clip.path, None, group.prompt, (number, i, i))
        return
    chosen = [set(group.results) for group in groups]
    missing = [_missing_orders(group, effort) for group in groups]
    waiting = deque(range(len(groups)))
    while waiting:
        number = waiting.popleft()
        group = groups[number]
        orders = [missing[number].pop()] if missing[number] else _next_orders(group, chosen[number], effort)
        if not orders or (effort.budget is not None and sum(map(len, chosen)) + len(orders) > effort.budget):
            continue
        chosen[number].update(orders)
        for i, j in orders:
            yield Task(group.clips[i].path, group.clips[j].path, group.prompt, (number, i, j))
        # Without a budget, one group is finished before the next, so that the judge's caches are used.
        waiting.append(number) if effort.budget is not None else waiting.appendleft(number)


def _missing_orders(group: ClipGroup, effort: Effort) -> list[tuple[int, int]]:
    """Return the missing second orders of interrupted pairs, last first."""
    if not effort.both_orders or effort.chooses(len(group.clips)):
        return []
    return [(j, i) for i, j in group.results if (j, i) not in group.results][::-1]


def _next_orders(group: ClipGroup, chosen: set[tuple[int, int]], effort: Effort) -> list[tuple[int, int]]:
    """Return the orders to judge next: both of a pair, or the one that tells most; none if the group is done."""
    count = len(group.clips)
    if effort.chooses(count):
        votes = collect_votes(group, OVERALL)
        ratings = fit(votes, count)
        if is_order_certain(ratings, CONFIDENCE if effort.confidence is None else effort.confidence):
            return []
        order = next_judgement(votes, count, judged=chosen, both_orders=effort.both_orders, ratings=ratings)
        return [order] if order else []
    pair = next((p for p in combinations(range(count), 2) if p not in chosen and p[::-1] not in chosen), None)
    if pair is None:
        return []
    # With one order only, each clip is shown first in about half of its pairs.
    i, j = pair if sum(pair) % 2 else (pair[1], pair[0])
    return [(i, j), (j, i)] if effort.both_orders else [(i, j)]


def _name_run(participants: Participants, judge_key: str) -> str:
    """Return a name that is the same for the same clips, prompts and judge, wherever the files are."""
    facts = sorted([g.prompt, g.name, *sorted(clip.sha256 for clip in g.clips)] for g in participants.groups)
    return f"rank-{hashlib.sha256(json.dumps([judge_key, facts]).encode()).hexdigest()[:8]}"


def _update_about(run: Run, about: RankAbout) -> None:
    text = about.to_json()
    if run.about != json.loads(json.dumps(text)):
        run.note(text)
