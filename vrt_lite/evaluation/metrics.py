"""Computes the accuracy of verdicts against labels, with 95 % intervals. Pure functions.

Two families, never mixed. **Discrete**, from the verdicts themselves: `tau` (three classes, ties count) and `diff`
(pairs whose label is a tie are left out; a predicted tie is wrong there). **Soft**, from the preferences
m = P(video 1) - P(video 2): `calibrated` (three classes, the tie threshold fitted on these very pairs) and `sign`
(pairs whose label is a tie are left out; the sign of m decides, m = 0 is wrong). Labels and verdicts are 1, 2 or
0 (tie). Every accuracy has Wilson's interval, every paired difference a bootstrapped one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import msgspec
import numpy as np

RESAMPLES = 1000
SEED = 20_305
"""The seed of the bootstrap: the same pairs give the same interval."""
_Z = 1.959963984540054
SIGN: Mapping[int, int] = {0: 0, 1: 1, 2: -1}
"""By winner: 1 for video 1, -1 for video 2, 0 for a tie."""


class Share(msgspec.Struct, frozen=True):
    """`right` of `of` pairs, and the 95 % interval. `value` is right / of, from 0 to 1; None without pairs."""

    value: float | None
    right: int
    of: int
    low: float
    high: float


class FittedShare(Share, frozen=True, omit_defaults=True):
    """What `calibrated` returns: |m| up to `threshold` counts as a tie. None without pairs."""

    threshold: float | None = None


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
    kept = [(a, b) for a, b in zip(labels, verdicts, strict=True) if a]
    return share(sum(a == b for a, b in kept), len(kept))


def sign(labels: Sequence[int], margins: Sequence[float]) -> Share:
    """Return the sign accuracy of m over the pairs whose label is no tie; m = 0 is wrong. Soft; Wilson's interval.

    VideoGen-RewardBench's figure "without ties" (KwaiVGI/VideoAlign, calc_accuracy.py).
    """
    kept = [(a, m) for a, m in zip(labels, margins, strict=True) if a]
    return share(sum(SIGN[a] * m > 0 for a, m in kept), len(kept))


def calibrated(labels: Sequence[int], margins: Sequence[float]) -> FittedShare:
    """Return the three-class accuracy of m at the best tie threshold: |m| <= threshold counts as a tie.

    Soft, and fitted on the same pairs: an upper estimate; Wilson's interval takes the threshold as given. Algorithm 1
    of "Ties Matter" (Deutsch et al. 2023, arXiv 2305.14324), as in its authors' mt-metrics-eval: the candidates are 0
    and every |m|, and the lowest of the best is taken. This is VideoGen-RewardBench's figure "with ties".
    """
    if not len(labels):
        return FittedShare(*msgspec.structs.astuple(share(0, 0)))
    human = np.array([SIGN[label] for label in labels])
    size = np.abs(np.asarray(margins, np.float64))
    by_size = np.argsort(size, kind="stable")
    human, size = human[by_size], size[by_size]
    alike = human * np.asarray(margins, np.float64)[by_size] > 0
    # What calling a pair a tie changes: a right tie gained, a right preference lost.
    gain = (human == 0).astype(np.int64) - alike
    ends = np.flatnonzero(np.append(size[1:] != size[:-1], True))
    # An m of 0 is a tie at any threshold, also the lowest.
    cuts = ends if size[0] == 0 else np.concatenate(([-1], ends))
    reached = np.concatenate(([0], np.cumsum(gain)))[cuts + 1]
    best = int(np.argmax(reached))
    right, cut = int(alike.sum() + reached[best]), int(cuts[best])
    threshold = float(size[cut]) if cut >= 0 else 0.0
    s = share(right, len(size))
    return FittedShare(s.value, s.right, s.of, s.low, s.high, threshold)


def commonest(labels: Sequence[int]) -> int | None:
    """Return the label that most pairs have; if equally common, 1 before 2 before 0. None without labels."""
    return max((1, 2, 0), key=labels.count) if labels else None


def mean_interval(values: Sequence[int], clusters: Sequence[Hashable]) -> tuple[float, float]:
    """Return a percentile bootstrap interval, 95 %, of a mean; whole clusters are drawn. (-1, 1) without values.

    It is for paired differences, to which Wilson's interval does not apply.
    """
    if not values:
        return -1.0, 1.0
    each = np.asarray(values, np.int64)
    numbers: dict[Hashable, int] = {}
    member = np.array([numbers.setdefault(name, len(numbers)) for name in clusters])
    chance = np.random.default_rng(SEED)
    means: list[float] = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(chance.integers(len(numbers), size=len(numbers)), minlength=len(numbers))
        weights = drawn[member]
        means.append(float(weights @ each) / int(weights.sum()))
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
