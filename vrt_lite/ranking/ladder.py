"""The result of a ranking as values, and its JSON form.

A rating is in natural-log odds, with mean 0 over the group's clips and a 95 % interval. Knows what the ratings and the
votes say of a group; refuses to know how it is printed, and how the votes came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from vrt_lite.protocol.tags import DIMENSIONS, KEYS, OVERALL
from vrt_lite.protocol.verdict import MIRROR
from vrt_lite.ranking.contest import Contest, Contestant, Outcome, outcome, votes
from vrt_lite.ranking.ratings import Ratings, fit
from vrt_lite.ranking.votes import cycles


@dataclass(frozen=True, slots=True)
class Rated:
    """A strength and its 95 % interval, in natural-log odds."""

    strength: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A clip's place. `together` are the letters of the groups it is in: clips that share one cannot be told apart.

    `ratings` is by key (TA, VQ, MQ, OA). Won, tied, lost and undecided count pairs, overall. `winning` is the
    probability that it is better than the next one.
    """

    rank: int
    clip: int
    together: tuple[str, ...]
    ratings: Mapping[str, Rated]
    won: int
    tied: int
    lost: int
    undecided: int
    winning: float | None


@dataclass(frozen=True, slots=True)
class Ladder:
    """One group, ranked. Numbers of clips are places in `clips`, which is in the order given.

    `unranked` are clips with no verdict in any pair, and why. `cycles` are preferences that go round. `first` is how
    much being shown first helps (log odds, overall).
    """

    group: str
    prompt: str
    clips: tuple[Contestant, ...]
    standings: tuple[Standing, ...]
    unranked: tuple[tuple[int, str], ...]
    outcomes: tuple[Outcome, ...]
    cycles: tuple[tuple[int, ...], ...]
    first: Rated
    judgements: int
    failures: int

    @property
    def possible(self) -> int:
        """How many pairs there are."""
        return len(self.clips) * (len(self.clips) - 1) // 2

    def names(self) -> tuple[str, ...]:
        """The clips' names, best first."""
        return tuple(self.clips[standing.clip].name for standing in self.standings)


def rank(contest: Contest) -> Ladder:
    """Rate a group by what was answered so far."""
    outcomes = tuple(outcome(contest, i, j) for i, j in contest.pairs())
    count = len(contest.clips)
    rated = {key: fit(votes(contest, key), count) for key in KEYS}
    overall = rated[OVERALL]
    unranked = _unranked(outcomes, count)
    return Ladder(
        group=contest.name,
        prompt=contest.prompt,
        clips=contest.clips,
        standings=_standings(rated, outcomes, {clip for clip, _ in unranked}),
        unranked=unranked,
        outcomes=outcomes,
        cycles=tuple(cycles(_wins(outcomes), count)),
        first=Rated(overall.first, overall.first_low, overall.first_high),
        judgements=len(contest.answers),
        failures=sum(bool(result.error) for result in contest.answers.values()),
    )


def _wins(outcomes: Sequence[Outcome]) -> list[tuple[int, int]]:
    """The winner and the loser of each pair that has them, overall."""
    decided = [(pair, pair.preferences[OVERALL].winner) for pair in outcomes if pair.preferences]
    return [(pair.i, pair.j) if winner == 1 else (pair.j, pair.i) for pair, winner in decided if winner]


def _unranked(outcomes: Sequence[Outcome], count: int) -> tuple[tuple[int, str], ...]:
    """Clips that were asked about and got no verdict at all, each with what was said last."""
    verdicts = {clip for pair in outcomes if pair.preferences for clip in (pair.i, pair.j)}
    said: dict[int, str] = {}
    for pair in outcomes:
        for clip in (pair.i, pair.j):
            if clip not in verdicts and pair.errors:
                said[clip] = pair.errors[-1]
    return tuple((clip, said[clip]) for clip in range(count) if clip in said)


