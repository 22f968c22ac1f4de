"""Ratings: published estimates, the truth behind simulated judges, judgements chosen, and inputs of every shape."""

from __future__ import annotations

import json
import math
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judgements import verdict_of

from vrt_lite.protocol.messages import KEYS
from vrt_lite.ranking.ladder import find_cycles, rate_group
from vrt_lite.ranking.pairing import is_order_certain, next_judgement
from vrt_lite.ranking.rank_run import ClipGroup
from vrt_lite.ranking.ratings import Z95, JudgedVote, Ratings, fit
from vrt_lite.records.ladders import Ladder, RankedClip
from vrt_lite.records.pairs import Result

GOLDEN = Path(__file__).parents[1] / "golden" / "ratings"
EVEN, A, B = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
TIE, FIRST, STRONG = -0.5, 0.5, 3.0
"""Log odds of simulated judges: of a tie, and for the clip shown first."""
Table = dict[tuple[int, int], JudgedVote]


def difference(rated: Ratings, i: int, j: int) -> tuple[float, float]:
    """How much stronger `i` is than `j`, and the standard error of that."""
    c = rated.covariance
    return rated.strength[i] - rated.strength[j], float(np.sqrt(c[i, i] + c[j, j] - 2 * c[i, j]))


def round_robin(
    rng: np.random.Generator, strength: np.ndarray, *, soft: bool = False, noise: float = 0.0, first: float = FIRST
) -> Table:
    """A vote for both orders of every pair. A soft vote is the odds themselves, off by `noise` in the log odds."""
    table: Table = {}
    for a, b in permutations(range(len(strength)), 2):
        d = strength[a] - strength[b] + first + noise * rng.normal()
        odds = np.exp([TIE, d / 2, -d / 2])
        odds /= odds.sum()
        if not soft:
            odds = rng.multinomial(1, odds)
        table[a, b] = JudgedVote(a, b, (float(odds[0]), float(odds[1]), float(odds[2])))
    return table


def tau(strength: np.ndarray, rated: tuple[float, ...]) -> float:
    """Kendall's tau between true and rated strengths."""
    pairs = list(combinations(range(len(rated)), 2))
    gaps = [(strength[i] - strength[j], round(rated[i] - rated[j], 9)) for i, j in pairs]
    return float(np.mean([np.sign(true) * np.sign(found) for true, found in gaps]))


# Published estimates


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def test_davidsons_puddings() -> None:
    data = golden("pudding.json")
    votes: list[JudgedVote] = []
    # Which brand came first is not told: with each comparison in both orders, no advantage is left to find. The votes
    # are then twice too many.
    for i, j, won, lost, tied in data["rows"]:
        for a, b, won_odds, lost_odds in ((i - 1, j - 1, A, B), (j - 1, i - 1, B, A)):
            votes += [JudgedVote(a, b, odds) for odds in (*[won_odds] * won, *[lost_odds] * lost, *[EVEN] * tied)]
    rated = fit(votes, 6, prior=None, dispersion=1.0)
    worth = np.exp(rated.strength)
    assert worth / worth.sum() == pytest.approx(data["worth"], abs=3e-5)
    assert math.exp(rated.tie) == pytest.approx(data["tie"], abs=2e-5)
    assert rated.first == pytest.approx(0, abs=1e-9)
    errors = [difference(rated, 0, k)[1] * math.sqrt(2) for k in range(1, 6)]
    assert errors == pytest.approx(data["error_to_first"], abs=1e-4)


@pytest.mark.parametrize("home", [True, False], ids=["with_home", "without_home"])
def test_agrestis_baseball_with_and_without_the_advantage_of_playing_at_home(home: bool) -> None:
    data = golden("baseball.json")
    votes: list[JudgedVote] = []
    for home_team, away_team, won, lost in data["rows"]:
        a, b = data["teams"].index(home_team), data["teams"].index(away_team)
        votes += [JudgedVote(a, b, A)] * won + [JudgedVote(a, b, B)] * lost
        if not home:
            votes += [JudgedVote(b, a, B)] * won + [JudgedVote(b, a, A)] * lost
    rated, expected = fit(votes, 7, prior=None, dispersion=1.0), data["with_home" if home else "without_home"]
    gaps, errors = zip(*(difference(rated, k, 0) for k in range(7)), strict=True)
    assert gaps == pytest.approx(expected["ability"], abs=1e-4)
    scale = 1 if home else math.sqrt(2)
    assert [error * scale for error in errors[1:]] == pytest.approx(expected["error"][1:], abs=1e-4)
    if home:
        assert rated.first == pytest.approx(expected["home"], abs=1e-4)
        assert (rated.first_high - rated.first) / Z95 == pytest.approx(expected["home_error"], abs=1e-4)


