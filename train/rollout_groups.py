"""Groups of rollouts with their rewards, and the rows for the model into which they are cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from train.policy.rendering import Rendered, Segment, segments
from train.policy.rollout import Rollout, replay_rollout
from train.rewards import Terms, advantages, called, informative
from train.training_cases import TrainingCase
from vrt_lite.profile import Profile


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A segment to learn from: all of a trajectory, or its rounds between two changes of what the judge sees.

    `ended` says for each learned reply whether the model drew its end. `logprobs` are the log-probabilities with which
    the learned tokens were drawn. `share` is 1/T for the T tokens of the trajectory in all its segments.
    """

    case: TrainingCase
    segment: Segment
    ended: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantage: float
    share: float


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The rollouts of one query, with their terms of the reward."""

    rollouts: tuple[Rollout, ...]
    terms: tuple[Terms, ...]

    @property
    def informative(self) -> bool:
        """Whether the group teaches anything (`train.rewards.informative`)."""
        return informative(self.terms)

    def rows(self) -> Iterator[TrainingRow]:
        """Yield all segments of all rollouts, in order."""
        worth = advantages([terms.total for terms in self.terms])
        for rollout, advantage in zip(self.rollouts, worth, strict=True):
            share, written = 1 / max(rollout.tokens, 1), iter(rollout.written)
            for segment in segments(rollout.visible, rollout.replies):
                learned = list(itertools.islice(written, len(segment.learned)))
                logprobs = tuple(itertools.chain.from_iterable(reply.logprobs for reply in learned))
                ended = tuple(reply.ended for reply in learned)
                yield TrainingRow(rollout.case, segment, ended, logprobs, advantage, share)


def draw_indices(cases: int, count: int, *, seed: str) -> list[int]:
    """Draw the indices of `count` of the cases. They are different if there are enough cases."""
    drawing = random.Random(seed)
    found: list[int] = []
    while len(found) < count:
        found += drawing.sample(range(cases), min(cases, count - len(found)))
    return found


def mask_ends(rendered: Rendered, ended: Sequence[bool]) -> Rendered:
    """Remove the loss on ends of replies that the model did not draw: the template ends a reply that was cut.

    If `ended` is empty, nothing has a loss.
    """
    learned = rendered.learned.copy()
    if not ended:
        learned[:] = False
        return replace(rendered, learned=learned)
    ends = [i for i, here in enumerate(learned) if here and not learned[i + 1 : i + 2].any()]
    for end, was_drawn in zip(ends, ended, strict=True):
        learned[end] = was_drawn
    return replace(rendered, learned=learned)


def empty_row(case: TrainingCase, profile: Profile) -> TrainingRow:
    """Build a row of a case's opening without a loss."""
    return TrainingRow(case, Segment(replay_rollout(case, 0, (), profile).visible[0], frozenset()), (), (), 0.0, 0.0)


def facts(rollout: Rollout, terms: Terms) -> dict[str, float]:
    """Return the figures of one rollout for the log."""
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
