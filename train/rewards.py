"""The reward of VR-Thinker's GRPO (paper, section on training), from what was written and the labels alone.

reward = format + accuracy + gain + incentive · explore, of a trace in its group of traces on the same pair. Pure
arithmetic on rounds; knows no model, no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from train.cases import right
from vrt_lite.judge import Round
from vrt_lite.protocol.tags import OVERALL, Answer, Choice, Marks

if TYPE_CHECKING:
    from train.recipe import Grpo

_LEAST_DEVIATION = 1e-4


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one trace's reward, each as it counts in the sum."""

    format: float
    accuracy: float
    gain: float
    explore: float

    @property
    def total(self) -> float:
        """The reward."""
        return self.format + self.accuracy + self.gain + self.explore


def answers(rounds: Sequence[Round]) -> list[Marks]:
    """The successive answers of a trace: every recommendation, and the final one."""
    return [r.marks for r in rounds if r.marks is not None]


def called(rounds: Sequence[Round]) -> bool:
    """Whether a call of the trace brought frames."""
    return any(r.outcome == "tool" for r in rounds)


def well_formed(rounds: Sequence[Round]) -> bool:
    """Whether every reply could be used as it was, and the last is a final answer."""
    return bool(rounds) and not any(r.correction for r in rounds) and isinstance(rounds[-1].parsed, Answer)


def accuracy(choices: Mapping[str, Choice], labels: Mapping[str, Choice], *, alpha: float) -> float:
    """The share alpha · 1[overall right] + (1 - alpha) · mean over dimensions of 1[right], within 0 to 1.

    What a set has no label for takes no part: without an overall label the dimensions count in full, and without
    any dimension's the overall one does. 0 without labels.
    """
    marks = right(choices, labels)
    overall = marks.pop(OVERALL, None)
    if not marks:
        return float(bool(overall))
    mean = fmean(marks.values())
    return mean if overall is None else alpha * overall + (1 - alpha) * mean


def gain(accuracies: Sequence[float], *, k: float) -> float:
    """The sum of differences of accuracy between successive answers, times k; 0 for a single one."""
    return k * sum(after - before for before, after in pairwise(accuracies))


def explore(calls: Sequence[bool], *, share: float) -> list[float]:
    """Of each trace of a group: max(share - R, 0) if it called the tool, R being the share of the group that did."""
    rate = sum(calls) / len(calls) if calls else 0.0
    return [max(share - rate, 0.0) if call else 0.0 for call in calls]


def group_terms(traces: Sequence[Sequence[Round]], labels: Mapping[str, Choice], recipe: Grpo) -> list[Terms]:
    """The terms of every trace of one group. A trace is its rounds, and may have ended without a verdict."""
    bonus = explore([called(rounds) for rounds in traces], share=recipe.share)
    terms: list[Terms] = []
    for rounds, extra in zip(traces, bonus, strict=True):
        steps = [accuracy(marks.choices, labels, alpha=recipe.alpha) for marks in answers(rounds)]
        terms.append(
            Terms(
                format=float(well_formed(rounds)),
                accuracy=steps[-1] if steps else 0.0,
                gain=gain(steps, k=recipe.gain),
                explore=recipe.incentive * extra,
            )
        )
    return terms


def informative(terms: Sequence[Terms]) -> bool:
    """Whether a group can teach: its accuracies are not all 0, nor all 1, and its rewards differ (dynamic sampling)."""
    accuracies = [term.accuracy for term in terms]
    if all(value <= 0 for value in accuracies) or all(value >= 1 for value in accuracies):
        return False
    return any(advantages([term.total for term in terms]))


def advantages(rewards: Sequence[float]) -> list[float]:
    """(reward - mean) / (standard deviation + 1e-4) within a group, as GRPO has it; 0 for a group of one."""
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + _LEAST_DEVIATION) for reward in rewards]
