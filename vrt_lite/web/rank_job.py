"""Ranks clips for a client, and tells the leaderboard as it grows; also the rewards of a group of clips."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import Event, TimeRange
from vrt_lite.measures.flags import describe_flags
from vrt_lite.protocol.messages import KEYS, OVERALL
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.ladder import Ladder, rate_group
from vrt_lite.ranking.rank import RankProgress, rank_clips
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.show.run_views import describe_judgement
from vrt_lite.show.words import list_warnings, write_headline
from vrt_lite.viewer.pair_view import place_served
from vrt_lite.viewer.ranking_view import describe_ladder
from vrt_lite.web.job_context import JobContext, JobJudge
from vrt_lite.web.pair_watcher import PairWatcher
from vrt_lite.web.request_bodies import RankBody, RewardsBody, read_body
from vrt_lite.web.served_job import ServedJob, StoppedError

_LADDER_SECONDS = 0.5
_MOST_SHOWN = 100
"""How many clips of a group the live leaderboard shows."""


class JobWatcher:
    """Tells a job how its ranking goes. Between two judgements it may stop the work, or give way to a shorter job."""

    def __init__(self, job: ServedJob, context: JobContext, judge: JobJudge, *, gives_way: bool) -> None:
        """Watch `judge` at work, for a job."""
        self._job = job
        self._context = context
        self._judge = ", ".join(text for text in (judge.describe()["--model"], judge.scope) if text)
        self._gives_way = gives_way
        self._hide = context.clip_store.uploads.hide
        self._make_address = context.clip_store.make_address
        self._pair = PairWatcher(job, self._make_address)
        self._groups: Sequence[ClipGroup] = ()
        self._told = 0.0

    def begins(self, groups: Sequence[ClipGroup], done: int, most: int, predicted: TimeRange | None, /) -> None:
        """Tell how much there is to do."""
        self._groups = groups
        self._job.add("progress", done=done, most=most, seconds_left=predicted and predicted.middle)
        self.tell_ladders(map(rate_group, self._groups))
        self._stop_if_asked()

    def judged(self, progress: RankProgress, /) -> None:
        """Tell what was judged."""
        number, i, j = progress.label
        clips, result = self._groups[number].clips, progress.result
        left = progress.seconds_left
        self._job.add("progress", done=progress.done, most=progress.most, seconds_left=left)
        one, two = (clips[k].name for k in (i, j))
        words = (
            write_headline(result.verdict, (one, two)) if result.verdict else f"No verdict: {self._hide(result.error)}"
        )
        words = describe_judgement(self._groups, progress) if i == j else words
        winners = dict.fromkeys(KEYS) | dict(result.winners) if result.winners else None
        self._job.add("pair", clips=[{"name": one}, {"name": two}], winners=winners, words=words)
        self._context.end_judgement(progress.result.seconds)
        if time.monotonic() - self._told > _LADDER_SECONDS:
            self.tell_ladders(map(rate_group, self._groups))
        self._stop_if_asked()

    def observe(self, event: Event, /) -> None:
        """Tell what the judge does."""
        self._pair.observe(event)

    def tell_ladders(self, ladders: Iterable[Ladder]) -> None:
        """Tell the leaderboards."""
        self._told = time.monotonic()
        groups, media = list[dict[str, Any]](), dict[str, Any]()
        for ladder in ladders:
            groups.append(describe_ladder(ladder, most=_MOST_SHOWN))
            for clip in ladder.ranked[:_MOST_SHOWN]:
                media[clip.sha256] = place_served(self._make_address(clip.path))
        self._job.add("ladder", groups=groups, media=media, judge=self._judge)

    def _stop_if_asked(self) -> None:
        self._job.check_stopped()
        if self._gives_way and self._context.gives_way():
            raise StoppedError("queued")


def rank_folder(job: ServedJob, context: JobContext) -> dict[str, Any]:
    """Rank the clips of a request; return the ranking's JSON. It goes on where it stopped."""
    body = read_body(dict(job.request), RankBody)
    paths = [path for clip in body.clips for path in context.clip_store.find_all(clip)]
    effort = Effort(
        both_orders=body.both_orders,
        budget=body.budget,
        confidence=body.confidence,
        exclude_flagged=body.exclude_flagged,
    )
    group, jobs = Group("", body.prompt, tuple(paths)), context.choice.jobs
    with context.lend_judge(job, body) as (judge, store):
        watcher = JobWatcher(job, context, judge, gives_way=True)
        ranking = rank_clips(
            [group], store=store, judge=judge, watcher=watcher, effort=effort, name=body.name, jobs=jobs
        )
    watcher.tell_ladders(ranking.ladders)
    # Without the pairs, of which there may be two million: they are in the run.
    return ranking.to_json() | {"ladders": [ladder.to_json(pairs=False) for ladder in ranking.ladders]}


def reward_clips(job: ServedJob, context: JobContext) -> dict[str, Any]:
    """Rank the clips of a request; return a scalar for each clip, in their order.

    A reward is the clip's strength in log odds around the mean of these clips. A clip that cannot be used, or got no
    verdict, has null and a reason. Clips with the same content have the same reward. `flags` are a clip's measured
    faults in words.
    """
    body = read_body(dict(job.request), RewardsBody)
    paths = [context.clip_store.find(clip) for clip in body.clips]
    effort = Effort(both_orders=body.both_orders, budget=body.budget)
    group, jobs = Group("", body.prompt, tuple(paths)), context.choice.jobs
    with context.lend_judge(job, body) as (judge, store):
        watcher = JobWatcher(job, context, judge, gives_way=False)
        # A run stands for one prompt and one judge.
        run = f"rewards-{hashlib.sha256(f'{judge.key()} {body.prompt}'.encode()).hexdigest()[:8]}"
        ranking = rank_clips([group], store=store, judge=judge, watcher=watcher, effort=effort, name=run, jobs=jobs)
        broken = {out.path: out.reason for out in ranking.left_out if out.broken}
        digests = {path: store.digest(path) for path in paths if path not in broken}
    [ladder] = ranking.ladders
    if not ladder.standings:
        raise NoVerdictError(next((why for _, why in ladder.unranked), "No pair got a verdict."))
    strengths = {ladder.clips[s.clip].sha256: s.ratings[OVERALL].to_json() for s in ladder.standings}
    flags = {clip.sha256: describe_flags(clip.flags) for clip in ladder.clips}
    reasons = {ladder.clips[clip].sha256: reason for clip, reason in ladder.unranked}
    rewards: list[dict[str, Any]] = []
    for clip, path in zip(body.clips, paths, strict=True):
        sha256 = digests.get(path, "")
        rated, reason = strengths.get(sha256), broken.get(path) or reasons.get(sha256)
        rewards.append(
            {
                "clip": clip,
                "reward": rated and rated["strength"],
                "interval": rated,
                "reason": reason,
                "flags": flags.get(sha256, ""),
            }
        )
    told = {"run": run, "judgements": ladder.judgements, "found": ranking.found}
    known = {"judge": ranking.judge, "scope": ranking.scope, "warnings": list_warnings(ladder.conditions)}
    return {"rewards": rewards, **known, **told}
