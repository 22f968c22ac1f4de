"""One group of clips and what was judged of it so far; what that says as votes. Pure.

Clips are numbers 0.. within their group; an answer to (i, j) is one judgement with clip i shown as video 1. Refuses to
know where answers come from, how votes become ratings, and which pair is asked next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vrt_lite.protocol.verdict import Preference, average, disagreements, odds_of
from vrt_lite.ranking.votes import Vote
from vrt_lite.runs.judged import Result


@dataclass(frozen=True, slots=True)
class Contestant:
    """A clip in a group: a name that no other clip of the group has, its file, and its content."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Contest:
    """A group of clips made from one prompt, and the answers so far, which are added as they come."""

    name: str
    prompt: str
    clips: tuple[Contestant, ...]
    answers: dict[tuple[int, int], Result] = field(default_factory=dict[tuple[int, int], Result])

    def recall(self, results: Iterable[Result]) -> None:
        """Take the answers among stored results that are about these clips and this prompt."""
        number = {clip.sha256: i for i, clip in enumerate(self.clips)}
        for result in results:
            i, j = number.get(result.first), number.get(result.second)
            if i is not None and j is not None and i != j and result.prompt == self.prompt:
                self.answers[i, j] = result

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs i < j of which at least one order was answered, be it by a failure."""
        return sorted({(min(order), max(order)) for order in self.answers})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one pair i < j came to, both orders taken together: `preferences` by key, where 1 is i and 2 is j.

    Without `preferences` neither order gave a verdict. `disagreements` are the keys on which they choose differently.
    `judgements` are their keys in the store, the order (i, j) first; "" is one that was not asked.
    """

    i: int
    j: int
    preferences: Mapping[str, Preference]
    disagreements: tuple[str, ...]
    judgements: tuple[str, str]
    errors: tuple[str, ...]


def outcome(contest: Contest, i: int, j: int) -> Outcome:
    """Both orders of a pair taken together."""
    asked = [contest.answers.get((i, j)), contest.answers.get((j, i))]
    one, other = (result.verdict if result else None for result in asked)
    other = other.mirrored() if other else None
    verdict = average(one, other) if one and other else one or other
    return Outcome(
        i,
        j,
        verdict.preferences if verdict else {},
        disagreements(one, other) if one and other else (),
        (asked[0].key if asked[0] else "", asked[1].key if asked[1] else ""),
        tuple(result.error for result in asked if result and result.error),
    )


def votes(contest: Contest, key: str) -> list[Vote]:
    """What the judgements say of one key, each order as given: soft preferences where the judge gave them.

    The ratings know which clip was shown first and fit what that is worth, so nothing is taken from a pair whose orders
    disagree.
    """
    found: list[Vote] = []
    for i, j in contest.pairs():
        for a, b in ((i, j), (j, i)):
            result = contest.answers.get((a, b))
            if result and result.winners:
                found.append(Vote(a, b, odds_of(result.winners[key], result.odds.get(key))))
    return found