# Simulated judges


@pytest.mark.parametrize(
    ("spread", "first", "soft", "noise"),
    [
        (1.0, FIRST, False, 0.0),
        (2.0, FIRST, False, 0.0),
        (1.0, FIRST, True, 0.0),
        (1.0, FIRST, True, 1.0),
        (1.5, STRONG, False, 0.0),
        (1.5, STRONG, True, 0.7),
    ],
)
def test_intervals_cover_at_95_percent_and_the_position_bias_is_found(
    spread: float, first: float, *, soft: bool, noise: float
) -> None:
    rng, clips = np.random.default_rng(7), 12
    inside: list[bool] = []
    fitted: list[Ratings] = []
    for _ in range(80 if soft else 200):
        strength = rng.normal(0, spread, clips)
        rated = fit(list(round_robin(rng, strength, soft=soft, noise=noise, first=first).values()), clips)
        for i, j in combinations(range(clips), 2):
            gap, error = difference(rated, i, j)
            inside.append(bool(abs(gap - strength[i] + strength[j]) <= Z95 * error))
        fitted.append(rated)
    assert np.mean(inside) >= 0.93
    assert np.mean([rated.first_low <= first <= rated.first_high for rated in fitted]) >= 0.9
    if not soft and first == FIRST:
        assert np.mean(inside) <= 0.98
        # What is fitted to few votes is a little too large.
        assert np.mean([rated.first for rated in fitted]) == pytest.approx(first, abs=0.1)
        assert np.mean([rated.tie for rated in fitted]) == pytest.approx(TIE, abs=0.1)


def test_soft_votes_say_more_and_repeated_votes_little() -> None:
    rng = np.random.default_rng(10)
    strength = rng.normal(0, 1, 12)
    once = list(round_robin(rng, strength).values())
    rated, repeated = fit(once, 12, prior=None), fit(once * 4, 12, prior=None)
    assert repeated.dispersion > 2.5
    assert difference(repeated, 0, 1)[1] > 0.75 * difference(rated, 0, 1)[1]
    for noise in (0.0, 1.0):
        soft = fit(list(round_robin(rng, strength, soft=True, noise=noise).values()), 12)
        assert difference(soft, 0, 1)[1] < 0.9 * difference(fit(once, 12), 0, 1)[1]


def group_of(table: Table) -> ClipGroup:
    """What a judge said of numbered clips, as answers of a run; a hard vote is a choice without probabilities."""
    numbers = sorted({clip for order in table for clip in order})
    group = ClipGroup("", "", tuple(RankedClip(str(n), Path(str(n)), str(n)) for n in numbers))
    for (a, b), vote in table.items():
        winners = dict.fromkeys(KEYS, int(np.argmax(vote.odds)))
        odds = dict.fromkeys(KEYS, None if max(vote.odds) == 1 else vote.odds)
        group.results[a, b] = Result(f"{a} {b}", str(a), str(b), "", verdict_of(winners, odds), rounds=1)
    return group


def strengths(ladder: Ladder) -> tuple[float, ...]:
    rated = {standing.clip: standing.ratings["OA"].strength for standing in ladder.standings}
    return tuple(rated[clip] for clip in range(len(rated)))


