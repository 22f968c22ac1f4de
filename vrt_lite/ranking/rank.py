"""Ranks groups of clips: finds those that take part, chooses which pairs are judged, and when to stop.

What is stored is not judged again: if all results are there, no clip is opened and no model is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from vrt_lite.errors import MissingClipError, UsageError, VideoError, WorkerEndedError
from vrt_lite.interfaces import Event, Observe, Stop, TimeRange, Working
from vrt_lite.measures.flags import Flag, describe_flags, find_flags
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.ladder import collect_votes, rate_group
from vrt_lite.ranking.pairing import is_order_certain, next_judgement
from vrt_lite.ranking.rank_run import (
    ALL_PAIRS,
    ALL_PAIRS_UP_TO,
    CONFIDENCE,
    ClipGroup,
    Effort,
    RankAbout,
    add_stored,
    find_members,
    read_rank_about,
)
from vrt_lite.ranking.ratings import fit
from vrt_lite.records.ladders import ExcludedClip, Progress, RankedClip, Ranking
from vrt_lite.records.pairs import Result
from vrt_lite.runs.judging import RunClock, Task, judge_all
from vrt_lite.runs.store import Identity, Store
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.api import Judge

MOST_CLIPS = 2_000
"""The limit for one group: the table of all pairs, two million, is held in memory."""
_Flags = tuple[Flag, ...]
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

    def judged(self, label: Label, result: Result, progress: Progress, /) -> None:
        """Called when a judgement was made, or found in the store."""

    def observe(self, event: Event, /) -> None:
        """Called with each event of the judge."""


def rank_clips(
    groups: Sequence[Group],
    *,
    store: Store,
    judge: Judge,
    watcher: RankWatcher,
    effort: Effort = ALL_PAIRS,
    name: str | None = None,
    stop: Stop | None = None,
) -> Ranking:
    """Rank the clips of each group; the options are those of `RankWork`. The same call resumes where one stopped.

    Raises what `RankWork` and the judge raise; NoVerdictError and VideoError of a pair are kept as its result.
    """
    work = RankWork(groups, store=store, judge=judge, watcher=watcher, effort=effort, name=name, stop=stop)
    work.judge_missing()
    return work.rate()


class RankWork:
    """A ranking that has begun: its run, its clips with the results so far, and how much is to be judged.

    A run may be resumed by the same judge, with the same prompt for each group. Clips and groups may come and go.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        store: Store,
        judge: Judge,
        watcher: RankWatcher,
        effort: Effort = ALL_PAIRS,
        name: str | None = None,
        least_clips: int | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Find the clips and all that is known of them. Groups of fewer than `least_clips` are left out.

        `name` is the run's name in the store; by default it is made from clips, prompts and judge. UsageError if a run
        of that name was made with another judge or prompt. UsageError or VideoError if no group has two clips that can
        be used. `judge` is loaded only if something is left to judge. Another thread may end all with `stop`.
        """
        self._store, self._judge, self._watcher, self._stop = store, judge, watcher, stop or Stop()
        self.effort = effort = effort.for_judge(judge)
        self._left_out: list[ExcludedClip] = []
        gathered = [self._gather(group) for group in groups]
        facts = {f"prompt of group {group.name!r}" if group.name else "prompt": group.prompt for group in gathered}
        identity = Identity(judge.key(), judge.describe(), facts)
        self.run = run = store.begin(name or _name_run(gathered, identity.judge), kind="rank", identity=identity)
        looks: dict[str, _Flags | VideoError] = {of.sha256: of.flags for of in read_rank_about(run).clips}
        unknown = {clip.sha256: clip.path for of in gathered for clip in of.clips if clip.sha256 not in looks}
        looks |= look_at_clips(unknown, judge, watcher.observe, self._stop)
        least = 2 - effort.pointwise if least_clips is None else least_clips
        self.groups = tuple(of for group in gathered if (of := self._choose(group, looks, least)))
        if not self.groups:
            flags = (look for look in looks.values() if not isinstance(look, VideoError))
            raise _too_few(self._left_out, flagged=effort.exclude_flagged and any(flags))
        self.about = RankAbout(
            groups=tuple(
                replace(of, clips=tuple(replace(c, path=c.path.absolute()) for c in of.clips)) for of in self.groups
            ),
            prompts=tuple(dict.fromkeys(group.prompt for group in self.groups)),
            judge=identity.judge,
            model=identity.model,
            scope=judge.scope,
            options=effort,
            left_out=tuple(self._left_out),
        )
        run.note(self.about.to_json())
        run.list_only(find_members(self.groups))
        add_stored(self.groups, run.all_results())
        self.found, _ = self.count()

    def _gather(self, group: Group) -> ClipGroup:
        """Gather the clips of a group by content: a file that is given twice takes part once."""
        found: dict[str, Path] = {}
        for path in group.clips:
            try:
                same = found.setdefault(self._store.digest(path), path)
            except VideoError as error:
                self._left_out.append(ExcludedClip(path, group.name, error.reason, broken=True))
            else:
                if same is not path:
                    why = f"the same content as {str(same)!r}"
                    self._left_out.append(ExcludedClip(path, group.name, why))
        if len(found) > MOST_CLIPS:
            raise UsageError(f"A group has {len(found)} clips; at most {MOST_CLIPS} are ranked. Divide it into groups.")
        names = _name_clips(found.values())
        clips = tuple(RankedClip(names[path], path, sha256) for sha256, path in found.items())
        return ClipGroup(group.name, group.prompt, clips)

    def _choose(self, group: ClipGroup, looks: Mapping[str, _Flags | VideoError], least: int) -> ClipGroup | None:
        """Choose the clips of a group that are ranked: those that can be opened, and have no flags if these exclude.

        None for a group of fewer than `least` clips.
        """
        usable: list[RankedClip] = []
        for clip in group.clips:
            look = looks[clip.sha256]
            if isinstance(look, VideoError):
                self._left_out.append(ExcludedClip(clip.path, group.name, look.reason, broken=True))
            elif look and self.effort.exclude_flagged:
                why = f"is flagged: {describe_flags(look)}"
                self._left_out.append(ExcludedClip(clip.path, group.name, why))
            else:
                usable.append(replace(clip, flags=look))
        if len(usable) < least:
            why = "the only clip of its group that can be used"
            self._left_out += [ExcludedClip(clip.path, group.name, why) for clip in usable]
            return None
        return ClipGroup(group.name, group.prompt, tuple(usable))

    def count(self) -> tuple[int, int]:
        """Count the judgements, and how many there will be at most."""
        return self.effort.count(self.groups)

    def judge_missing(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Judge what the ranking needs and the store does not have, as long as it is to `go_on`."""
        tasks = _choose_tasks(self.groups, self.effort)
        first = next(tasks, None)
        clock = RunClock(self._judge.predict(first.first) if first else None, jobs=self._judge.jobs)
        done, most = self.count()
        self._watcher.begins(self.groups, Progress(done, most), clock.predict(most - done))

        def add_result(task: Task, result: Result, now: bool) -> None:
            label: Label = task.label
            number, i, j = label
            self.groups[number].add(i, j, result)
            if now and not result.error:
                clock.add(result.seconds)
            done, most = self.count()
            self._watcher.judged(label, result, Progress(done, most, clock.seconds_left(most - done)))

        every = takewhile(lambda _: go_on(), chain((first,), tasks) if first else tasks)
        judge_all(
            every,
            self.run,
            store=self._store,
            judge=self._judge,
            jobs=self._judge.jobs,
            done=add_result,
            observe=self._watcher.observe,
            stop=self._stop,
        )

    def rate(self) -> Ranking:
        """Rate the clips by what is judged by now. Pairs that follow from clips judged by themselves are listed too."""
        for group in self.groups:
            if group.alone and len(group.clips) <= _MOST_LISTED:
                self.run.list_derived(group.results.values())
        failures = [result.failure for group in self.groups for result in group.results.values()]
        return Ranking(
            run=self.run.name,
            judge=self.about.model,
            scope=self.about.scope,
            ladders=tuple(map(rate_group, self.groups)),
            left_out=self.about.left_out,
            found=self.found,
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
    elif effort.budget is not None or effort.confidence is not None or count > ALL_PAIRS_UP_TO:
        confidence = CONFIDENCE if effort.confidence is None else effort.confidence
        while True:
            ratings = fit(collect_votes(group, OVERALL), count)
            order = next_judgement(ratings, judged=chosen, both_orders=effort.both_orders)
            if order is None or is_order_certain(ratings, confidence):
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


def look_at_clips(
    clips: Mapping[str, Path], judge: Judge, observe: Observe, stop: Stop
) -> dict[str, _Flags | VideoError]:
    """Open and measure each clip; return its flags, or why it cannot be opened."""

    def look(path: Path) -> _Flags | VideoError:
        stop.check()
        try:
            judge.look_at(path)
        except VideoError as error:
            return error
        with contextlib.suppress(VideoError):  # a judgement of it will say so
            return find_flags(judge.measure(path))
        return ()

    found: dict[str, _Flags | VideoError] = {}
    with ThreadPool(2) as pool:
        looked = pool.map(look, clips.values())
        for sha256 in clips:
            observe(Working(f"measuring the clips ({len(found)} of {len(clips)})"))
            found[sha256] = next(looked)
    return found


def _too_few(left_out: Iterable[ExcludedClip], *, flagged: bool) -> UsageError | VideoError:
    broken = [out for out in left_out if out.broken]
    if flagged:
        return UsageError("Without the flagged clips no two are left to rank. Leave out --exclude-flagged.")
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        reason = f"{broken[0].reason}{more}. It is left out, and two clips that can be used are needed."
        return VideoError(broken[0].path, reason)
    return UsageError("Two different clips are needed to rank. Name more files, or a folder that has them.")


def _name_clips(paths: Collection[Path]) -> dict[Path, str]:
    """Return a name for each clip: its file name, with its folder or its whole path where names are alike."""
    for length in (1, 2, 3):
        # The last part of "frames/%04d.png" alone says nothing.
        names = {path: "/".join(path.parts[-length - ("%" in path.name) :]) for path in paths}
        if len(set(names.values())) == len(names):
            return names
    return {path: str(path) for path in paths}
