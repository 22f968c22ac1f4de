"""Metrics against their definitions and published values, on labels with ties; `test_evaluate` has sets by hand."""

from __future__ import annotations

import random

import pytest

from vrt_lite.evaluation.metrics import calibrated, commonest, diff, mean_interval, sign, tau, wilson


@pytest.mark.parametrize(
    ("labels", "margins", "right", "threshold"),
    [
        # One tie and two preferences share |m| = 0.2: calling them ties wins one and loses two. So no ties: 2 of 3.
        ([0, 1, 2], [0.2, 0.2, -0.2], 2, 0.0),
        # A margin of zero is a tie at any threshold.
        ([0, 1], [0.0, 0.5], 2, 0.0),
        ([1, 1], [0.0, 0.5], 1, 0.0),
    ],
)
def test_calibrated_passes_equal_margins_at_once(
    labels: list[int], margins: list[float], right: int, threshold: float
) -> None:
    assert (calibrated(labels, margins).right, calibrated(labels, margins).threshold) == (right, threshold)


def test_calibrated_is_the_best_over_all_thresholds() -> None:
    """Against the definition itself, three classes at every threshold."""
    chance = random.Random(7)
    for _ in range(25):
        count = chance.randint(1, 12)
        labels = [chance.choice((0, 1, 2)) for _ in range(count)]
        margins = [chance.choice((-0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5)) for _ in range(count)]

        def right(threshold: float, labels: list[int] = labels, margins: list[float] = margins) -> int:
            said = [0 if abs(m) <= threshold else 1 if m > 0 else 2 for m in margins]
            return sum(a == b for a, b in zip(labels, said, strict=True))

        got = calibrated(labels, margins)
        assert got.right == max(right(t) for t in (0.0, *map(abs, margins))) == right(got.threshold or 0.0)


def test_ties_and_zeros_are_wrong_where_a_winner_is_labelled() -> None:
    assert diff([1, 2], [0, 0]).value == 0.0
    assert sign([1, 2], [0.0, -0.1]).right == 1


def test_wilson_has_its_published_values() -> None:
    # 8 of 10: centre (0.8 + 1.92073/10) / 1.384146 = 0.716740;
    # half its width 1.959964/1.384146 · sqrt(0.016 + 0.0096036) = 0.226577
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=2e-6)
    assert (wilson(0, 10)[0], wilson(10, 10)[1]) == (0.0, pytest.approx(1.0))
    assert wilson(0, 0) == (0.0, 1.0)


def test_pairs_of_one_prompt_widen_a_differences_interval() -> None:
    """Ten prompts of twenty alike pairs say as much as ten pairs."""
    change = [int(prompt < 5) for prompt in range(10) for _ in range(20)]
    prompts = [prompt for prompt in range(10) for _ in range(20)]
    alone, together = mean_interval(change, range(200)), mean_interval(change, prompts)
    assert together[1] - together[0] > 3 * (alone[1] - alone[0])
    assert mean_interval(change, prompts) == together, "the seed is fixed"
    assert -1 <= together[0] < alone[0] < 0.5 < alone[1] < together[1] <= 1


def test_the_commonest_label_and_figures_of_nothing() -> None:
    assert [commonest(labels) for labels in ([0, 2, 0, 1], [2, 1, 0, 2, 1, 0], [])] == [0, 1, None]
    for nothing in (tau([], []), diff([0], [0]), sign([], []), calibrated([], [])):
        assert (nothing.value, nothing.low, nothing.high) == (None, 0.0, 1.0)
    assert mean_interval([], []) == (-1.0, 1.0)
