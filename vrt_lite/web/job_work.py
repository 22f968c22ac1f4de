"""Does a job, in a thread of the queue, through the store: nothing is judged twice. Tells what happens meanwhile."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from vrt_lite.api import Judge
from vrt_lite.errors import NoVerdictError, VideoError
from vrt_lite.interfaces import (
    Event,
    OrderEnded,
    Predicted,
    RoundBegan,
    RoundEnded,
    TimeRange,
    Wrote,
)
from vrt_lite.measures.flags import describe_flags
from vrt_lite.pair_frames import Workspace
from vrt_lite.protocol.messages import OVERALL, FrameRef
from vrt_lite.protocol.tags import PartReader
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank import Label, rank_clips
from vrt_lite.ranking.rank_run import ClipGroup, Effort
from vrt_lite.records.judgement import Judgement, PlainData, add_warning, warn_of_one_order
from vrt_lite.records.ladders import Ladder, Progress, Ranking
from vrt_lite.records.pairs import Result, join_results
from vrt_lite.runs.history import begin_daily_run, name_clips
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Run, Store
from vrt_lite.settings import Source
from vrt_lite.show.pair_words import list_verdict
from vrt_lite.show.run_views import describe_judgement
from vrt_lite.show.words import OUTCOMES, capitalize_first, describe_event, list_warnings, name_judge
from vrt_lite.viewer.clip_media import place_served
from vrt_lite.viewer.overview import describe_ladder
from vrt_lite.web.job_queue import ServedJob, StoppedError
from vrt_lite.web.requests import CompareBody, RankBody, RefusedRequestError, RewardsBody
from vrt_lite.web.server_state import ServerState

_LADDER_SECONDS = 0.5
_MOST_SHOWN = 100
"""How many clips of a group the live leaderboard shows."""


@dataclass
class JobWork:
    """Does one job, and tells it how its judging goes.

    Between two judgements it may stop the work, or give way to a shorter job.
    """

    job: ServedJob
    state: ServerState
    judge: Judge
    store: Store
    _reader: PartReader = field(default_factory=PartReader)
    _exchanged: bool = False
    _spaces: tuple[Workspace, ...] = ()
    _groups: Sequence[ClipGroup] = ()
    _told: float = 0.0

    def compare(self, body: CompareBody) -> PlainData:
        """Judge one or both orders; return the judgement's JSON, the same in words, and where it is kept."""
        clips = one, two = (self.state.clip_store.find(body.a), self.state.clip_store.find(body.b))
        both = body.both_orders and self.store.digest(one) != self.store.digest(two)
        orders = (clips, (two, one)) if both else (clips,)
        looks = [self.judge.look_at(clip) for clip in clips]
        self._spaces = tuple(look.workspace for look in looks)
        about = [
            self.state.clip_store.describe(clip) | {"seconds": look.duration_seconds}
            for clip, look in zip(clips, looks, strict=True)
        ]
        run = begin_daily_run(self.store, self.judge)
        results: list[Result] = []

        def keep(task: Task, result: Result, now: bool) -> None:
            results.append(result)

        for number, order in enumerate(orders):
            self._exchanged = bool(number)
            self.job.tell(Progress(number, len(orders)))
            self.job.add("pair", clips=about, exchanged=self._exchanged)
            task = Task(*order, body.prompt)
            judge_all(
                iter([task]),
                run,
                store=self.store,
                judge=self.judge,
                done=keep,
                observe=self.observe,
                stop=self.job.stop,
            )
        judgement = _read_judgement(run, results, clips, body)
        return {"judgement": judgement.to_json(), "lines": list_verdict(judgement), "run": run.name}

    def rank(self, body: RankBody | RewardsBody) -> PlainData:
        """Rank clips; return the ranking's JSON, or the reward of each clip. It goes on where it stopped."""
        clip_store, effort = self.state.clip_store, Effort(both_orders=body.both_orders, budget=body.budget)
        if isinstance(body, RewardsBody):
            paths = [clip_store.find(clip) for clip in body.clips]
            # A run stands for one prompt and one judge.
            name = f"rewards-{hashlib.sha256(f'{self.judge.key()} {body.prompt}'.encode()).hexdigest()[:8]}"
        else:
            paths = [path for clip in body.clips for path in clip_store.find_all(clip)]
            effort = replace(effort, confidence=body.confidence, exclude_flagged=body.exclude_flagged)
            name = body.name
        ranking = rank_clips(
            [Group("", body.prompt, tuple(paths))],
            store=self.store,
            judge=self.judge,
            watcher=self,
            effort=effort,
            name=name,
            stop=self.job.stop,
        )
        if isinstance(body, RewardsBody):
            return _list_rewards(ranking, list(zip(body.clips, paths, strict=True)), self.store)
        self._tell_ladders(ranking.ladders)
        # Without the pairs, of which there may be two million: they are in the run.
        lean = tuple(msgspec.structs.replace(ladder, pairs=()) for ladder in ranking.ladders)
        return msgspec.structs.replace(ranking, ladders=lean).to_json()

    def begins(self, groups: Sequence[ClipGroup], progress: Progress, predicted: TimeRange | None, /) -> None:
        """Tell how much a ranking has to do."""
        self._groups = groups
        self.job.tell(msgspec.structs.replace(progress, seconds_left=predicted and predicted.middle))
        self._continue()

    def judged(self, label: Label, result: Result, progress: Progress, /) -> None:
        """Tell what was judged for a ranking."""
        self.job.tell(progress)
        words = describe_judgement(self._groups, label, result)
        self.job.add("pair", words=self.state.clip_store.uploads.hide(words))
        self._continue()

    def observe(self, event: Event, /) -> None:
        """Tell what the judge does."""
        job = self.job
        match event:
            case Predicted(predicted):
                if self._spaces and job.progress:  # of a comparison; a ranking has its own
                    job.tell(msgspec.structs.replace(job.progress, seconds_left=predicted.middle))
            case Wrote(text):
                job.add_text(text, self._reader.read(text))
            case RoundBegan(_, number, frames):
                self._reader = PartReader()
                job.add("round", number=number, frames=list(map(self._place, frames if self._spaces else ())))
            case RoundEnded(_, number, outcome):
                job.add("outcome", number=number, outcome=outcome, words=capitalize_first(OUTCOMES[outcome]))
            case OrderEnded():
                pass
            case _:
                done, total = getattr(event, "done", 0), getattr(event, "total", 0)
                job.add("stage", words=capitalize_first(describe_event(event)), done=done, total=total)

    def _tell_ladders(self, ladders: Iterable[Ladder]) -> None:
        """Tell the leaderboards."""
        self._told = time.monotonic()
        groups, media = list[PlainData](), PlainData()
        for ladder in ladders:
            groups.append(describe_ladder(ladder, most=_MOST_SHOWN))
            for clip in ladder.ranked[:_MOST_SHOWN]:
                media[clip.sha256] = place_served(self.state.clip_store.make_address(clip.path))
        judge = name_judge(self.judge.describe()["--model"], self.judge.scope)
        self.job.add("ladder", groups=groups, media=media, judge=judge)

    def _continue(self) -> None:
        """Tell the leaderboards now and then; StoppedError if the job was asked to stop, or gives way."""
        if time.monotonic() - self._told > _LADDER_SECONDS:
            self._tell_ladders(map(rate_group, self._groups))
        self.job.stop.check()
        if self.job.kind == "rank" and self.state.queue.is_short_job_queued():
            raise StoppedError("queued")

    def _place(self, frame: FrameRef) -> PlainData:
        """Say where a frame lies, by the videos as given and not as shown."""
        clip = frame.clip ^ self._exchanged
        space = self._spaces[clip]
        return {
            "video": clip + 1,
            "source": space.source[frame.index],
            "seconds": round(space.seconds[frame.index], 3),
            "called": frame.called,
        }


