"""Ratings: published estimates, the truth behind simulated judges, and inputs of every shape."""

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
from tournaments import FIRST, TIE, difference, round_robin

from vrt_lite.ranking.ladder import find_cycles
from vrt_lite.ranking.ratings import Z95, JudgedVote, Ratings, fit

GOLDEN = Path(__file__).parent.parent / "golden" / "ratings"
EVEN, A, B = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def error(ratings: Ratings, i: int, j: int) -> float:
    gap, _, high = difference(ratings, i, j)
    return (high - gap) / Z95


def test_davidsons_puddings() -> None:
    data = golden("pudding.json")
    votes: list[JudgedVote] = []
    # Which brand came first is not told: with each comparison in both orders, no advantage is left to find. The votes
    # are then twice too many.
    for i, j, won, lost, tied in data["rows"]:
        for a, b, odds in ((i - 1, j - 1, (A, B)), (j - 1, i - 1, (B, A))):
            votes += (
                [JudgedVote(a, b, odds[0])] * won + [JudgedVote(a, b, odds[1])] * lost + [JudgedVote(a, b, EVEN)] * tied
            )
    rated = fit(votes, 6, prior=None, dispersion=1.0)
    worth = np.exp(rated.strength)
    assert worth / worth.sum() == pytest.approx(data["worth"], abs=3e-5)
    assert math.exp(rated.tie) == pytest.approx(data["tie"], abs=2e-5)
    assert rated.first == pytest.approx(0, abs=1e-9)
    errors = [error(rated, 0, k) * math.sqrt(2) for k in range(1, 6)]
    assert errors == pytest.approx(data["error_to_first"], abs=1e-4)


def baseball(*, both_orders: bool) -> Ratings:
    data = golden("baseball.json")
    votes: list[JudgedVote] = []
    for home, away, won, lost in data["rows"]:
        a, b = data["teams"].index(home), data["teams"].index(away)
        votes += [JudgedVote(a, b, A)] * won + [JudgedVote(a, b, B)] * lost
        if both_orders:
            votes += [JudgedVote(b, a, B)] * won + [JudgedVote(b, a, A)] * lost
    return fit(votes, 7, prior=None, dispersion=1.0)


def test_agrestis_baseball_with_the_advantage_of_playing_at_home() -> None:
    rated, expected = baseball(both_orders=False), golden("baseball.json")["with_home"]
    assert [difference(rated, k, 0)[0] for k in range(7)] == pytest.approx(expected["ability"], abs=1e-4)
    assert [error(rated, k, 0) for k in range(1, 7)] == pytest.approx(expected["error"][1:], abs=1e-4)
    assert rated.first == pytest.approx(expected["home"], abs=1e-4)
    assert (rated.first_high - rated.first) / Z95 == pytest.approx(expected["home_error"], abs=1e-4)


def test_agrestis_baseball_without_it() -> None:
    rated, expected = baseball(both_orders=True), golden("baseball.json")["without_home"]
    assert [difference(rated, k, 0)[0] for k in range(7)] == pytest.approx(expected["ability"], abs=1e-4)
    errors = [error(rated, k, 0) * math.sqrt(2) for k in range(1, 7)]
    assert errors == pytest.approx(expected["error"][1:], abs=1e-4)


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_intervals_cover_at_95_percent_and_the_position_bias_is_found(spread: float) -> None:
    rng = np.random.default_rng(7)
    inside: list[float] = []
    positions: list[Ratings] = []
    for _ in range(300):
        strength = rng.normal(0, spread, 12)
        rated = fit(list(round_robin(rng, strength).values()), 12)
        gaps = [(difference(rated, i, j), strength[i] - strength[j]) for i, j in combinations(range(12), 2)]
        inside.append(float(np.mean([low <= true <= high for (_, low, high), true in gaps])))
        positions.append(rated)
    assert 0.93 <= np.mean(inside) <= 0.98
    assert 0.92 <= np.mean([r.first_low <= FIRST <= r.first_high for r in positions]) <= 0.99
    # What is fitted to few votes is a little too large.
    assert np.mean([r.first for r in positions]) == pytest.approx(FIRST, abs=0.1)
    assert np.mean([r.tie for r in positions]) == pytest.approx(TIE, abs=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.7, 1.0])
