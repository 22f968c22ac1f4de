"""Rates a group of clips by its results so far: votes, ratings, places, and the cycles of wins. Pure functions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from string import ascii_lowercase
from typing import Final

from vrt_lite.protocol.answer_form import compare_scores
from vrt_lite.protocol.messages import KEYS, OVERALL
from vrt_lite.protocol.verdict import MIRROR, odds_of
from vrt_lite.ranking.rank_run import ClipGroup
from vrt_lite.ranking.ratings import JudgedVote, fit
from vrt_lite.records.ladders import Ladder, LadderPair, Rated, Standing, UnrankedClip
from vrt_lite.records.pairs import conditions_of, count_orders

_UNDECIDED: Final = 3
"""How a pair ended, beside 0, 1 and 2."""
NOT_JUDGED_YET: Final = "not judged yet"
"""Why a clip is not ranked that no judgement has shown."""


def rate_group(group: ClipGroup) -> Ladder:
    """Rate a group by its results so far."""
    joined = group.pairs()
    pairs = tuple(
        LadderPair(clips, pair.preferences, pair.disagreements, pair.keys, pair.errors)
        for clips, pair in joined.items()
    )
    count, judged = len(group.clips), group.judged
    scores = {clip: result.scores[0] for clip, result in group.alone.items() if result.scores}
    ranked = {*scores, *(clip for pair in pairs if pair.preferences for clip in pair.clips)}
    first, letters = None, dict[int, tuple[str, ...]]()
    if scores:
        ratings = {clip: {name: _rate(score.value) for name, score in of.items()} for clip, of in scores.items()}

        def win_share(i: int, j: int) -> float | None:
            odds = compare_scores(scores[i], scores[j]).overall.odds
            return odds and odds[1]
    else:
        votes = {key: collect_votes(group, key) for key in KEYS}
        rated = {key: fit(votes[key], count) for key in KEYS if votes[key] or key == OVERALL}
        overall = rated[OVERALL]
        ratings = {
            clip: {key: _rate(of.strength[clip], of.low[clip], of.high[clip]) for key, of in rated.items()}
            for clip in ranked
        }
        first = _rate(overall.first, overall.first_low, overall.first_high)
        letters, win_share = _letter_groups(overall.alike()), overall.beats
    order = sorted(ratings, key=lambda clip: (-ratings[clip][OVERALL].strength, clip))
    shares = {clip: win_share(clip, following) for clip, following in pairwise(order)}
    standings = tuple(_place(group, order, ratings, shares, letters, pairs))
    alike = set(standings[0].letters) if standings else set[str]()
    decided = [(pair.clips, pair.preferences[OVERALL].winner) for pair in pairs if pair.preferences]
    wins = [(i, j) if winner == 1 else (j, i) for (i, j), winner in decided if winner]
    errors = {clip: pair.errors[-1] for pair in pairs if pair.errors for clip in pair.clips}
    return Ladder(
        group=group.name,
        prompt=group.prompt,
        clips=group.clips,
        standings=standings,
        best=tuple(of.clip for of in standings if of.rank == 1 or alike & set(of.letters)),
        unranked=tuple(
            UnrankedClip(number, clip.name, errors.get(number, NOT_JUDGED_YET))
            for number, clip in enumerate(group.clips)
            if number not in ranked
        ),
        cycles=tuple(find_cycles(wins, order)),
        orders=count_orders(pair.verdicts for pair in joined.values()),
        first=first,
        judgements=len(judged),
        failures=sum(bool(result.error) for result in judged),
        possible_pairs=count * (count - 1) // 2,
        conditions=conditions_of(judged),
        pairs=pairs,
    )


def collect_votes(group: ClipGroup, key: str) -> list[JudgedVote]:
    """Return the votes for one key, one for each judged order: soft where the judge gave probabilities.

    The ratings model the advantage of being shown first, so pairs whose orders disagree count in full. A winner that
    the measures contradict is no vote for either clip.
    """
    votes: list[JudgedVote] = []
    for i, j in sorted(group.results, key=lambda order: (min(order), max(order), order)):
        if preference := group.results[i, j].preferences.get(key):
            tie, one, two = odds_of(preference.winner, preference.odds)
            if preference.undecided:
                one = two = (one + two) / 2
            votes.append(JudgedVote(i, j, (tie, one, two)))
    return votes


def _place(
    group: ClipGroup,
    order: Sequence[int],
    ratings: Mapping[int, Mapping[str, Rated]],
    win_shares: Mapping[int, float | None],
    letters: Mapping[int, tuple[str, ...]],
    pairs: Iterable[LadderPair],
) -> Iterator[Standing]:
    """Put the clips in their places, the best first, and count how each one's pairs ended."""
    tally: Counter[tuple[int, int]] = Counter()
    for pair in pairs:
        if own := pair.preferences.get(OVERALL):
            ends = (_UNDECIDED, _UNDECIDED) if own.undecided else (own.winner, MIRROR[own.winner])
            tally.update(zip(pair.clips, ends, strict=True))
    strengths = [ratings[clip][OVERALL].strength for clip in order]
    for clip, strength in zip(order, strengths, strict=True):
        share = win_shares.get(clip)
        yield Standing(
            rank=1 + strengths.index(strength),
            clip=clip,
            name=group.clips[clip].name,
            path=group.clips[clip].path,
            letters=letters.get(clip, ()),
            ratings=ratings[clip],
            won=tally[clip, 1],
            tied=tally[clip, 0],
            lost=tally[clip, 2],
            undecided=tally[clip, _UNDECIDED],
            winning=share and round(share, 6),
        )


def _rate(strength: float, low: float | None = None, high: float | None = None) -> Rated:
    return Rated(round(strength, 6), low and round(low, 6), high and round(high, 6))


def _letter_groups(groups: Iterable[Sequence[int]]) -> dict[int, tuple[str, ...]]:
    """Return, for each clip, the letters of the groups it is in: a to z, then aa, ab, …; a is the best group."""
    found: dict[int, tuple[str, ...]] = {}
    names = (first + second for first in ("", *ascii_lowercase) for second in ascii_lowercase)
    for name, group in zip(names, groups, strict=False):
        for clip in group:
            found[clip] = (*found.get(clip, ()), name)
    return found


def find_cycles(wins: Iterable[tuple[int, int]], order: Sequence[int], *, limit: int = 100) -> list[tuple[int, ...]]:
    """Find cycles of preferences: in (i, j, k) i beats j, j beats k and k beats i.

    `wins` holds (i, j) for every pair that i wins, each pair at most once; `order` has the clips, best first. Returns a
    shortest cycle for every win against the order that lies on one (each cycle has such a win): shortest first, each
    cycle once, at most `limit`.
    """
    place = {clip: number for number, clip in enumerate(order)}
    beaten: defaultdict[int, list[int]] = defaultdict(list)
    wins = sorted(wins)
    for winner, loser in wins:
        beaten[winner].append(loser)
    paths = [_find_path(loser, winner, beaten) for winner, loser in wins if place[winner] > place[loser]]
    found = {path[(k := path.index(min(path))) :] + path[:k] for path in paths if path}
    return sorted(found, key=lambda cycle: (len(cycle), cycle))[:limit]


def _find_path(start: int, goal: int, beaten: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Find a shortest path from `start` to `goal`, both included; empty if there is none."""
    paths: dict[int, tuple[int, ...]] = {start: (start,)}
    waiting = [start]
    for clip in waiting:
        for other in beaten.get(clip, ()):
            if other not in paths:
                paths[other] = (*paths[clip], other)
                waiting.append(other)
        if goal in paths:
            break
    return paths.get(goal, ())
