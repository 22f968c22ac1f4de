"""Judgements chosen: as good an order as all of them give, for at most half of them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from tournaments import round_robin, tau

from vrt_lite.ranking.pairing import is_order_certain, next_judgement
from vrt_lite.ranking.ratings import JudgedVote, Ratings, fit

CLIPS = 12
EVERY = CLIPS * (CLIPS - 1)
HALF = EVERY // 2


def active(
    table: dict[tuple[int, int], JudgedVote], count: int, *, judgements: int, seed: int
) -> tuple[Ratings, list[JudgedVote]]:
    """What is known after so many judgements."""
    votes: list[JudgedVote] = []
    judged: list[tuple[int, int]] = []
    while len(judged) < judgements:
        order = next_judgement(votes, count, judged=judged, seed=seed)
        assert order is not None and order not in judged
        judged.append(order)
        votes.append(table[order])
    return fit(votes, count), votes


def test_half_of_the_judgements_are_as_near_to_the_truth_as_all() -> None:
    """A judge with soft preferences and noise, on clips of random strengths, some of them all but equal.

    What one order lacks to the truth is compared, as neighbours that are equal in truth may stand either way.
    """
    gains: list[float] = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        strength = rng.normal(0, 2, CLIPS)
        table = round_robin(rng, strength, soft=True, noise=0.7)
        few, _ = active(table, CLIPS, judgements=HALF, seed=seed)
        gains.append(tau(strength, few.strength) - tau(strength, fit(list(table.values()), CLIPS).strength))
    assert np.median(gains) >= 0
    assert np.mean(gains) > -0.02


def test_chosen_judgements_are_better_than_those_drawn_by_lot() -> None:
    gains: list[float] = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        strength = rng.permutation(CLIPS) * 1.5
        table = round_robin(rng, strength)
        few, _ = active(table, CLIPS, judgements=EVERY // 3, seed=seed)
        drawn = rng.permutation(np.array(list(permutations(range(CLIPS), 2))))[: EVERY // 3].tolist()
        lot = fit([table[a, b] for a, b in drawn], CLIPS)
        gains.append(tau(strength, few.strength) - tau(strength, lot.strength))
    assert np.mean(gains) > 0.03


def test_every_order_comes_once_and_then_none() -> None:
    for count in (0, 1, 2, 3, 7):
        table = round_robin(np.random.default_rng(count), np.arange(count) * 1.0)
        _, votes = active(table, count, judgements=count * (count - 1), seed=0)
        judged = [(vote.a, vote.b) for vote in votes]
        assert set(judged) == set(table)
        assert next_judgement(votes, count, judged=judged) is None


def test_every_clip_is_met_before_one_is_met_twice() -> None:
    orders: list[tuple[int, int]] = []
    for _ in range(5):
        order = next_judgement([], 9, judged=orders, seed=5)
        assert order is not None
        orders.append(order)
    assert len({clip for order in orders[:4] for clip in order}) == 8
    assert len({clip for order in orders for clip in order}) == 9
    assert orders != [next_judgement([], 9, judged=orders[:k], seed=6) for k in range(5)]


def test_the_choice_is_the_same_again_and_orders_at_work_are_left_out() -> None:
    table = round_robin(np.random.default_rng(2), np.arange(8) * 1.0)
    _, votes = active(table, 8, judgements=20, seed=3)
    judged = [(vote.a, vote.b) for vote in votes]
    chosen = next_judgement(votes, 8, judged=judged, seed=3)
    assert chosen == next_judgement(votes, 8, judged=set(judged), ratings=fit(votes, 8), seed=3)
    assert chosen is not None
    other = next_judgement(votes, 8, judged=[*judged, chosen], seed=3)
    assert other not in (chosen, None)


def test_an_outcome_that_is_known_is_not_asked_for() -> None:
    """Four clips, two of them far above the others: the doubt is within the halves."""
    table = {(0, 2): 20, (0, 3): 20, (1, 2): 20, (1, 3): 20}
    votes = [
        v
        for (i, j), n in table.items()
        for v in [JudgedVote(i, j, (0.0, 1.0, 0.0)), JudgedVote(j, i, (0.0, 0.0, 1.0))] * n
    ]
    order = next_judgement(votes, 4, judged=[(0, 3), (1, 2)])
    assert order is not None and set(order) in ({0, 1}, {2, 3})


def test_many_clips_are_chosen_from_too() -> None:
    strength = np.random.default_rng(4).normal(0, 2, 60)
    table = round_robin(np.random.default_rng(5), strength, soft=True)
    few, _ = active(table, 60, judgements=240, seed=1)
    assert tau(strength, few.strength) > 0.7


@pytest.mark.parametrize(("error", "confidence", "expected"), [(0.5, 0.95, True), (0.5, 0.99, False), (2.0, 0.6, True)])
def test_an_order_is_certain_when_each_clip_is_better_than_the_next(
    error: float, confidence: float, expected: bool
) -> None:
    # Neighbours are 1 apart: at an error of 0.5 the better one is better with 0.977, at 2 with 0.69.
    zeros = (0.0,) * 3
    rated = Ratings((1.0, -1.0, 0.0), zeros, zeros, np.eye(3) * error**2 / 2, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert is_order_certain(rated, confidence) is expected
