"""Chooses which judgement is next, and finds when the order is certain.

A judgement is one order of one pair: the clip shown first, and the other. Each clip is first compared with one other,
chosen at random. After that, the judgement that is expected to tell most is next: it is expected to make the order of
all pairs of clips more certain, and this gain is summed over the pairs. So clips far apart are seldom compared, clips
without any comparison come early, and a pair is judged in the other order only where that tells more than a new pair.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vrt_lite.ranking.ratings import Floats, Ratings, find_variance

MOST = 300
"""How many pairs, the most doubtful ones, are examined in full; it limits the time. 24 clips have fewer pairs."""


def next_judgement(
    ratings: Ratings, *, judged: Collection[tuple[int, int]], both_orders: bool = True, seed: int = 0
) -> tuple[int, int] | None:
    """Return (a, b) to judge next, with a shown first; None if all is judged of the clips that are rated.

    `judged` are the orders that have votes, failed, or are being judged now. Without `both_orders`, a pair is judged
    once. The result depends on the arguments alone, so a resumed run continues as it would have.
    """
    count = len(ratings.strength)
    compared = {clip for order in judged for clip in order}
    shuffled = random.Random(seed).sample(range(count), count)
    shuffled += shuffled[: count % 2]
    for i, j in zip(shuffled[::2], shuffled[1::2], strict=True):
        if i != j and not (i in compared and j in compared):
            return i, j
    left = ~np.eye(count, dtype=bool)
    for a, b in judged:
        left[a, b] = False
        left[b, a] &= both_orders
    first, second = np.nonzero(left)
    if not len(first):
        return None
    shown_first = np.bincount([a for a, _ in judged], minlength=count)
    # Of two orders that tell as much, the one whose first clip was seldom first.
    best = np.lexsort((shown_first[first] - shown_first[second], -_find_gains(ratings, first, second)))[0]
    return int(first[best]), int(second[best])


def is_order_certain(ratings: Ratings, confidence: float) -> bool:
    """Return whether each clip is better than the next in order with at least this probability, from 0.5 up to 1.

    A pair with two votes that agree, and agree with all others, gives about 0.85. So 0.8 is a useful value, while
    0.95 is rarely reached for all neighbours before all pairs are judged.
    """
    return all(ratings.beats(better, worse) >= confidence for better, worse in pairwise(ratings.order()))


def _find_gains(ratings: Ratings, first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
    """Return how much each judgement (first[k] shown first, second[k]) is expected to tell about the order.

    For a difference d with variance v the doubt is exp(-d^2 / 2v), 1 for equals. A pair that removes the share r of v
    finds the sign of a d around 0 with probability 1/2 + asin(sqrt r) / pi. The gain is the doubt times that arc,
    summed over the pairs of clips.
    """
    strength, covariance = np.array(ratings.strength), ratings.covariance
    all_first, all_second = np.triu_indices(len(strength), 1)
    all_variance = find_variance(covariance, all_first, all_second)
    doubt = np.exp(-((strength[all_first] - strength[all_second]) ** 2) / (2 * all_variance))
    most = np.argsort(-doubt, kind="stable")[:MOST]
    k, m = all_first[most], all_second[most]

    d = strength[first] - strength[second]
    variance = find_variance(covariance, first, second)
    # Where being first decides the outcome, the judgement adds little.
    information = _information(d + ratings.first, ratings.tie)
    gains = np.exp(-(d**2) / (2 * variance)) * np.log1p(information * variance)
    candidates = np.argsort(-gains, kind="stable")[:MOST]
    i, j = first[candidates], second[candidates]
    shared = covariance[k][:, i] - covariance[k][:, j] - covariance[m][:, i] + covariance[m][:, j]
    taken = information[candidates] / (1 + information[candidates] * variance[candidates])
    share = np.clip(shared**2 * taken / find_variance(covariance, k, m)[:, None], 0, 1)
    total = np.full(len(first), -1.0)
    # Rounded: pairs of equal gain are then taken in the same order on every machine.
    total[candidates] = np.round((doubt[most][:, None] * np.arcsin(np.sqrt(share))).sum(axis=0), 9)
    return total


def _information(d: Floats, tie: float) -> Floats:
    """Return Fisher's information of one judgement about the difference d, with the advantage of being first in it."""
    win, lose = np.exp(d / 2), np.exp(-d / 2)
    total = win + lose + np.exp(tie)
    return ((win + lose) / total - ((win - lose) / total) ** 2) / 4
