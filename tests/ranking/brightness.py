"""A judge of brightness and clips of one grey each: rankings whose outcome is known, without a model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from clips import write_clip
from judgements import with_odds

from vrt_lite.api import Judge
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import Backend, FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, FrameRef, Reply
from vrt_lite.records.ladders import Ladder
from vrt_lite.show.run_views import RankingView
from vrt_lite.show.screen import Screen

SIZE = (56, 56)
GREY = 35.0
CHOICES = {0: (0.8, 0.1, 0.1), 1: (0.1, 0.8, 0.1), 2: (0.1, 0.1, 0.8)}


def write_greys(folder: Path, greys: Sequence[int]) -> list[Path]:
    """A clip a grey, named by its place, so that names say nothing of the brightness."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_grey(folder / f"take {number}.mp4", grey) for number, grey in enumerate(greys, start=1)]


def write_grey(path: Path, grey: int) -> Path:
    """One clip of a second."""
    pictures = [np.full((*SIZE[::-1], 3), grey, np.uint8)] * 8
    return write_clip(path, frames=8, fps=8, size=SIZE, pictures=pictures, bframes=0)


class Brightness:
    """Prefers the brighter clip: in quality by itself, overall too, unless both are alike within `near`.

    Clips alike within `near` are judged by `biased`: 0 says a tie, 1 the clip shown first. Alignment and motion are
    ties. A clip darker than `dark` cannot be judged. `asked` holds the pairs of greys, in the order judged.
    """

    def __init__(self, *, near: int = 0, biased: int = 0, dark: int = 0) -> None:
        self.asked: list[tuple[int, int]] = []
        self._near = near
        self._biased = biased
        self._dark = dark

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        one, two = (round(float(picture.mean())) for picture in frames.pixels([FrameRef(0, 0), FrameRef(1, 0)]))
        self.asked.append((one, two))
        if min(one, two) < self._dark:
            raise NoVerdictError("No verdict: it is too dark.")
        choice = self._biased if abs(one - two) <= self._near else 1 if one > two else 2
        text = f"<think>Light.</think>\n<final answer>TA=0, VQ={choice}, MQ=0, OA={choice}</final answer>"
        return with_odds(text, CHOICES[0], CHOICES[choice], CHOICES[0], CHOICES[choice])


class Honest:
    """Knows how good a clip is by its brightness, `GREY` greys a log odd, and gives honest probabilities.

    It prefers the clip shown first by `first` log odds, and writes what is then likeliest. Alignment and motion are
    ties.
    """

    def __init__(self, *, first: float) -> None:
        self._first = first

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        one, two = (float(picture.mean()) for picture in frames.pixels([FrameRef(0, 0), FrameRef(1, 0)]))
        advantage = (one - two) / GREY + self._first
        likely = np.exp([-1.0, advantage / 2, -advantage / 2])
        tie, first, second = (likely / likely.sum()).tolist()
        choice = int(np.argmax(likely))
        text = f"<think>Light.</think>\n<final answer>TA=0, VQ={choice}, MQ=0, OA={choice}</final answer>"
        return with_odds(text, CHOICES[0], (tie, first, second), CHOICES[0], (tie, first, second))


def judge_of(backend: Backend) -> Judge:
    """A judge with the back end's own probabilities: temperatures are fitted to the bundled judge's."""
    judge = Judge(backend=backend)
    judge.mode.profile = replace(judge.mode.profile, temperatures={})
    return judge


def unwatched() -> RankingView:
    return RankingView(Screen(io.StringIO(), quiet=True))


def names(ladder: Ladder) -> tuple[str, ...]:
    """The clips' names, best first."""
    return tuple(ladder.clips[standing.clip].name for standing in ladder.standings)
