"""Metrics against numbers worked out by hand, on labels with ties."""

from __future__ import annotations

import math
import random

import pytest

from vrt_lite.evaluation.metrics import (
    Share,
    calibrated,
    commonest,
    diff,
    mean_interval,
    sign,
    tau,
    wilson,
)

LABELS = [1, 2, 0, 0, 1, 2]
VERDICTS = [1, 1, 0, 2, 0, 2]
MARGINS = [0.8, 0.1, -0.05, -0.3, 0.2, -0.6]


def test_discrete_measures() -> None:
    # Right: 1st, 3rd and 6th of six; without the two labelled ties: 1st and 6th of four.
    assert (tau(LABELS, VERDICTS).right, tau(LABELS, VERDICTS).of) == (3, 6)
    assert (diff(LABELS, VERDICTS).right, diff(LABELS, VERDICTS).of) == (2, 4)
    assert diff([1, 2], [0, 0]).value == 0.0  # a predicted tie is wrong


def test_sign_leaves_labelled_ties_out_and_calls_zero_wrong() -> None:
    # Of pairs 1, 2, 5, 6 the margin of pair 2 alone has the wrong sign.
    assert (sign(LABELS, MARGINS).right, sign(LABELS, MARGINS).of) == (3, 4)
    assert sign([1, 2], [0.0, -0.1]).right == 1


def test_calibrated_by_hand() -> None:
    # |m| in order 0.05 (a tie), 0.1, 0.2, 0.3 (a tie), 0.6, 0.8. No threshold: pairs 1, 5, 6 right.
    # Up to 0.05: + pair 3 = 4. 0.1: pair 2 was wrong before, 4. 0.2: - pair 5 = 3. 0.3: + pair 4 = 4. 0.6: 3. 0.8: 2.
    got = calibrated(LABELS, MARGINS)
    assert (got.right, got.of, got.threshold) == (4, 6, 0.05)
    assert got.low <= 4 / 6 <= got.high


def test_calibrated_passes_equal_margins_at_once() -> None:
    # One tie and two preferences share |m| = 0.2: calling them ties wins one and loses two. So no ties: 2 of 3.
    assert (calibrated([0, 1, 2], [0.2, 0.2, -0.2]).right, calibrated([0, 1, 2], [0.2, 0.2, -0.2]).threshold) == (2, 0)


def test_a_margin_of_zero_is_a_tie_at_any_threshold() -> None:
    assert calibrated([0, 1], [0.0, 0.5]).right == 2
    assert calibrated([1, 1], [0.0, 0.5]).right == 1


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

        best = max(right(t) for t in (0.0, *map(abs, margins)))
        got = calibrated(labels, margins)
        assert got.right == best == right(got.threshold or 0.0)


def test_wilson_has_its_published_values() -> None:
    # 8 of 10: centre (0.8 + 1.92073/10) / 1.384146 = 0.716740;
    # half its width 1.959964/1.384146 · sqrt(0.016 + 0.0096036) = 0.226577
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.490162, abs=2e-6)
    assert high == pytest.approx(0.943318, abs=2e-6)
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == pytest.approx(1.0)
    assert wilson(0, 0) == (0.0, 1.0)


def test_pairs_of_one_prompt_widen_a_differences_interval() -> None:
    """Ten prompts of twenty alike pairs say as much as ten pairs."""
    change = [int(prompt < 5) for prompt in range(10) for _ in range(20)]
    prompts = [prompt for prompt in range(10) for _ in range(20)]
    alone, together = mean_interval(change, range(200)), mean_interval(change, prompts)
    assert together[1] - together[0] > 3 * (alone[1] - alone[0])
    assert mean_interval(change, prompts) == together  # the seed is fixed


def test_every_accuracy_has_wilsons_interval() -> None:
    for found in (tau(LABELS, VERDICTS), diff(LABELS, VERDICTS), sign(LABELS, MARGINS), calibrated(LABELS, MARGINS)):
        assert (found.low, found.high) == wilson(found.right, found.of)


def test_the_commonest_label() -> None:
    assert commonest([0, 2, 0, 1]) == 0
    assert commonest([2, 1, 0, 2, 1, 0]) == 1
    assert commonest([]) is None


def test_a_difference_has_an_interval_around_it() -> None:
    low, high = mean_interval([1, 0, 0, -1, 1, 0, 1, 1], range(8))
    assert -1 <= low < 3 / 8 < high <= 1


def test_intervals_cover() -> None:
    """Of 300 samples of 60 pairs, judged right with 0.7, Wilson's interval holds 0.7 in about 95 %."""
    chance = random.Random(3)
    held = sum(
        low <= 0.7 <= high
        for low, high in (wilson(sum(chance.random() < 0.7 for _ in range(60)), 60) for _ in range(300))
    )
    assert 0.92 <= held / 300 <= 0.98


def test_nothing_is_no_figure() -> None:
    for nothing in (tau([], []), diff([0], [0]), sign([], []), calibrated([], [])):
        assert nothing.value is None
        assert (nothing.low, nothing.high) == (0.0, 1.0)
    assert mean_interval([], []) == (-1.0, 1.0)


def test_many_pairs() -> None:
    """26 500 pairs, as many as the largest set has."""
    chance = random.Random(1)
    labels = [chance.choice((0, 1, 2)) for _ in range(26_500)]
    margins = [{0: 0.0, 1: 0.4, 2: -0.4}[label] + chance.gauss(0, 0.3) for label in labels]
    got = calibrated(labels, margins)
    assert isinstance(got, Share)
    assert got.value is not None
    assert math.isclose(got.right / got.of, got.value)
    assert got.low < got.value < got.high
