"""Metrics against their definitions and published values, on labels with ties; `test_evaluate` has sets by hand."""

from __future__ import annotations

import random

import pytest

from vrt_lite.evaluation.metrics import calibrated, commonest, diff, mean_interval, sign, tau, wilson


def test_calibrated_is_the_best_over_all_thresholds_at_the_lowest() -> None:
    """Against the definition itself, three classes at every threshold; equal margins are ties or none at once."""
    chance = random.Random(7)
    for _ in range(25):
        count = chance.randint(1, 12)
        labels = [chance.choice((0, 1, 2)) for _ in range(count)]
        margins = [chance.choice((-0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5)) for _ in range(count)]
        right: dict[float, int] = {}
        for threshold in sorted({0.0, *map(abs, margins)}):
            said = [0 if abs(m) <= threshold else 1 if m > 0 else 2 for m in margins]
            right[threshold] = sum(a == b for a, b in zip(labels, said, strict=True))
        got, best = calibrated(labels, margins), max(right.values())
        assert (got.right, got.threshold) == (best, next(t for t, count in right.items() if count == best))


def test_pairs_of_one_prompt_widen_a_differences_interval() -> None:
    """Ten prompts of twenty alike pairs say as much as ten pairs."""
    change = [int(prompt < 5) for prompt in range(10) for _ in range(20)]
    prompts = [prompt for prompt in range(10) for _ in range(20)]
    alone, together = mean_interval(change, range(200)), mean_interval(change, prompts)
    assert together[1] - together[0] > 3 * (alone[1] - alone[0])
    assert mean_interval(change, prompts) == together, "the seed is fixed"
    assert -1 <= together[0] < alone[0] < 0.5 < alone[1] < together[1] <= 1


def test_values_by_hand_and_figures_of_nothing() -> None:
    # Wilson's interval of 8 of 10: centre (0.8 + 1.92073/10) / 1.384146 = 0.716740;
    # half its width 1.959964/1.384146 · sqrt(0.016 + 0.0096036) = 0.226577
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=2e-6)
    assert (wilson(0, 10)[0], wilson(10, 10)[1], wilson(0, 0)) == (0.0, pytest.approx(1.0), (0.0, 1.0))
    assert [commonest(labels) for labels in ([0, 2, 0, 1], [2, 1, 0, 2, 1, 0], [])] == [0, 1, None]
    assert sign([1, 2], [0.0, -0.1]).right == 1, "no margin is no winner"
    for nothing in (tau([], []), diff([0], [0]), sign([], []), calibrated([], [])):
        assert (nothing.value, nothing.low, nothing.high) == (None, 0.0, 1.0)
    assert mean_interval([], []) == (-1.0, 1.0)