def test_soft_votes_say_more_and_their_intervals_still_cover(noise: float) -> None:
    rng = np.random.default_rng(9)
    inside: list[bool] = []
    widths: list[tuple[float, float]] = []
    for _ in range(100):
        strength = rng.normal(0, 1, 12)
        soft = fit(list(round_robin(rng, strength, soft=True, noise=noise).values()), 12)
        hard = fit(list(round_robin(rng, strength).values()), 12)
        widths.append((error(soft, 0, 1), error(hard, 0, 1)))
        for i, j in combinations(range(12), 2):
            _, low, high = difference(soft, i, j)
            inside.append(bool(low <= strength[i] - strength[j] <= high))
    assert np.mean(inside) >= 0.94
    assert np.mean([soft for soft, _ in widths]) < 0.9 * np.mean([hard for _, hard in widths])


def test_votes_of_a_pair_that_go_together_widen_the_intervals() -> None:
    rng = np.random.default_rng(10)
    strength = rng.normal(0, 1, 12)
    once = list(round_robin(rng, strength).values())
    # Each judgement four times over is no more than was known before.
    rated, repeated = fit(once, 12, prior=None), fit(once * 4, 12, prior=None)
    assert repeated.dispersion > 2.5
    assert error(repeated, 0, 1) > 0.75 * error(rated, 0, 1)


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
    mirrored = fit([JudgedVote(v.b, v.a, (v.odds[0], v.odds[1], v.odds[2])) for v in votes], 6)
    assert mirrored.strength == pytest.approx([-s for s in rated.strength], abs=1e-6)


def test_no_votes_one_clip_and_no_clip() -> None:
    none = fit([], 3)
    assert none.strength == (0, 0, 0)
    assert none.alike() == ((0, 1, 2),) and none.beats(0, 2) == 0.5
    assert fit([], 1).alike() == ((0,),)
    assert fit([], 0).alike() == ()


@pytest.mark.parametrize(
    ("vote", "said"),
    [
        (JudgedVote(1, 1, A), "compares 1 with 1"),
        (JudgedVote(0, 3, A), "0 to 2"),
        (JudgedVote(-1, 0, A), "0 to 2"),
        (JudgedVote(0, 1, (0.0, 0.0, 0.0)), "odds"),
        (JudgedVote(0, 1, (1.5, -0.5, 0.0)), "odds"),
        (JudgedVote(0, 1, (math.nan, 0.5, 0.5)), "odds"),
    ],
)
def test_votes_that_are_none_are_refused(vote: JudgedVote, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit([vote], 3)


def ratings_of(strength: tuple[float, ...], error: float) -> Ratings:
    """Ratings whose differences all have this standard error."""
    zeros = (0.0,) * len(strength)
    return Ratings(strength, zeros, zeros, np.eye(len(strength)) * error**2 / 2, 0.0, 0.0, 0.0, 0.0, 1.0)


def test_groups_are_the_longest_runs_that_cannot_be_told_apart() -> None:
    # With an error of 1, two clips differ from 1.96 on.
    rated = ratings_of((0.0, 5.0, 1.5, -1.5, 3.2, -9.0), 1.0)
    assert rated.order() == (1, 4, 2, 0, 3, 5)
    assert rated.alike() == ((1, 4), (4, 2), (2, 0), (0, 3), (5,))
    assert ratings_of((0.0, 1.0, 1.9), 1.0).alike() == ((2, 1, 0),)
    assert ratings_of((0.0, 1.0, 2.5), 1.0).alike() == ((2, 1), (1, 0))


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
