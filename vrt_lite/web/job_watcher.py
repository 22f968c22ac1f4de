"""Turns what the engine tells while it judges into a job's events: what a page shows while it waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vrt_lite.interfaces import (
    Encoding,
    Event,
    OrderEnded,
    Predicted,
    Prefill,
    RoundBegan,
    RoundEnded,
    TimeRange,
    Wrote,
)
from vrt_lite.pair_frames import Workspace
from vrt_lite.protocol.messages import KEYS, FrameRef
from vrt_lite.protocol.tags import PartReader
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.ranking.ladder import Ladder, rate_group
from vrt_lite.ranking.rank import RankProgress
from vrt_lite.runs.judging import PairJudge
from vrt_lite.show.pair_words import write_headline
from vrt_lite.show.run_views import describe_judgement
from vrt_lite.show.words import OUTCOMES, capitalize_first, describe_event
from vrt_lite.viewer.pair_view import place_served
from vrt_lite.viewer.ranking_view import describe_ladder
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.job_context import JobContext
from vrt_lite.web.served_job import ServedJob, StoppedError

_LADDER_SECONDS = 0.5
_MOST_SHOWN = 100
"""How many clips of a group the live leaderboard shows."""


class JobWatcher:
    """Tells a job how its judging goes. Between two judgements it may stop the work, or give way to a shorter job."""

    def __init__(self, job: ServedJob, context: JobContext, judge: PairJudge) -> None:
        self._job = job
        self._context = context
        self._judge = judge
        self._make_address = context.clip_store.make_address
        self._reader = PartReader()
        self._exchanged = False
        self._spaces: tuple[Workspace, ...] = ()
        self._groups: Sequence[ClipGroup] = ()
        self._told = 0.0

    def begin_pair(self, clips: tuple[Path, Path], *, exchanged: bool) -> None:
        """Tell that the pair of a comparison begins. VideoError if a clip cannot be used."""
        self._exchanged = exchanged
        looks = [self._judge.look_at(path) for path in clips]
        self._spaces = tuple(look.workspace for look in looks)
        about = [
            {"name": name_clip(path), "seconds": look.duration_seconds, "address": self._make_address(path)}
            for path, look in zip(clips, looks, strict=True)
        ]
        self._job.add("pair", clips=about[::-1] if exchanged else about, exchanged=exchanged)

    def begins(self, groups: Sequence[ClipGroup], done: int, most: int, predicted: TimeRange | None, /) -> None:
        """Tell how much a ranking has to do."""
        self._groups = groups
        self._job.add("progress", done=done, most=most, seconds_left=predicted and predicted.middle)
        self._continue(at_once=True)

    def judged(self, progress: RankProgress, /) -> None:
        """Tell what was judged for a ranking."""
        number, i, j = progress.label
        result = progress.result
        self._job.add("progress", done=progress.done, most=progress.most, seconds_left=progress.seconds_left)
        names = [self._groups[number].clips[k].name for k in (i, j)]
        if i == j:
            words = describe_judgement(self._groups, progress)
        elif result.verdict:
            words = write_headline(result.verdict, (names[0], names[1]))
        else:
            words = f"No verdict: {self._context.clip_store.uploads.hide(result.error)}"
        winners = dict.fromkeys(KEYS) | dict(result.winners) if result.winners else None
        self._job.add("pair", clips=[{"name": name} for name in names], winners=winners, words=words)
        self._context.end_judgement(result.seconds)
        self._continue(at_once=False)

    def observe(self, event: Event, /) -> None:
        """Tell what the judge does."""
        job = self._job
        match event:
            case Predicted(predicted):
                if self._spaces:  # of a comparison; a ranking has its own
                    job.add("left", seconds_left=predicted.middle)
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
                done, total = (event.done, event.total) if isinstance(event, Encoding | Prefill) else (0, 0)
                job.add("stage", words=capitalize_first(describe_event(event)), done=done, total=total)

    def tell_ladders(self, ladders: Iterable[Ladder]) -> None:
        """Tell the leaderboards."""
        self._told = time.monotonic()
        groups, media = list[dict[str, Any]](), dict[str, Any]()
        for ladder in ladders:
            groups.append(describe_ladder(ladder, most=_MOST_SHOWN))
            for clip in ladder.ranked[:_MOST_SHOWN]:
                media[clip.sha256] = place_served(self._make_address(clip.path))
        judge = ", ".join(filter(None, (self._judge.describe()["--model"], self._judge.scope)))
        self._job.add("ladder", groups=groups, media=media, judge=judge)

    def _continue(self, *, at_once: bool) -> None:
        """Tell the leaderboards now and then; StoppedError if the job was asked to stop, or gives way."""
        if at_once or time.monotonic() - self._told > _LADDER_SECONDS:
            self.tell_ladders(map(rate_group, self._groups))
        self._job.check_stopped()
        if self._job.kind == "rank" and self._context.gives_way():
            raise StoppedError("queued")

    def _place(self, frame: FrameRef) -> dict[str, Any]:
        """Say where a frame lies, by the videos as given and not as shown."""
        space = self._spaces[frame.clip]
        return {
            "video": (frame.clip ^ self._exchanged) + 1,
            "source": space.source[frame.index],
            "seconds": round(space.seconds[frame.index], 3),
            "called": frame.called,
        }
