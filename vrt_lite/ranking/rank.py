"""Ranks groups of clips: which pairs are asked, in what order, until when; the answers come from a run of the store.

Knows that what is stored need not be judged: with all answers there no clip is opened and no model loaded. Refuses to
know the terminal and how a judge is made.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vrt_lite.interfaces import Event
from vrt_lite.protocol.tags import OVERALL
from vrt_lite.ranking.contest import Contest, Contestant, outcome, votes
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.field import Field, LeftOut, gather, without_broken
from vrt_lite.ranking.ladder import Ladder, rank, to_json
from vrt_lite.ranking.pairing import next_pair, settled
from vrt_lite.ranking.ratings import fit
from vrt_lite.runs.judged import Result
from vrt_lite.runs.store import Run, Store
from vrt_lite.runs.work import Task, judge_all

if TYPE_CHECKING:
    from vrt_lite.api import Judge

ALL_PAIRS_UP_TO = 12
"""Groups of so many clips are judged pair by pair, unless a budget or a confidence is given."""
CONFIDENCE = 0.8
"""How sure each place must be where pairs are chosen and nothing else is asked for.

Two judgements a pair say only so much: with a judge that never contradicts itself, neighbours reach about 0.85.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is judged. One judgement is one order of one pair; `budget` counts those of earlier sessions too.

    Without a budget or a confidence, groups of up to 12 clips are judged pair by pair. Else the pair that tells most is
    next, until the budget is spent, or each clip is better than the next with this confidence (0.8 if not given).
    """

    both_orders: bool = True
    budget: int | None = None
    confidence: float | None = None

    def chooses(self, contest: Contest) -> bool:
        """Whether pairs are chosen in this group, or all of them judged."""
        asked_for = self.budget is not None or self.confidence is not None
        return asked_for or len(contest.clips) > ALL_PAIRS_UP_TO


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is, after an answer. `most` judgements are made in all, fewer if the order is settled before.

    `label` is the contest's number and the clips, the one shown as video 1 first. `seconds_left` is None until known.
    """

    done: int
    most: int
    seconds_left: float | None
    label: tuple[int, int, int]
    result: Result


class Watcher(Protocol):
    """Who is told how it goes."""

    def begins(self, contests: Sequence[Contest], done: int, most: int) -> None:
        """Judging begins; so much of it is done already."""
        ...

    def judged(self, progress: Progress) -> None:
        """A judgement was made, or found in the store."""
        ...

    def observe(self, event: Event) -> None:
        """The judge is at work."""
        ...


