"""Simulated judges of known strength, ties and position bias: one vote for each ordered pair, as in a run store."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from vrt_lite.ranking.ratings import Z95, JudgedVote, Ratings

TIE = -0.5
FIRST = 0.5


def vote(
    rng: np.random.Generator,
    strength: np.ndarray,
    a: int,
    b: int,
    *,
    soft: bool = False,
    noise: float = 0.0,
    first: float = FIRST,
) -> JudgedVote:
    """Clip a, shown first, against b. A soft vote is the odds themselves, off by `noise` in the log odds."""
    d = strength[a] - strength[b] + first + noise * rng.normal()
    odds = np.exp([TIE, d / 2, -d / 2])
    odds /= odds.sum()
    if not soft:
        odds = rng.multinomial(1, odds)
    return JudgedVote(a, b, (float(odds[0]), float(odds[1]), float(odds[2])))


def round_robin(
    rng: np.random.Generator,
    strength: np.ndarray,
    *,
    soft: bool = False,
    noise: float = 0.0,
    first: float = FIRST,
) -> dict[tuple[int, int], JudgedVote]:
    """Both orders of every pair."""
    pairs = [order for pair in combinations(range(len(strength)), 2) for order in (pair, pair[::-1])]
    return {(a, b): vote(rng, strength, a, b, soft=soft, noise=noise, first=first) for a, b in pairs}


def tau(strength: np.ndarray, rated: tuple[float, ...]) -> float:
    """Kendall's tau between true and rated strengths."""
    pairs = list(combinations(range(len(rated)), 2))
    signs = [np.sign(strength[i] - strength[j]) * np.sign(round(rated[i] - rated[j], 9)) for i, j in pairs]
    return float(np.mean(signs))


def difference(rated: Ratings, i: int, j: int) -> tuple[float, float, float]:
    """How much stronger `i` is than `j`, and that difference's 95 % interval."""
    c = rated.covariance
    reach = Z95 * float(np.sqrt(c[i, i] + c[j, j] - 2 * c[i, j]))
    gap = rated.strength[i] - rated.strength[j]
    return gap, gap - reach, gap + reach
