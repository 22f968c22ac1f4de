"""A judge of brightness and clips of one grey each: rankings whose outcome is known, without a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from clips import write_clip
from judgements import with_odds

from vrt_lite.api import Judge
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import Backend, FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, FrameRef, Odds, Reply
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.records.ladders import Ladder, Ranking
from vrt_lite.runs.store import Store
from vrt_lite.show.run_views import RankingView

SIZE = (56, 56)
GREY = 35.0
CHOICES = {0: (0.8, 0.1, 0.1), 1: (0.1, 0.8, 0.1), 2: (0.1, 0.1, 0.8)}


def write_greys(folder: Path, greys: Sequence[int]) -> list[Path]:
    """A clip a grey, named by its place, so that names say nothing of the brightness."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_grey(folder / f"take {number}.mp4", grey) for number, grey in enumerate(greys, start=1)]


def write_grey(path: Path, grey: int) -> Path:
    pictures = [np.full((*SIZE[::-1], 3), grey, np.uint8)] * 4
    return write_clip(path, fps=8, size=SIZE, pictures=pictures, bframes=0)


def read_greys(frames: FrameStore) -> tuple[float, float]:
    """The brightness of both clips."""
    one, two = (float(picture.mean()) for picture in frames.pixels([FrameRef(0, 0), FrameRef(1, 0)]))
    return one, two


def answer(choice: int, odds: Odds) -> Reply:
    """A winner in quality and overall; alignment and motion are ties."""
    text = f"<think>Light.</think>\n<final answer>TA=0, VQ={choice}, MQ=0, OA={choice}</final answer>"
    return with_odds(text, CHOICES[0], odds, CHOICES[0], odds)


class Brightness:
    """Prefers the brighter clip: in quality by itself, overall too, unless both are alike within `near`.

    Clips alike within `near` are judged by `biased`: 0 says a tie, 1 the clip shown first. A clip darker than `dark`
    cannot be judged. `asked` holds the pairs of greys, in the order judged.
    """

    def __init__(self, *, near: int = 0, biased: int = 0, dark: int = 0) -> None:
        self.asked: list[tuple[int, int]] = []
        self._near, self._biased, self._dark = near, biased, dark

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        one, two = map(round, read_greys(frames))
        self.asked.append((one, two))
        if min(one, two) < self._dark:
            raise NoVerdictError("No verdict: it is too dark.")
        choice = self._biased if abs(one - two) <= self._near else 1 if one > two else 2
        return answer(choice, CHOICES[choice])


class Honest:
    """Knows how good a clip is by its brightness, `GREY` greys a log odd, and gives honest probabilities.

    It prefers the clip shown first by `first` log odds, and writes what is then likeliest.
    """

    def __init__(self, *, first: float) -> None:
        self._first = first

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        one, two = read_greys(frames)
        advantage = (one - two) / GREY + self._first
        likely = np.exp([-1.0, advantage / 2, -advantage / 2])
        tie, first, second = (likely / likely.sum()).tolist()
        return answer(int(np.argmax(likely)), (tie, first, second))


def judge_of(backend: Backend) -> Judge:
    """A judge with the back end's own probabilities: temperatures are fitted to the bundled judge's."""
    judge = Judge(backend=backend, measures=False)
    judge.mode.profile = replace(judge.mode.profile, temperatures={})
    return judge


def unwatched() -> RankingView:
    return RankingView(io.StringIO(), quiet=True)


def group(clips: Sequence[Path], name: str = "", prompt: str = "Light.") -> Group:
    return Group(name, prompt, tuple(clips))


def ranked(store: Store, backend: Backend, *groups: Group, **options: Any) -> Ranking:
    """What the back end's ranking of the groups is; options are those of `rank_clips`."""
    with judge_of(backend) as judge:
        return rank_clips(groups, store=store, judge=judge, **{"watcher": unwatched(), **options})


def names(ladder: Ladder) -> tuple[str, ...]:
    """The clips' names, best first."""
    return tuple(ladder.clips[standing.clip].name for standing in ladder.standings)
