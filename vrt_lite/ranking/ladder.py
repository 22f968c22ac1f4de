"""The result of a ranking as values, and its JSON.

A rating is in natural-log odds, with mean 0 over the group's clips and a 95 % interval; or it is the score of a judge
that judges each clip by itself, whose interval nobody has measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from string import ascii_lowercase
from typing import Any, Final

from vrt_lite.protocol.answer_form import Scores, compare_scores
from vrt_lite.protocol.messages import DIMENSIONS, KEYS, OVERALL
from vrt_lite.protocol.verdict import MIRROR
from vrt_lite.ranking.clip_groups import (
    ClipGroup,
    RankedClip,
    collect_votes,
    find_cycles,
)
from vrt_lite.ranking.ratings import Ratings, fit
from vrt_lite.records.conditions import Conditions, conditions_of
from vrt_lite.records.pairs import JudgedPair, OrderCounts, count_orders

_Pairs = Mapping[tuple[int, int], JudgedPair]
NOT_JUDGED_YET: Final = "not judged yet"
"""Why a clip is not ranked that no judgement has shown."""


@dataclass(frozen=True, slots=True)
class Rated:
    """A strength and its 95 % interval, in natural-log odds; or a score, without an interval."""

    strength: float
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        """The interval, or what is drawn of a score."""
        return (self.strength, self.strength) if self.low is None or self.high is None else (self.low, self.high)

    def to_json(self) -> dict[str, float | None]:
        """Return plain data."""
        values = {"strength": self.strength, "low": self.low, "high": self.high}
        return {name: None if value is None else round(value, 6) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Standing:
    """A clip's place. Clips that share one of their `letters` cannot be told apart.

    `ratings` is by key: OA, and those of TA, VQ and MQ that any pair was judged in; scores also by the judge's own
    names. Scores have no `letters`. Won, tied, lost and undecided count
    pairs, overall. `winning` is the probability that the clip is better than the next one.
    """

    rank: int
    clip: int
    letters: tuple[str, ...]
    ratings: Mapping[str, Rated]
    won: int
    tied: int
    lost: int
    undecided: int
    winning: float | None


@dataclass(frozen=True, slots=True)
class Ladder:
    """The ranking of one group. A clip's number is its place in `clips`, which are in the order given.

    `unranked` are clips without a verdict in any pair, and why; `pairs` are those judged, by their clips i < j. In each
    of the `cycles`, each clip beats the next one and the last beats the first. `orders` says how often the orders of a
    pair disagree. `first` is how much it helps to be shown first (log odds, overall); None if each clip was judged by
    itself. `conditions` says whether the judgements can be compared.
    """

    group: str
    prompt: str
    clips: tuple[RankedClip, ...]
    standings: tuple[Standing, ...]
    unranked: tuple[tuple[int, str], ...]
    pairs: Mapping[tuple[int, int], JudgedPair]
    cycles: tuple[tuple[int, ...], ...]
    orders: OrderCounts
    first: Rated | None
    judgements: int
    failures: int
    conditions: Conditions

    @property
    def ranked(self) -> tuple[RankedClip, ...]:
        """The clips, best first; without those of `unranked`."""
        return tuple(self.clips[standing.clip] for standing in self.standings)

    @property
    def judged(self) -> tuple[str, ...]:
        """The keys of the dimensions that any pair was judged in."""
        return tuple(key for key in DIMENSIONS if self.standings and key in self.standings[0].ratings)

    @property
    def best(self) -> tuple[int, ...]:
        """The best clip, then those that cannot be told apart from it."""
        letters = set(self.standings[0].letters) if self.standings else set[str]()
        return tuple(s.clip for s in self.standings if s.rank == 1 or letters & set(s.letters))

    @property
    def flagged(self) -> tuple[int, ...]:
        """The clips with a measured fault, in the order given."""
        return tuple(number for number, clip in enumerate(self.clips) if clip.flags)

    @property
    def possible(self) -> int:
        """The number of pairs of these clips."""
        return len(self.clips) * (len(self.clips) - 1) // 2

    def to_json(self, *, pairs: bool = True) -> dict[str, Any]:
        """Return plain data; clips are named by their place in `clips`. Without `pairs` it stays small.

        A pair's `winners` are 1 or 2 for its first or second clip, or 0; `undecided` has the keys whose 0 is no tie,
        and which of the two they lean to (0: neither).
        """
        return {
            "group": self.group,
            "prompt": self.prompt or None,
            "clips": [
                {
                    "name": clip.name,
                    "path": str(clip.path),
                    "sha256": clip.sha256,
                    "flags": [asdict(flag) for flag in clip.flags],
                }
                for clip in self.clips
            ],
            "standings": [_standing_to_json(standing, self.clips[standing.clip]) for standing in self.standings],
            "best": list(self.best),
            "unranked": [{"clip": clip, "name": self.clips[clip].name, "reason": why} for clip, why in self.unranked],
            **({"pairs": [_pair_to_json(clips, pair) for clips, pair in self.pairs.items()]} if pairs else {}),
            "cycles": [list(cycle) for cycle in self.cycles],
            "orders": {
                "pairs": self.orders.pairs,
                "differ": dict.fromkeys(KEYS) | dict(self.orders.differ),
                "undecided": dict.fromkeys(KEYS) | dict(self.orders.undecided),
            },
            "shown_first": self.first and self.first.to_json(),
            "judgements": self.judgements,
            "failures": self.failures,
            "possible_pairs": self.possible,
            "conditions": self.conditions.to_json(),
        }


def _pair_to_json(clips: tuple[int, int], pair: JudgedPair) -> dict[str, Any]:
    preferences = pair.preferences
    return {
        "clips": list(clips),
        "winners": {key: preferences[key].winner if key in preferences else None for key in KEYS},
        "undecided": {key: p.leans for key, p in preferences.items() if p.undecided},
        "disagreements": list(pair.disagreements),
        "judgements": [result.key if result else None for result in (pair.given, pair.swapped)],
        "errors": list(pair.errors),
    }


def _standing_to_json(standing: Standing, clip: RankedClip) -> dict[str, Any]:
    own = {name: rated.to_json()["strength"] for name, rated in standing.ratings.items() if name not in KEYS}
    return {
        "rank": standing.rank,
        "clip": standing.clip,
        "name": clip.name,
        "path": str(clip.path),
        "together": list(standing.letters),
        "overall": standing.ratings[OVERALL].to_json(),
        "dimensions": {key: standing.ratings[key].to_json() if key in standing.ratings else None for key in DIMENSIONS},
        **({"scores": own} if own else {}),
        "won": standing.won,
        "tied": standing.tied,
        "lost": standing.lost,
        "undecided": standing.undecided,
        "better_than_next": None if standing.winning is None else round(standing.winning, 6),
    }


def rate_group(group: ClipGroup) -> Ladder:
    """Rate a group by its results so far."""
    pairs = group.pairs()
    count = len(group.clips)
    judged = group.alone or group.results
    scores = group.scores
    unranked = tuple((clip, why) for clip, why in _find_unranked(pairs, count) if clip not in scores)
    if scores:
        standings, first = _rank_by_scores(scores, pairs), None
    else:
        votes = {key: collect_votes(group, key) for key in KEYS}
        rated = {key: fit(votes[key], count) for key in KEYS if votes[key] or key == OVERALL}
        standings = _rank_clips(rated, pairs, {clip for clip, _ in unranked})
        first = Rated(rated[OVERALL].first, rated[OVERALL].first_low, rated[OVERALL].first_high)
    return Ladder(
        group=group.name,
        prompt=group.prompt,
        clips=group.clips,
        standings=standings,
        unranked=unranked,
        pairs=pairs,
        cycles=tuple(find_cycles(_list_wins(pairs), count)),
        orders=count_orders(pair.verdicts for pair in pairs.values()),
        first=first,
        judgements=len(judged),
        failures=sum(bool(result.error) for result in judged.values()),
        conditions=conditions_of(judged.values()),
    )


def _list_wins(pairs: _Pairs) -> list[tuple[int, int]]:
    """Return (winner, loser) of each pair that one clip wins overall."""
    decided = [(clips, pair.overall.winner) for clips, pair in pairs.items() if pair.overall]
    return [(i, j) if winner == 1 else (j, i) for (i, j), winner in decided if winner]


def _find_unranked(pairs: _Pairs, count: int) -> tuple[tuple[int, str], ...]:
    """Return the clips without a verdict: each with its last error, or not judged yet."""
    verdicts = {clip for clips, pair in pairs.items() if pair.joined for clip in clips}
    errors = {clip: pair.errors[-1] for clips, pair in pairs.items() if pair.errors for clip in clips}
    return tuple((clip, errors.get(clip, NOT_JUDGED_YET)) for clip in range(count) if clip not in verdicts)


def _rank_clips(rated: Mapping[str, Ratings], pairs: _Pairs, unranked: set[int]) -> tuple[Standing, ...]:
    """Return the standings of all clips but the unranked ones, best first."""
    overall = rated[OVERALL]
    order = [clip for clip in overall.order() if clip not in unranked]
    ranks = overall.ranks()
    letters = _letter_groups(overall, order)
    tally = _count_outcomes(pairs)
    return tuple(
        Standing(
            rank=1 + sum(ranks[other] < ranks[clip] for other in order),
            clip=clip,
            letters=letters[clip],
            ratings={key: Rated(r.strength[clip], r.low[clip], r.high[clip]) for key, r in rated.items()},
            won=tally[clip][1],
            tied=tally[clip][0],
            lost=tally[clip][2],
            undecided=tally[clip][3],
            winning=overall.beats(clip, order[place + 1]) if place + 1 < len(order) else None,
        )
        for place, clip in enumerate(order)
    )


def _rank_by_scores(scores: Mapping[int, Scores], pairs: _Pairs) -> tuple[Standing, ...]:
    """Return the standings of clips that were judged by themselves, best first."""
    order = sorted(scores, key=lambda clip: (-scores[clip][OVERALL].value, clip))
    best = [scores[clip][OVERALL].value for clip in order]
    tally = _count_outcomes(pairs)
    odds = [compare_scores(scores[one], scores[two]).overall.odds for one, two in pairwise(order)]
    return tuple(
        Standing(
            1 + best.index(value),
            clip,
            (),
            {name: Rated(score.value) for name, score in scores[clip].items()},
            won=tally[clip][1],
            tied=tally[clip][0],
            lost=tally[clip][2],
            undecided=tally[clip][3],
            winning=than_next and than_next[1],
        )
        for clip, value, than_next in zip(order, best, (*odds, None), strict=True)
    )


def _count_outcomes(pairs: _Pairs) -> dict[int, list[int]]:
    """Count how often each clip tied, won and lost, and how often its pair is undecided."""
    tally: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (i, j), pair in pairs.items():
        if own := pair.overall:
            for clip, winner in ((i, own.winner), (j, MIRROR[own.winner])):
                tally[clip][3 if own.undecided else winner] += 1
    return tally


def _letter_groups(ratings: Ratings, order: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return, for each clip, the letters of the groups it is in; a is the best group."""
    found: dict[int, tuple[str, ...]] = dict.fromkeys(order, ())
    for number, group in enumerate(ratings.alike()):
        for clip in found.keys() & set(group):
            found[clip] += (_letter(number),)
    return found


def _letter(number: int) -> str:
    """Return the letter of a group: a to z, then aa, ab, …"""
    high, low = divmod(number, 26)
    return (_letter(high - 1) if high else "") + ascii_lowercase[low]