@pytest.mark.parametrize(
    ("first", "soft", "noise", "least"),
    [(0.0, True, 0.7, 0.94), (STRONG, True, 0.0, 1.0), (STRONG, True, 0.7, 0.89), (STRONG, False, 0.0, 0.78)],
)
def test_ladders_of_noisy_judges(first: float, noise: float, least: float, *, soft: bool) -> None:
    """On average of several seeds, with and without the preference; never worse than ties for what is undecided."""
    right: list[float] = []
    better: list[float] = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        strength = rng.permutation(9) * 1.0
        table = round_robin(rng, strength, soft=soft, noise=noise, first=first)
        ladder = rate_group(group_of(table))
        right.append(tau(strength, strengths(ladder)))
        differ = {order for pair in ladder.pairs if pair.disagreements for order in (pair.clips, pair.clips[::-1])}
        tied = [JudgedVote(*order, EVEN) if order in differ else vote for order, vote in table.items()]
        better.append(right[-1] - tau(strength, fit(tied, 9).strength))
    assert np.mean(right) >= least
    assert np.mean(better) >= 0


def test_a_judge_who_only_ever_names_the_first_tells_no_clips_apart() -> None:
    ladder = rate_group(group_of({(a, b): JudgedVote(a, b, A) for a, b in permutations(range(9), 2)}))
    assert {round(strength, 6) for strength in strengths(ladder)} == {0.0}
    assert {standing.letters for standing in ladder.standings} == {("a",)}
    assert {(s.won, s.tied, s.lost, s.undecided) for s in ladder.standings} == {(0, 0, 0, 8)}
    assert ladder.cycles == ()
    assert ladder.first.low > 0


def test_only_pairs_with_a_winner_go_round() -> None:
    """Three clips of which each beats the next; the last pair's orders name opposite winners."""
    table = {(a, b): JudgedVote(a, b, (0.0, 0.9, 0.1)) for a, b in ((0, 1), (1, 2), (2, 0))}
    table |= {(b, a): JudgedVote(b, a, (0.0, 0.1, 0.9)) for a, b in list(table)}
    assert rate_group(group_of(table)).cycles == ((0, 1, 2),)
    ladder = rate_group(group_of({**table, (0, 2): JudgedVote(0, 2, (0.0, 0.6, 0.4))}))
    assert ladder.cycles == ()
    # The evidence stays: the lean of the third pair is still for clip 2.
    [pair] = [pair for pair in ladder.pairs if pair.preferences["OA"].undecided]
    assert (pair.clips, pair.preferences["OA"].leans) == ((0, 2), 2)
    # A tie beside a winner is the likelier of both, so this goes round.
    softer = {**table, (0, 2): JudgedVote(0, 2, (0.5, 0.2, 0.3))}
    assert rate_group(group_of(softer)).cycles == ((0, 1, 2),)


def test_it_is_counted_how_each_clips_pairs_ended() -> None:
    """Clip 0 beats 1, which loses to 2 too; 0 and 2 are a tie."""
    table: Table = {}
    for i, j, odds, mirrored in ((0, 1, A, B), (1, 2, B, A), (0, 2, EVEN, EVEN)):
        table |= {(i, j): JudgedVote(i, j, odds), (j, i): JudgedVote(j, i, mirrored)}
    counted = {of.clip: (of.won, of.tied, of.lost, of.undecided) for of in rate_group(group_of(table)).standings}
    assert counted == {0: (1, 1, 0, 0), 1: (0, 0, 2, 0), 2: (1, 1, 0, 0)}


# Judgements chosen


def choose(table: Table, count: int, *, judgements: int, seed: int) -> tuple[Ratings, list[JudgedVote]]:
    """What is known after so many judgements."""
    votes: list[JudgedVote] = []
    judged: list[tuple[int, int]] = []
    while len(judged) < judgements:
        order = next_judgement(fit(votes, count), judged=judged, seed=seed)
        assert order is not None and order not in judged
        judged.append(order)
        votes.append(table[order])
    return fit(votes, count), votes


