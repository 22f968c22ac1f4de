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
from train.policy.rollout import Rollout, replayed
from train.rewards import Terms, advantages, called, informative
from vrt_lite.profile import Profile


@dataclass(frozen=True, slots=True)
class Row:
    """A segment to learn from: all of a trajectory, or its rounds between two changes of what the judge sees.

    `ended` says of each learned reply whether the model drew its end. `logprobs` are those that every learned token
    was drawn with; `share` is one token's of the trajectory: 1/T, T being the tokens of all its segments.
    """

    case: Case
    segment: Segment
    ended: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantage: float
    share: float


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one query, and what each is worth."""

    rollouts: tuple[Rollout, ...]
    terms: tuple[Terms, ...]

    @property
    def informative(self) -> bool:
        """Whether it can teach (`train.rewards.informative`)."""
        return informative(self.terms)

    def rows(self) -> Iterator[Row]:
        """All segments of all rollouts, in order."""
        worth = advantages([terms.total for terms in self.terms])
        for rollout, advantage in zip(self.rollouts, worth, strict=True):
            share, written = 1 / max(rollout.tokens, 1), iter(rollout.written)
            for segment in segments(rollout.visible, rollout.replies):
                learned = list(itertools.islice(written, len(segment.learned)))
                logprobs = tuple(itertools.chain.from_iterable(reply.logprobs for reply in learned))
                ended = tuple(reply.ended for reply in learned)
                yield Row(rollout.case, segment, ended, logprobs, advantage, share)


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


def blank(case: Case, profile: Profile) -> Row:
    """A row of a case's opening, from which nothing is learned."""
    return Row(case, Segment(replayed(case, 0, (), profile).visible[0], frozenset()), (), (), 0.0, 0.0)


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
        "tokens": float(rollout.tokens),
    }
