"""What a step of GRPO learns from: groups of rollouts with what each is worth, cut into rows for the model.

Knows rewards, segments and which tokens were the model's own choice. Refuses to know models and trainers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from train.cases import Case
from train.policy.rendering import Rendered, Segment, segments
from train.policy.rollout import Rollout
from train.rewards import Terms, advantages, called, informative


@dataclass(frozen=True, slots=True)
class Row:
    """A segment to learn from. `ended` says of each learned reply whether the model drew its end."""

    case: Case
    segment: Segment
    ended: tuple[bool, ...]
    advantage: float


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one query, and what each is worth."""

    rollouts: tuple[Rollout, ...]
    terms: tuple[Terms, ...]

    @property
    def informative(self) -> bool:
        """Whether its accuracies differ from all 0 and all 1."""
        return informative([terms.accuracy for terms in self.terms])

    def rows(self) -> Iterator[Row]:
        """All segments of all rollouts, in order."""
        worth = advantages([terms.total for terms in self.terms])
        for rollout, advantage in zip(self.rollouts, worth, strict=True):
            ends = iter(rollout.ended)
            for segment in segments(rollout.visible, rollout.replies):
                yield Row(rollout.case, segment, tuple(itertools.islice(ends, len(segment.learned))), advantage)


def draw(cases: int, count: int, *, seed: str) -> list[int]:
    """Indices of `count` cases at random, none twice as long as there are enough."""
    drawing = random.Random(seed)
    found: list[int] = []
    while len(found) < count:
        found += drawing.sample(range(cases), min(cases, count - len(found)))
    return found


def masked(rendered: Rendered, ended: Sequence[bool]) -> Rendered:
    """Without the ends of replies that the model did not draw: a reply cut short has its end from the template.

    Where `ended` is empty, nothing at all is learned.
    """
    learned = rendered.learned.copy()
    if not ended:
        learned[:] = False
        return replace(rendered, learned=learned)
    ends = [i for i, here in enumerate(learned) if here and not learned[i + 1 : i + 2].any()]
    for end, was_drawn in zip(ends, ended, strict=True):
        learned[end] = was_drawn
    return replace(rendered, learned=learned)


def tokens(row: Row) -> int:
    """How many tokens of a row were drawn."""
    written = [row.segment.conversation[index].parts for index in sorted(row.segment.learned)]
    return sum(len(part.tokens) for parts in written for part in parts) + sum(row.ended) if row.ended else 0


def facts(rollout: Rollout, terms: Terms) -> dict[str, float]:
    """What a log tells of one rollout."""
    return {
        "reward": terms.total,
        "reward/format": terms.format,
        "reward/accuracy": terms.accuracy,
        "reward/gain": terms.gain,
        "reward/explore": terms.explore,
        "called": float(called(rollout.rounds)),
        "rounds": float(len(rollout.rounds)),
        "tokens": float(sum(map(len, rollout.logprobs))),
    }