def test_chosen_judgements_are_as_good_as_twice_as_many_and_better_than_those_drawn_by_lot() -> None:
    """A judge with soft preferences and noise, on clips of random strengths, some of them all but equal.

    What an order lacks to the truth is compared, as neighbours that are equal in truth may stand either way.
    """
    to_all: list[float] = []
    to_lot: list[float] = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        strength = rng.normal(0, 2, 12)
        table = round_robin(rng, strength, soft=True, noise=0.7)
        half, votes = choose(table, 12, judgements=66, seed=seed)
        to_all.append(tau(strength, half.strength) - tau(strength, fit(list(table.values()), 12).strength))
        few = fit(votes[:44], 12)
        drawn = [table[a, b] for a, b in rng.permutation(np.array(list(table)))[:44].tolist()]
        to_lot.append(tau(strength, few.strength) - tau(strength, fit(drawn, 12).strength))
    assert np.median(to_all) >= 0
    assert np.mean(to_all) > -0.02
    assert np.mean(to_lot) > 0.02


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_every_order_comes_once_and_then_none(count: int) -> None:
    table = round_robin(np.random.default_rng(count), np.arange(count) * 1.0)
    _, votes = choose(table, count, judgements=count * (count - 1), seed=0)
    judged = [(vote.a, vote.b) for vote in votes]
    assert set(judged) == set(table)
    assert next_judgement(fit(votes, count), judged=judged) is None
    # Halfway the choice is the same again, and an order at work is left out.
    judged, votes = judged[: len(judged) // 2], votes[: len(votes) // 2]
    chosen = next_judgement(fit(votes, count), judged=judged, seed=3)
    assert chosen == next_judgement(fit(votes, count), judged=set(judged), seed=3)
    if chosen and count > 2:
        assert next_judgement(fit(votes, count), judged=[*judged, chosen], seed=3) not in (chosen, None)


def test_every_clip_is_met_before_one_is_met_twice() -> None:
    orders: list[tuple[int, int]] = []
    for _ in range(5):
        order = next_judgement(fit([], 9), judged=orders, seed=5)
        assert order is not None
        orders.append(order)
    assert len({clip for order in orders[:4] for clip in order}) == 8
    assert len({clip for order in orders for clip in order}) == 9
    assert orders != [next_judgement(fit([], 9), judged=orders[:k], seed=6) for k in range(5)]


def test_an_outcome_that_is_known_is_not_asked_for() -> None:
    """Four clips, two of them far above the others: the doubt is within the halves."""
    known = [(0, 2), (0, 3), (1, 2), (1, 3)]
    votes = [vote for i, j in known * 20 for vote in (JudgedVote(i, j, A), JudgedVote(j, i, B))]
    order = next_judgement(fit(votes, 4), judged=[(0, 3), (1, 2)])
    assert order is not None and set(order) in ({0, 1}, {2, 3})


def test_of_two_orders_that_tell_as_much_the_clip_seldom_first_is_shown_first() -> None:
    votes = [JudgedVote(0, 1, EVEN), JudgedVote(2, 3, EVEN)]
    first, second = next_judgement(fit(votes, 4), judged=[(0, 1), (2, 3)]) or (0, 0)
    assert (first in (1, 3), second in (0, 2)) == (True, True)


def test_many_clips_are_chosen_from_too() -> None:
    strength = np.random.default_rng(4).normal(0, 2, 60)
    table = round_robin(np.random.default_rng(5), strength, soft=True)
    few, _ = choose(table, 60, judgements=150, seed=1)
    assert tau(strength, few.strength) > 0.7


# Inputs of every shape

clips = st.integers(0, 5)
odds = st.sampled_from([EVEN, A, B, (0.2, 0.5, 0.3), (0.0, 0.999999, 0.000001), (0.1, 0.1, 0.1)])
votes_of_six = st.lists(st.tuples(clips, clips, odds).filter(lambda v: v[0] != v[1]), max_size=30)


@settings(deadline=None)
@given(votes_of_six)
def test_every_set_of_votes_gives_finite_ratings(drawn: list[tuple[int, int, Any]]) -> None:
    votes = [JudgedVote(*each) for each in drawn]
    rated = fit(votes, 6)
    numbers = [*rated.strength, *rated.low, *rated.high, rated.tie, rated.first, rated.first_low, rated.first_high]
    assert np.isfinite(numbers).all() and np.isfinite(rated.covariance).all()
    assert sum(rated.strength) == pytest.approx(0, abs=1e-7)
    assert all(low < own < high for low, own, high in zip(rated.low, rated.strength, rated.high, strict=True))
    assert sorted(rated.order()) == list(range(6))
    assert set().union(*rated.alike()) == set(range(6))
    assert rated.beats(0, 1) + rated.beats(1, 0) == pytest.approx(1)
    # Exchanging the two clips of every vote mirrors the ratings, the other clip being shown first now.
    mirrored = fit([JudgedVote(v.b, v.a, v.odds) for v in votes], 6)
    assert mirrored.strength == pytest.approx([-s for s in rated.strength], abs=1e-6)


def test_votes_that_are_none_are_refused_and_none_are_needed() -> None:
    for vote, said in (
        (JudgedVote(1, 1, A), "compares 1 with 1"),
        (JudgedVote(0, 3, A), "0 to 2"),
        (JudgedVote(-1, 0, A), "0 to 2"),
        (JudgedVote(0, 1, (0.0, 0.0, 0.0)), "odds"),
        (JudgedVote(0, 1, (1.5, -0.5, 0.0)), "odds"),
        (JudgedVote(0, 1, (math.nan, 0.5, 0.5)), "odds"),
    ):
        with pytest.raises(ValueError, match=said):
            fit([vote], 3)
    none = fit([], 3)
    assert (none.strength, none.alike(), none.beats(0, 2)) == ((0, 0, 0), ((0, 1, 2),), 0.5)
    assert (fit([], 1).alike(), fit([], 0).alike()) == (((0,),), ())


def ratings_of(strength: tuple[float, ...], error: float = 1.0) -> Ratings:
    """Ratings whose differences all have this standard error."""
    zeros = (0.0,) * len(strength)
    return Ratings(strength, zeros, zeros, np.eye(len(strength)) * error**2 / 2, 0.0, 0.0, 0.0, 0.0, 1.0)


def test_groups_are_the_longest_runs_that_cannot_be_told_apart() -> None:
    # With an error of 1, two clips differ from 1.96 on.
    rated = ratings_of((0.0, 5.0, 1.5, -1.5, 3.2, -9.0))
    assert rated.order() == (1, 4, 2, 0, 3, 5)
    assert rated.alike() == ((1, 4), (4, 2), (2, 0), (0, 3), (5,))
    assert ratings_of((0.0, 1.0, 1.9)).alike() == ((2, 1, 0),)
    assert ratings_of((0.0, 1.0, 2.5)).alike() == ((2, 1), (1, 0))


@pytest.mark.parametrize(("error", "confidence", "expected"), [(0.5, 0.95, True), (0.5, 0.99, False), (2.0, 0.6, True)])
def test_an_order_is_certain_when_each_clip_is_better_than_the_next(
    error: float, confidence: float, expected: bool
) -> None:
    # Neighbours are 1 apart: at an error of 0.5 the better one is better with 0.977, at 2 with 0.69.
    assert is_order_certain(ratings_of((1.0, -1.0, 0.0), error), confidence) is expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2]), min_size=10, max_size=10))