_NAME = re.compile(r"""^(['"]).*?\1 """)


def perform_job(job: ServedJob, state: ServerState) -> PlainData:
    """Do a job; return its result as plain data. Raises what the judge raises, and StoppedError."""
    try:
        with state.lend_judge(job) as (judge, store):
            work = JobWork(job, state, judge, store)
            return work.compare(job.request) if isinstance(job.request, CompareBody) else work.rank(job.request)
    except VideoError as error:
        hide = state.clip_store.uploads.hide
        raise type(error)(hide(str(error.path)), hide(error.reason)) from error


def _read_judgement(run: Run, results: list[Result], clips: tuple[Path, Path], body: CompareBody) -> Judgement:
    """Return the judgement of one or both orders, about these files. RefusedRequestError if there is none."""
    [pair] = join_results(results)
    judgement = run.read_pair(pair)
    if judgement is None:
        failed = results[0]
        # It may have been judged before, for someone else: their names are not told.
        message = _NAME.sub("A clip ", failed.error)
        raise RefusedRequestError(404 if failed.failure == "missing_clip" else 422, failed.failure, message)
    source: dict[str, Source] = {"both_orders": "option"} if body.both_orders else {}
    sources = {**judgement.settings.sources, **source}
    settings = replace(judgement.settings, both_orders=body.both_orders, sources=sources)
    judgement = replace(name_clips(judgement, clips), settings=settings)
    if len(judgement.orders) == 1 and len(results) == 2:
        judgement = add_warning(judgement, warn_of_one_order(judgement.orders[0].first))
    return judgement


def _list_rewards(ranking: Ranking, clips: list[tuple[str, Path]], store: Store) -> PlainData:
    """Return a scalar for each clip, in their order: its strength in log odds around the mean of these clips.

    A clip that cannot be used, or got no verdict, has null and a reason. Clips with the same content have the same
    reward. `flags` are a clip's measured faults in words.
    """
    [ladder] = ranking.ladders
    if not ladder.standings:
        raise NoVerdictError(next((of.reason for of in ladder.unranked), "No pair got a verdict."))
    broken = {out.path: out.reason for out in ranking.left_out if out.broken}
    none: PlainData = {"reward": None, "interval": None, "reason": None, "flags": ""}
    told = {clip.sha256: none | {"flags": describe_flags(clip.flags)} for clip in ladder.clips}
    for standing in ladder.standings:
        of = standing.ratings[OVERALL]
        told[ladder.clips[standing.clip].sha256] |= {"reward": of.strength, "interval": msgspec.to_builtins(of)}
    for clip in ladder.unranked:
        told[ladder.clips[clip.clip].sha256] |= {"reason": clip.reason}
    return {
        "rewards": [
            {"clip": name} | (none | {"reason": broken[path]} if path in broken else told.get(store.digest(path), none))
            for name, path in clips
        ],
        "judge": ranking.judge,
        "scope": ranking.scope,
        "warnings": list_warnings(ladder.conditions),
        "run": ranking.run,
        "judgements": ladder.judgements,
        "found": ranking.found,
    }
