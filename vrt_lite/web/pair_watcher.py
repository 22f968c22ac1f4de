"""Turns what the engine tells while it judges a pair into a job's events: what a page shows while it waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vrt_lite.interfaces import Encoding, Event, OrderEnded, Predicted, Prefill, RoundBegan, RoundEnded, Wrote
from vrt_lite.pair_frames import Workspace
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.protocol.tags import PartReader
from vrt_lite.show.words import OUTCOMES, capitalize_first, describe_event
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.job_context import JobJudge
from vrt_lite.web.served_job import ServedJob


class PairWatcher:
    """Watches the judge at work on pairs of a job."""

    def __init__(self, job: ServedJob, make_address: Callable[[Path], str]) -> None:
        self._job = job
        self._make_address = make_address
        self._reader = PartReader()
        self._exchanged = False
        self._spaces: tuple[Workspace, ...] = ()

    def begin_pair(self, clips: tuple[Path, Path], judge: JobJudge, *, exchanged: bool = False) -> None:
        """Tell that a pair begins. VideoError if a clip cannot be used."""
        self._exchanged = exchanged
        looks = [judge.look_at(path) for path in clips]
        self._spaces = tuple(look.workspace for look in looks)
        about = [
            {"name": name_clip(path), "seconds": look.duration_seconds, "address": self._make_address(path)}
            for path, look in zip(clips, looks, strict=True)
        ]
        self._job.add("pair", clips=about[::-1] if exchanged else about, exchanged=exchanged)

    def observe(self, event: Event) -> None:
        """Add the event to the job."""
        job = self._job
        match event:
            case Predicted(predicted):
                if self._spaces:  # of a comparison; a ranking has its own
                    job.add("left", seconds_left=predicted.middle)
            case Wrote(text):
                job.add_text(text, self._reader.read(text))
            case Encoding(done, total) | Prefill(done, total):
                job.add("stage", words=capitalize_first(describe_event(event)), done=done, total=total)
            case RoundBegan(_, number, frames):
                self._reader = PartReader()
                job.add("round", number=number, frames=self._place(frames))
            case RoundEnded(_, number, outcome):
                job.add("outcome", number=number, outcome=outcome, words=capitalize_first(OUTCOMES[outcome]))
            case OrderEnded():
                pass
            case _:
                job.add("stage", words=capitalize_first(describe_event(event)), done=0, total=0)

    def _place(self, frames: Sequence[FrameRef]) -> list[dict[str, Any]]:
        """Say where frames lie, by the videos as given and not as shown."""
        if not self._spaces:
            return []
        return [
            {
                "video": (frame.clip ^ self._exchanged) + 1,
                "source": self._spaces[frame.clip].source[frame.index],
                "seconds": round(self._spaces[frame.clip].seconds[frame.index], 3),
                "called": frame.called,
            }
            for frame in frames
        ]
