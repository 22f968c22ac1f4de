"""Computes the accuracy of verdicts against labels, with 95 % intervals. Pure functions.

Two families, never mixed. **Discrete**, from the verdicts themselves: `tau` (three classes, ties count) and `diff`
(pairs whose label is a tie are left out; a predicted tie is wrong there). **Soft**, from the preferences
m = P(video 1) - P(video 2): `calibrated` (three classes, the tie threshold fitted on these very pairs) and `sign`
(pairs whose label is a tie are left out; the sign of m decides, m = 0 is wrong). Labels and verdicts are 1, 2 or
0 (tie). Every accuracy has Wilson's interval, every paired difference a bootstrapped one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import astuple

from vrt_lite.records.figures import FittedShare, Share

RESAMPLES = 1000
SEED = 20_305
"""The seed of the bootstrap: the same pairs give the same interval."""
_Z = 1.959963984540054
SIGN: Final = (0, 1, -1)
"""By winner: 1 for video 1, -1 for video 2, 0 for a tie."""


def share(right: int, of: int) -> Share:
    """Return a share with Wilson's interval."""
    return Share(right / of if of else None, right, of, *wilson(right, of))


def wilson(right: int, of: int) -> tuple[float, float]:
    """Return Wilson's score interval, 95 % (JASA 22:209, 1927); (0, 1) without pairs."""
    if of == 0:
        return 0.0, 1.0
    p, z2 = right / of, _Z * _Z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def tau(labels: Sequence[int], verdicts: Sequence[int]) -> Share:
    """Return the three-class accuracy over all pairs, ties included. Discrete; Wilson's interval."""
    return share(sum(a == b for a, b in zip(labels, verdicts, strict=True)), len(labels))


def diff(labels: Sequence[int], verdicts: Sequence[int]) -> Share:
    """Return the accuracy over the pairs not labelled a tie; a predicted tie is wrong. Discrete; Wilson's interval."""
    return share(sum(a == b != 0 for a, b in zip(labels, verdicts, strict=True)), sum(map(bool, labels)))


def sign(labels: Sequence[int], margins: Sequence[float]) -> Share:
    """Return the sign accuracy of m over the pairs whose label is no tie; m = 0 is wrong. Soft; Wilson's interval.

    VideoGen-RewardBench's figure "without ties" (KwaiVGI/VideoAlign, calc_accuracy.py).
    """
    return diff(labels, [1 if m > 0 else 2 if m < 0 else 0 for m in margins])


def calibrated(labels: Sequence[int], margins: Sequence[float]) -> FittedShare:
    """Return the three-class accuracy of m at the best tie threshold: |m| <= threshold counts as a tie.

    Soft, and fitted on the same pairs: an upper estimate; Wilson's interval takes the threshold as given. Algorithm 1
    of "Ties Matter" (Deutsch et al. 2023, arXiv 2305.14324), as in its authors' mt-metrics-eval: the candidates are 0
    and every |m|, and the lowest of the best is taken. This is VideoGen-RewardBench's figure "with ties".
    """
    if not len(labels):
        return FittedShare(*astuple(share(0, 0)))
    human, m = np.array([SIGN[label] for label in labels]), np.asarray(margins, np.float64)
    candidates, place = np.unique(np.append(np.abs(m), 0), return_inverse=True)
    alike = human * m > 0
    # What calling a pair a tie changes: a right tie gained, a right preference lost.
    gain = np.bincount(place[:-1], (human == 0).astype(np.int64) - alike, len(candidates))
    reached = alike.sum() + np.cumsum(gain)
    best = int(np.argmax(reached))
    return FittedShare(*astuple(share(int(reached[best]), len(labels))), threshold=float(candidates[best]))


def commonest(labels: Sequence[int]) -> int | None:
    """Return the label that most pairs have; if equally common, 1 before 2 before 0. None without labels."""
    return max((1, 2, 0), key=labels.count) if labels else None


def mean_interval(values: Sequence[int], clusters: Sequence[Hashable]) -> tuple[float, float]:
    """Return a percentile bootstrap interval, 95 %, of a mean; whole clusters are drawn. (-1, 1) without values.

    It is for paired differences, to which Wilson's interval does not apply.
    """
    if not values:
        return -1.0, 1.0
    numbers = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    member = [numbers[name] for name in clusters]
    sums, sizes, count = np.bincount(member, values), np.bincount(member), len(numbers)
    chance = np.random.default_rng(SEED)
    draws = (chance.integers(count, size=count) for _ in range(RESAMPLES))
    low, high = np.quantile([sums[drawn].sum() / sizes[drawn].sum() for drawn in draws], (0.025, 0.975))
    return float(low), float(high)