def test_cycles_agree_with_trying_all_of_five_clips(winners: list[int]) -> None:
    pairs = list(combinations(range(5), 2))
    beats = {(i, j) if won == 1 else (j, i) for (i, j), won in zip(pairs, winners, strict=True) if won}
    found = find_cycles(beats, range(5))
    every = {
        p for n in (3, 4, 5) for p in permutations(range(5), n)
        if p[0] == min(p) and all((p[k], p[(k + 1) % n]) in beats for k in range(n))
    }  # fmt: skip
    assert set(found) <= every and len(set(found)) == len(found)
    on_a_cycle = {(p[k], p[(k + 1) % len(p)]) for p in every for k in range(len(p))}
    told = {(p[k], p[(k + 1) % len(p)]) for p in found for k in range(len(p))}
    assert {(i, j) for i, j in on_a_cycle if i > j} <= told <= on_a_cycle
    assert not every or len(found[0]) == min(len(p) for p in every)


def test_cycles_of_many_clips_are_bounded() -> None:
    rng = np.random.default_rng(3)
    winners = [(i, j) if rng.random() < 0.5 else (j, i) for i, j in combinations(range(200), 2)]
    found = find_cycles(winners, range(200), limit=40)
    assert len(found) == 40 and {len(cycle) for cycle in found} == {3}