@dataclass(frozen=True, slots=True)
class Ranking:
    """What came of it: a ladder a group, in the order given; what was left out; and the run where it is kept."""

    run: str
    ladders: tuple[Ladder, ...]
    left_out: tuple[LeftOut, ...]
    found: int
    """So many judgements had been made before."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "run": self.run,
            "ladders": [to_json(ladder) for ladder in self.ladders],
            "left_out": [_left_out(out) for out in self.left_out],
            "found": self.found,
        }


def rank_clips(
    groups: Sequence[Group],
    *,
    store: Store,
    judge: Judge,
    watcher: Watcher,
    effort: Effort | None = None,
    name: str | None = None,
    jobs: int = 1,
) -> Ranking:
    """Rank each group among itself. The same call goes on where an earlier one was cut short.

    `name` is that of the run in the store; if left out, it follows from clips, prompts and judge. `judge` is loaded if
    something is left to be judged. Raises UsageError and VideoError if no group has two clips that can be used, and
    what the judge raises; NoVerdictError and VideoError of a pair are kept as its answer.
    """
    effort = effort or Effort()
    field = gather(groups, digest=store.digest)
    key = judge.key()
    run = store.begin(name or _name(field, key), kind="rank", about={})
    opened = dict(run.items("opened"))
    field = without_broken(field, opens=_opens, known=opened)
    for clip in (clip for contest in field.contests for clip in contest.clips if clip.sha256 not in opened):
        run.put("opened", clip.sha256, {})
    about = _about(field, key, effort)
    _note(run, {**about, "ladders": run.about.get("ladders", [])})
    results = list(run.results())
    for contest in field.contests:
        contest.recall(results)
    found = sum(len(contest.answers) for contest in field.contests)
    clock = _Clock(field.contests, effort, found)
    watcher.begins(field.contests, found, clock.most)

    def done(task: Task, result: Result, now: bool) -> None:
        label: tuple[int, int, int] = task.label
        number, i, j = label
        field.contests[number].answers[i, j] = result
        watcher.judged(Progress(clock.done(), clock.most, clock.seconds_left(judged=now), label, result))

    judge_all(
        _tasks(field.contests, effort),
        run,
        store=store,
        judge=judge,
        jobs=jobs,
        done=done,
        observe=watcher.observe,
        judge_key=key,
    )
    ladders = tuple(rank(contest) for contest in field.contests)
    _note(run, {**about, "ladders": [to_json(ladder, pairs=False) for ladder in ladders]})
    return Ranking(run.name, ladders, field.left_out, found)


def contests_of(run: Run) -> tuple[Contest, ...]:
    """The groups of a run with what is stored of them now, be it finished or not."""
    about: Any = run.about
    clips = [Contestant(clip["name"], Path(clip["path"]), clip["sha256"]) for clip in about.get("clips", [])]
    results = list(run.results())
    contests = tuple(
        Contest(group["name"], group["prompt"], tuple(clips[int(i)] for i in group["clips"]))
        for group in about.get("groups", [])
    )
    for contest in contests:
        contest.recall(results)
    return contests


def left_out_of(run: Run) -> tuple[LeftOut, ...]:
    """What the run left out when it was last begun."""
    about: Any = run.about
    return tuple(
        LeftOut(Path(out["path"]), out["group"], out["reason"], broken=out["broken"])
        for out in about.get("left_out", [])
    )


def _tasks(contests: Sequence[Contest], effort: Effort) -> Iterator[Task]:
    """What to judge next, said when it is asked for. Groups share a budget by turns."""
    asked = [set(contest.answers) for contest in contests]
    halves = [_halves(contest, effort) for contest in contests]
    waiting = deque(range(len(contests)))
    while waiting:
        number = waiting.popleft()
        contest = contests[number]
        orders = [halves[number].pop()] if halves[number] else _next(contest, asked[number], effort)
        if not orders or (effort.budget is not None and sum(map(len, asked)) + len(orders) > effort.budget):
            continue
        asked[number].update(orders)
        for i, j in orders:
            yield Task(contest.clips[i].path, contest.clips[j].path, contest.prompt, (number, i, j))
        # A group at a time keeps what the judge holds of a clip; with a budget none may take it all.
        waiting.append(number) if effort.budget is not None else waiting.appendleft(number)


def _halves(contest: Contest, effort: Effort) -> list[tuple[int, int]]:
    """The orders missing of pairs that were cut short between the two, last first."""
    missing = [(j, i) for i, j in contest.answers if (j, i) not in contest.answers]
    return missing[::-1] if effort.both_orders else []


def _next(contest: Contest, asked: set[tuple[int, int]], effort: Effort) -> list[tuple[int, int]]:
    """The orders of the pair to ask next; none if the group is done."""
    count = len(contest.clips)
    if effort.chooses(contest):
        outcomes = [outcome(contest, i, j) for i, j in contest.pairs()]
        said = votes(contest, outcomes, OVERALL)
        ratings = fit(said, count)
        if settled(ratings, CONFIDENCE if effort.confidence is None else effort.confidence):
            return []
        pair = next_pair(said, count, judged=asked, ratings=ratings)
    else:
        left = (p for p in combinations(range(count), 2) if p not in asked and p[::-1] not in asked)
        pair = next(left, None)
    if pair is None:
        return []
    # Of one order only, each clip is shown first in about half of its pairs.
    i, j = pair if sum(pair) % 2 else (pair[1], pair[0])
    return [(i, j), (j, i)] if effort.both_orders else [(i, j)]


class _Clock:
    """How much is done, and how long the rest takes at the rate so far."""

    def __init__(self, contests: Sequence[Contest], effort: Effort, found: int) -> None:
        self._contests = contests
        self._began = time.monotonic()
        self._made = 0
        possible = sum(len(c.clips) * (len(c.clips) - 1) // 2 for c in contests) * (1 + effort.both_orders)
        self.most = max(found, possible if effort.budget is None else min(possible, effort.budget))

    def done(self) -> int:
        return sum(len(contest.answers) for contest in self._contests)

    def seconds_left(self, *, judged: bool) -> float | None:
        self._made += judged
        if not self._made:
            self._began = time.monotonic()
            return None
        return (time.monotonic() - self._began) / self._made * max(self.most - self.done(), 0)


def _opens(path: Path) -> None:
    from vrt_lite.video import open_clip  # noqa: PLC0415 - the decoder only when there is something to decode

    open_clip(path).close()


def _name(field: Field, key: str) -> str:
    """The same clips, prompts and judge are the same run, in whatever order and place the files are."""
    told = sorted([c.prompt, c.name, *sorted(clip.sha256 for clip in c.clips)] for c in field.contests)
    return f"rank-{hashlib.sha256(json.dumps([key, told]).encode()).hexdigest()[:12]}"


def _about(field: Field, key: str, effort: Effort) -> dict[str, Any]:
    clips: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    for number, contest in enumerate(field.contests):
        places = range(len(clips), len(clips) + len(contest.clips))
        groups.append({"name": contest.name, "prompt": contest.prompt, "clips": list(places)})
        for clip in contest.clips:
            path = str(clip.path.absolute())
            clips.append({"name": clip.name, "path": path, "sha256": clip.sha256, "group": number})
    prompts = list(dict.fromkeys(contest.prompt for contest in field.contests))
    return {
        "clips": clips,
        "groups": groups,
        **({"prompt": prompts[0]} if len(prompts) == 1 else {"prompts": prompts}),
        "judge": key,
        "options": {
            "both_orders": effort.both_orders,
            "budget": effort.budget,
            "confidence": effort.confidence,
        },
        "left_out": [_left_out(out) for out in field.left_out],
    }


def _left_out(out: LeftOut) -> dict[str, Any]:
    return {"path": str(out.path), "group": out.group, "reason": out.reason, "broken": out.broken}


def _note(run: Run, about: dict[str, Any]) -> None:
    if run.about != about:
        run.note(about)
