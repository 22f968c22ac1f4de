"""Predicts how long judging takes, from a machine's speed and from what the judgements of a run evaluate. Only sums.

In a run nothing is evaluated twice: a clip's first frames are encoded once, and the tokens of a clip that was video 1
not long ago are not read again. So later judgements take less time than the first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import astuple, dataclass
from typing import Literal

from vrt_lite.fitting.memory_estimate import count_text_tokens
from vrt_lite.interfaces import Predicted
from vrt_lite.judgement import Judgement
from vrt_lite.profile import Profile
from vrt_lite.settings import BothOrders

_TURN_TOKENS = 60
"""Text between two replies: what comes with asked-for frames, and the marks of the turns."""

Source = Literal["measured", "tuned", "estimated"]


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds by stage, of a judgement or of many."""

    encode: float = 0.0
    read: float = 0.0
    write: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(astuple(self))

    def combined_with(self, other: Stages, combine: Callable[[float, float], float]) -> Stages:
        """Combine both, stage by stage."""
        return Stages(*map(combine, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds for a visual token that is encoded, a token that is read, a token that is written, and all else.

    `source` says where they come from: earlier judgements, `vrt-lite tune`, or the speed of single operations.
    """

    encode: float
    read: float
    write: float
    other: float
    source: Source


@dataclass(frozen=True, slots=True)
class Habits:
    """How many rounds a judge takes, and how many tokens it writes in each."""

    rounds: float = 2.0
    written: float = 250.0


@dataclass(frozen=True, slots=True)
class JudgementWork:
    """Tokens of one judgement: the frames of a clip shown first, those that calls bring, text, and what is written."""

    clip: float
    called: float
    text: float
    written: float


def count_work(profile: Profile, habits: Habits, size: tuple[int, int] | None = None) -> JudgementWork:
    """Count the tokens of a judgement of clips of this (width, height); without it, of the largest frames."""
    tokens = [profile.max_pixels // profile.pixels_per_token, profile.tool_cells]
    if size:
        sides = (profile.frame_size(*size, called=called) for called in (False, True))
        tokens = [(width // profile.cell) * (height // profile.cell) for width, height in sides]
    calls = min(habits.rounds, profile.rounds) - 1
    called = profile.frames_per_call / _frames_of_patch(profile)
    return JudgementWork(
        clip=-(-profile.first_frames // 2) * tokens[0],
        called=calls * called * tokens[1],
        text=count_text_tokens(profile) + calls * _TURN_TOKENS,
        written=(1 + calls) * habits.written,
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a judgement evaluates, what that costs, and for how many clips the engine keeps the tokens of video 1."""

    work: JudgementWork
    costs: UnitCosts
    kept_states: int

    def predict_seconds(self, *, both_orders: bool = False) -> float:
        """Seconds of a judgement, or of both orders, of two clips that were not seen before."""
        course = Course(self)
        seconds = course.add("1", "2").total
        # For the second order the clips are open, and measured.
        return seconds + course.add("2", "1").total - self.costs.other if both_orders else seconds


def event_of(prediction: Prediction, profile: Profile, *, both_orders: BothOrders) -> Predicted:
    """The event that announces a judgement with this prediction."""
    costs, pairs = prediction.costs, -(-profile.first_frames // 2)
    seconds = prediction.predict_seconds(both_orders=both_orders is True)
    most = prediction.predict_seconds(both_orders=True) if both_orders == "auto" else None
    return Predicted(seconds, costs.encode * prediction.work.clip / pairs, costs.read, costs.write, most)


class Course:
    """Judgements one after the other, and what is known of their clips by then."""

    def __init__(self, prediction: Prediction) -> None:
        self._prediction = prediction
        self._encoded: set[str] = set()
        self._pairs: set[frozenset[str]] = set()
        self._read: OrderedDict[str, None] = OrderedDict()

    def add(self, first: str, second: str) -> Stages:
        """Add a judgement of two clips, each named by any text; returns its seconds."""
        work, costs = self._prediction.work, self._prediction.costs
        pair = frozenset((first, second))
        new = len(pair - self._encoded)
        self._encoded |= pair
        # In the other order a judge mostly asks for the same frames.
        called = 0.0 if pair in self._pairs else work.called
        self._pairs.add(pair)
        repeated = first in self._read
        self._read[first] = None
        self._read.move_to_end(first)
        while len(self._read) > self._prediction.kept_states:
            self._read.popitem(last=False)
        read = work.text + work.called + work.clip * (1 if repeated else 2)
        return Stages(
            costs.encode * (new * work.clip + called), costs.read * read, costs.write * work.written, costs.other
        )


class RunForecast:
    """Predicts the rest of a run, and corrects the prediction, stage by stage, by what its judgements took.

    Without a prediction, as for a server, it only knows the mean time of the judgements so far.
    """

    def __init__(self, prediction: Prediction | None, *, jobs: int = 1) -> None:
        self._course = Course(prediction) if prediction else None
        self._jobs = jobs
        self._judged = 0
        self._predicted = Stages()
        self._measured = Stages()

    def add(self, first: str, second: str, measured: Stages) -> None:
        """Add a judgement that took this long."""
        self._judged += 1
        self._measured = self._measured.combined_with(measured, float.__add__)
        if self._course:
            self._predicted = self._predicted.combined_with(self._course.add(first, second), float.__add__)

    def predict_seconds(self, tasks: Iterable[tuple[str, str]]) -> float | None:
        """Seconds for these judgements, each named by its clips; None if nothing is known yet."""
        if self._course is None:
            left = sum(1 for _ in tasks)
            return self._measured.total / self._judged * left / self._jobs if self._judged else None
        course, rest = deepcopy(self._course), Stages()
        for task in tasks:
            rest = rest.combined_with(course.add(*task), float.__add__)
        if not self._judged:
            return rest.total
        ratios = self._measured.combined_with(self._predicted, lambda took, said: took / said if said else 1.0)
        return rest.combined_with(ratios, float.__mul__).total


def measure_stages(judgement: Judgement) -> Stages:
    """The seconds that a judgement took. Loading is left out: it is done once."""
    t = judgement.timings
    return Stages(t.vision, t.prefill, t.generate, t.other)


def count_encoded_tokens(judgement: Judgement, profile: Profile) -> float:
    """Count the visual tokens that were encoded for a judgement."""
    shown, called = (
        sum((width // profile.cell) * (height // profile.cell) for width, height in sizes) / 2
        for sizes in (
            [clip.shown_size for clip in judgement.inputs],
            [clip.tool_size or clip.shown_size for clip in judgement.inputs],
        )
    )
    of_called = called / _frames_of_patch(profile)
    rounds = [r for order in judgement.orders for r in order.rounds]
    return sum(r.frames_encoded * (shown / 2 if r.number == 1 else of_called) for r in rounds)


def _frames_of_patch(profile: Profile) -> int:
    """How many asked-for frames are encoded together."""
    return 2 if profile.tool_form == "video" else 1
