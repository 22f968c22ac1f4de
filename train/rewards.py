"""The reward of VR-Thinker's GRPO (paper, section on training), computed from traces and labels.

reward = format + accuracy + gain + eta · explore, for a trace in its group of traces about the same pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from train.data import right
from train.strict_format import conforms
from vrt_lite.judge import Round
from vrt_lite.protocol.messages import OVERALL, Choice
from vrt_lite.protocol.tags import Marks

if TYPE_CHECKING:
    from train.recipe import Reward

_LEAST_DEVIATION = 1e-4


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one trace's reward, already weighted."""

    format: float
    accuracy: float
    gain: float
    explore: float

    @property
    def total(self) -> float:
        """The reward."""
        return self.format + self.accuracy + self.gain + self.explore


def answers(rounds: Sequence[Round]) -> list[Marks]:
    """Return the successive answers of a trace: every recommendation, and the final answer."""
    return [r.marks for r in rounds if r.marks is not None]


def called(rounds: Sequence[Round]) -> bool:
    """Whether the trace got frames by a call."""
    return any(r.outcome == "tool" for r in rounds)


def accuracy(choices: Mapping[str, Choice], labels: Mapping[str, Choice], *, alpha: float) -> float:
    """Compute alpha · 1[overall right] + (1 - alpha) · mean over dimensions of 1[right], from 0 to 1.

    Without an overall label only the dimensions count. Without labels of dimensions only the overall label counts.
    The result is 0 without labels.
    """
    marks = right(choices, labels)
    overall = marks.pop(OVERALL, None)
    if not marks:
        return float(bool(overall))
    mean = fmean(marks.values())
    return mean if overall is None else alpha * overall + (1 - alpha) * mean


def gain(accuracies: Sequence[float], *, k: float) -> float:
    """Compute k times the sum of differences of accuracy between successive answers; 0 for a single answer."""
    return k * sum(after - before for before, after in pairwise(accuracies))


def explore(calls: Sequence[bool], *, omega: float) -> list[float]:
    """Compute for each trace that called the tool max(omega - R, 0), R being the share of the group that called it."""
    rate = sum(calls) / len(calls) if calls else 0.0
    return [max(omega - rate, 0.0) if call else 0.0 for call in calls]


def group_terms(traces: Sequence[Sequence[Round]], labels: Mapping[str, Choice], how: Reward) -> list[Terms]:
    """Compute the terms for every trace of a group. A trace is a list of rounds; it may have no verdict."""
    bonus = explore([called(rounds) for rounds in traces], omega=how.omega)
    terms: list[Terms] = []
    for rounds, extra in zip(traces, bonus, strict=True):
        steps = [accuracy(marks.choices, labels, alpha=how.alpha) for marks in answers(rounds)]
        terms.append(
            Terms(
                format=float(conforms(rounds)),
                accuracy=steps[-1] if steps else 0.0,
                gain=gain(steps, k=how.k),
                explore=how.eta * extra,
            )
        )
    return terms


def informative(terms: Sequence[Terms]) -> bool:
    """Whether a group teaches anything: its accuracies are not all 0 or all 1, and its rewards differ.

    This is dynamic sampling.
    """
    accuracies = [term.accuracy for term in terms]
    if all(value <= 0 for value in accuracies) or all(value >= 1 for value in accuracies):
        return False
    return any(advantages([term.total for term in terms]))


def advantages(rewards: Sequence[float]) -> list[float]:
    """Compute GRPO's advantages: (reward - mean) / (standard deviation + 1e-4) in a group; 0 for a group of one."""
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + _LEAST_DEVIATION) for reward in rewards]
