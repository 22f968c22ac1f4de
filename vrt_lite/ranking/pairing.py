"""Which pair to judge next, and when the order is settled.

Each clip first meets one other, drawn by lot. After that the pair is chosen that tells most about the order: one step
is looked ahead, and what the pair's two judgements are expected to add is summed over all pairs of clips whose order
is in doubt. Clips far apart are then seldom compared, as their outcome is known; clips that nobody has met come early.

Knows votes and ratings alone. Refuses to know clips, budgets, and who judges.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vrt_lite.ranking.ratings import Ratings, fit
from vrt_lite.ranking.votes import Vote

MOST = 300
"""So many pairs, the most doubtful, are looked at in full: all of them for 24 clips; for more, time stays bounded."""


def next_pair(
    votes: Sequence[Vote],
    count: int,
    *,
    judged: Collection[tuple[int, int]],
    ratings: Ratings | None = None,
    seed: int = 0,
) -> tuple[int, int] | None:
    """The pair (i, j), i < j, whose two orders should be judged next; None if all pairs of `count` clips were.

    `judged` are the pairs that have votes, failed, or are being judged just now, in either order. `ratings` spares
    fitting the votes again. The answer depends on the arguments alone, so a resumed run goes on as it would have.
    """
    done = {(min(pair), max(pair)) for pair in judged}
    met = {clip for pair in done for clip in pair}
    lot = random.Random(seed).sample(range(count), count)
    lot += lot[: count % 2]
    for i, j in zip(lot[::2], lot[1::2], strict=True):
        if i != j and not (i in met and j in met):
            return min(i, j), max(i, j)
    left = np.ones((count, count), dtype=bool)
    for i, j in done:
        left[i, j] = False
    first, second = np.nonzero(np.triu(left, 1))
    if not len(first):
        return None
    best = int(np.argmax(_gains(ratings or fit(votes, count), first, second)))
    return int(first[best]), int(second[best])


def settled(ratings: Ratings, confidence: float) -> bool:
    """Whether each clip is better than the next in order with at least this probability, from 0.5 up to 1.

    Two votes that agree, of a pair that all others agree with, come to 0.85 or so: 0.8 is worth asking for, while 0.95
    for every two neighbours is rarely reached before all pairs are judged.
    """
    return all(ratings.beats(better, worse) >= confidence for better, worse in pairwise(ratings.order()))


def _gains(ratings: Ratings, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    """What both judgements of each pair (first[k], second[k]) are expected to tell about the order.

    For a difference d with variance v the doubt is exp(-d^2 / 2v), 1 for equals. A pair that takes the share r of v
    away turns the sign of an even d right with probability 1/2 + asin(sqrt r) / pi: the gain is doubt times that arc,
    summed over the pairs of clips.
    """
    strength, covariance = np.array(ratings.strength), ratings.covariance
    all_first, all_second = np.triu_indices(len(strength), 1)
    doubt = _doubt(strength, covariance, all_first, all_second)
    most = np.argsort(-doubt, kind="stable")[:MOST]
    k, m = all_first[most], all_second[most]

    d = strength[first] - strength[second]
    variance = _variance(covariance, first, second)
    # Each clip is shown first once: an order whose outcome the advantage of being first foretells says little.
    information = _information(d + ratings.first, ratings.tie) + _information(d - ratings.first, ratings.tie)
    gains = np.exp(-(d**2) / (2 * variance)) * np.log1p(information * variance)
    candidates = np.argsort(-gains, kind="stable")[:MOST]
    i, j = first[candidates], second[candidates]
    shared = covariance[k][:, i] - covariance[k][:, j] - covariance[m][:, i] + covariance[m][:, j]
    taken = information[candidates] / (1 + information[candidates] * variance[candidates])
    share = np.clip(shared**2 * taken / _variance(covariance, k, m)[:, None], 0, 1)
    looked = np.full(len(first), -1.0)
    # Rounded, so that pairs of equal gain are taken in order on every machine.
    looked[candidates] = np.round((doubt[most][:, None] * np.arcsin(np.sqrt(share))).sum(axis=0), 9)
    return looked


def _information(d: NDArray[np.float64], tie: float) -> NDArray[np.float64]:
    """Fisher's information of one judgement about the difference d, which includes the advantage of being first."""
    win, lose = np.exp(d / 2), np.exp(-d / 2)
    total = win + lose + np.exp(tie)
    return ((win + lose) / total - ((win - lose) / total) ** 2) / 4


def _doubt(
    strength: NDArray[np.float64], covariance: NDArray[np.float64], i: NDArray[np.int64], j: NDArray[np.int64]
) -> NDArray[np.float64]:
    return np.exp(-((strength[i] - strength[j]) ** 2) / (2 * _variance(covariance, i, j)))


def _variance(covariance: NDArray[np.float64], i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float64]:
    """The variance of the difference of strengths, pair by pair."""
    return np.maximum(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j], 1e-12)