def _standings(rated: Mapping[str, Ratings], outcomes: Sequence[Outcome], without: set[int]) -> tuple[Standing, ...]:
    overall = rated[OVERALL]
    order = [clip for clip in overall.order() if clip not in without]
    ranks = overall.ranks()
    letters = _letters(overall, order)
    tally = {clip: [0, 0, 0, 0] for clip in order}  # tied, won, lost, undecided
    for pair in outcomes:
        if pair.preferences:
            own = pair.preferences[OVERALL]
            for clip, winner in ((pair.i, own.winner), (pair.j, MIRROR[own.winner])):
                tally[clip][3 if own.undecided else winner] += 1
    return tuple(
        Standing(
            rank=1 + sum(ranks[other] < ranks[clip] for other in order),
            clip=clip,
            together=letters[clip],
            ratings={key: _rated(ratings, clip) for key, ratings in rated.items()},
            won=tally[clip][1],
            tied=tally[clip][0],
            lost=tally[clip][2],
            undecided=tally[clip][3],
            winning=overall.beats(clip, order[place + 1]) if place + 1 < len(order) else None,
        )
        for place, clip in enumerate(order)
    )


def _rated(ratings: Ratings, clip: int) -> Rated:
    return Rated(ratings.strength[clip], ratings.low[clip], ratings.high[clip])


def _letters(ratings: Ratings, order: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """By clip the letters of its groups, a for the best."""
    found: dict[int, tuple[str, ...]] = dict.fromkeys(order, ())
    for number, group in enumerate(ratings.groups()):
        for clip in found.keys() & set(group):
            found[clip] += (_letter(number),)
    return found


def _letter(number: int) -> str:
    """From a to z, then aa, ab, …"""
    high, low = divmod(number, 26)
    return (_letter(high - 1) if high else "") + ascii_lowercase[low]


def to_json(ladder: Ladder, *, pairs: bool = True) -> dict[str, Any]:
    """Plain data; clips are named by their place in `clips`. Without `pairs` it is small, however many there are.

    A pair's `winners` are 1 or 2 for its first or second clip, or 0; `undecided` has the keys whose 0 is no tie, and
    which of the two they lean to (0: neither).
    """
    told = [
        {
            "clips": [pair.i, pair.j],
            "winners": {key: preference.winner for key, preference in pair.preferences.items()},
            "undecided": {key: p.leans for key, p in pair.preferences.items() if p.undecided},
            "disagreements": list(pair.disagreements),
            "judgements": [key or None for key in pair.judgements],
            "errors": list(pair.errors),
        }
        for pair in ladder.outcomes
    ]
    return {
        "group": ladder.group,
        "prompt": ladder.prompt or None,
        "clips": [{"name": clip.name, "path": str(clip.path), "sha256": clip.sha256} for clip in ladder.clips],
        "standings": [_standing(standing, ladder) for standing in ladder.standings],
        "unranked": [{"clip": clip, "name": ladder.clips[clip].name, "reason": why} for clip, why in ladder.unranked],
        **({"pairs": told} if pairs else {}),
        "cycles": [list(cycle) for cycle in ladder.cycles],
        "shown_first": _interval(ladder.first),
        "judgements": ladder.judgements,
        "failures": ladder.failures,
        "possible_pairs": ladder.possible,
    }


def _standing(standing: Standing, ladder: Ladder) -> dict[str, Any]:
    clip = ladder.clips[standing.clip]
    return {
        "rank": standing.rank,
        "clip": standing.clip,
        "name": clip.name,
        "path": str(clip.path),
        "together": list(standing.together),
        "overall": _interval(standing.ratings[OVERALL]),
        "dimensions": {key: _interval(standing.ratings[key]) for key in DIMENSIONS},
        "won": standing.won,
        "tied": standing.tied,
        "lost": standing.lost,
        "undecided": standing.undecided,
        "better_than_next": None if standing.winning is None else round(standing.winning, 6),
    }


def _interval(rated: Rated) -> dict[str, float]:
    return {"strength": round(rated.strength, 6), "low": round(rated.low, 6), "high": round(rated.high, 6)}
