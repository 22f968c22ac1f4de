"""One group of clips and what was judged of it so far; what that says as votes. Pure.

Clips are numbers 0.. within their group; an answer to (i, j) is one judgement with clip i shown as video 1. Refuses to
know where answers come from, how votes become ratings, and which pair is asked next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vrt_lite.protocol.tags import KEYS
from vrt_lite.protocol.verdict import MIRROR, odds_of
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
    """What one pair i < j came to. Winners by key: 1 is i, 2 is j, 0 a tie; also where the orders disagree.

    Empty `winners`: neither order gave a verdict. `judgements` are their keys in the store, the order (i, j) first;
    "" is one that was not asked.
    """

    i: int
    j: int
    winners: dict[str, int]
    disagreements: tuple[str, ...]
    judgements: tuple[str, str]
    errors: tuple[str, ...]


def outcome(contest: Contest, i: int, j: int) -> Outcome:
    """Both orders of a pair taken together."""
    asked = [contest.answers.get((i, j)), contest.answers.get((j, i))]
    given = [_winners(result, mirrored=bool(order)) for order, result in enumerate(asked) if result]
    given = [winners for winners in given if winners]
    differ = tuple(key for key in KEYS if len({winners[key] for winners in given}) > 1)
    return Outcome(
        i,
        j,
        {key: 0 if key in differ else given[0][key] for key in KEYS} if given else {},
        differ,
        (asked[0].key if asked[0] else "", asked[1].key if asked[1] else ""),
        tuple(result.error for result in asked if result and result.error),
    )


def votes(contest: Contest, outcomes: Sequence[Outcome], key: str, *, as_given: bool = False) -> list[Vote]:
    """What the pairs say of one key: soft preferences where the judge gave them.

    Orders that disagree are ties, both of them, unless the votes are wanted `as_given`, for the position's sake.
    """
    found: list[Vote] = []
    for pair in outcomes:
        for a, b in ((pair.i, pair.j), (pair.j, pair.i)):
            result = contest.answers.get((a, b))
            if result and result.winners:
                tied = key in pair.disagreements and not as_given
                odds = (1.0, 0.0, 0.0) if tied else odds_of(result.winners[key], result.odds.get(key))
                found.append(Vote(a, b, odds))
    return found


def _winners(result: Result, *, mirrored: bool) -> dict[str, int]:
    return {key: MIRROR[won] if mirrored else won for key, won in result.winners.items()}
