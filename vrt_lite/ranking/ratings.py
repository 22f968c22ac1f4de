"""Computes strengths, with intervals, from votes on pairs.

The model is Bradley-Terry with ties (Davidson 1970) and an advantage for the clip shown first (Davidson and Beaver
1977). With d = strength[a] - strength[b] + first, the odds of (tie, a, b) are exp(tie) : exp(d/2) : exp(-d/2). (In
Davidson and Beaver's own form the tie parameter is larger by first/2; all else is the same.)

No library does this: choix has no ties and no intervals, evalica's Newman has no order effect, arena-rank counts a tie
as half a win and needs JAX, openskill rates in sequence. None of them accepts soft preferences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vrt_lite.protocol.messages import Odds

Floats = NDArray[np.float64]
Numbers = int | NDArray[np.int64]

PRIOR = 5.0
"""The standard deviation of the normal prior of the strengths and of the advantage of being shown first.

5 stands for odds of 150 to 1: a strong advantage is then found in the votes and not taken for a difference of clips.
"""
PRIOR_TIE = 2.0
"""The same for the tie parameter."""
FLAT = 1e-10
"""The precision used for no prior: large enough that a parameter without votes stays finite."""
SOFTEST = 0.5
"""The smallest dispersion for soft preferences; see `_dispersion`."""
Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class JudgedVote:
    """One judgement of clips `a` and `b`, by number; `a` was shown as video 1.

    `odds` are the judge's probabilities of (tie, a, b), or 1 for the winner alone; `fit` scales them to a sum of 1.
    """

    a: int
    b: int
    odds: Odds


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """The result of a fit. Strengths are in natural-log odds and have mean 0 over the clips; intervals are 95 %.

    `covariance` is that of the strengths, (clips, clips). `tie` is the log odds of a tie between equals against one of
    the two. `first` is the log odds by which being shown first helps. `dispersion` is how much noisier (above 1) or
    less noisy than independent draws the votes are; intervals and covariance include it.
    """

    strength: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    covariance: Floats = field(repr=False)
    tie: float
    first: float
    first_low: float
    first_high: float
    dispersion: float

    def order(self) -> tuple[int, ...]:
        """Return the clips, best first; equals in the order of their numbers."""
        return tuple(sorted(range(len(self.strength)), key=lambda clip: (-round(self.strength[clip], 9), clip)))

    def beats(self, i: int, j: int) -> float:
        """Return the probability that `i` is the better clip (not that it wins one comparison)."""
        if i == j:
            return 0.5
        error = math.sqrt(find_variance(self.covariance, i, j))
        return 0.5 * math.erfc(-(self.strength[i] - self.strength[j]) / (error * math.sqrt(2)))

    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups of clips that cannot be told apart.

        They are maximal runs of the order in which no difference's interval excludes 0. Every clip is in at least one
        group. Groups may overlap: the second of three clips may be close to both the first and the third. If two clips
        share no group, they, or two clips between them, can be told apart.
        """
        order = self.order()
        groups: list[tuple[int, ...]] = []
        start = 0
        for end in range(1, len(order) + 1):
            new = start
            while end < len(order) and any(self._differ(order[k], order[end]) for k in range(new, end)):
                new += 1
            if end == len(order) or new > start:
                groups.append(order[start:end])
            start = new
        return tuple(groups)

    def _differ(self, i: int, j: int) -> bool:
        return abs(self.strength[i] - self.strength[j]) > Z95 * math.sqrt(find_variance(self.covariance, i, j))


def find_variance(covariance: Floats, i: Numbers, j: Numbers) -> Floats:
    """Return the variance of the difference of two strengths, pair by pair."""
    return np.maximum(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j], 1e-12)


def fit(
    votes: Sequence[JudgedVote], count: int, *, prior: float | None = PRIOR, dispersion: float | None = None
) -> Ratings:
    """Rate `count` clips by the maximum of the posterior, found by Newton's method: milliseconds for a hundred votes.

    The weak prior keeps everything finite: without votes, with clips that always won, and with clips that were never
    compared. `prior` None switches it off, for votes that need none (each clip wins and loses, and all are connected).
    `dispersion` None estimates it from the votes; 1 gives the textbook's intervals.
    ValueError for a clip compared with itself, a number without a clip, and invalid odds.
    """
    own, odds = _read_votes(votes, count)
    precision = np.full(count + 2, FLAT)
    if prior is not None:
        precision[:] = prior**-2
        precision[count] = PRIOR_TIE**-2
    at, hessian, pull, weight = _newton(own, odds, precision)
    centred = np.eye(count + 2)
    centred[:count, :count] -= 1 / max(count, 1)
    covariance = centred @ np.linalg.inv(hessian) @ centred
    spread = _dispersion(own, odds, pull, weight, covariance) if dispersion is None else dispersion
    covariance *= spread
    reach = Z95 * np.sqrt(np.clip(np.diag(covariance), 0, None))
    low, high = at - reach, at + reach
    return Ratings(
        strength=tuple(at[:count].tolist()),
        low=tuple(low[:count].tolist()),
        high=tuple(high[:count].tolist()),
        covariance=covariance[:count, :count],
        tie=float(at[count]),
        first=float(at[count + 1]),
        first_low=float(low[count + 1]),
        first_high=float(high[count + 1]),
        dispersion=spread,
    )


_LOGITS = np.array([[0, 0, 1, 0], [0.5, -0.5, 0, 0.5], [-0.5, 0.5, 0, -0.5]])
"""The logits of (tie, a, b) by a vote's own parameters: the strengths of a and b, the tie, and being first."""
_PRODUCTS = _LOGITS[:, :, None] * _LOGITS[:, None, :]


def _read_votes(votes: Sequence[JudgedVote], count: int) -> tuple[NDArray[np.int64], Floats]:
    """Return each vote's own parameters by number, (votes, 4), and its odds, (votes, 3), which sum to 1."""
    own = np.array([(vote.a, vote.b, count, count + 1) for vote in votes], dtype=np.int64).reshape(-1, 4)
    odds = np.array([vote.odds for vote in votes], dtype=np.float64).reshape(-1, 3)
    for number, vote in enumerate(votes):
        if vote.a == vote.b or not (0 <= vote.a < count and 0 <= vote.b < count):
            raise ValueError(f"Vote {number} compares {vote.a} with {vote.b}: two of 0 to {count - 1} are needed.")
    total = odds.sum(axis=1, keepdims=True)
    if not (np.isfinite(odds).all() and (odds >= 0).all() and (total > 0).all()):
        raise ValueError("The odds of a vote are negative, not finite or all zero.")
    return own, odds / total


def _newton(own: NDArray[np.int64], odds: Floats, precision: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Find the maximum. The log-likelihood is concave; a step that goes too far is halved.

    Returns the parameters, the negative Hessian within 1e-6 of them, and of each vote the slope and the curvature of
    its log-likelihood in d.
    """
    size = len(precision)

    def find_chances(at: Floats) -> tuple[Floats, float]:
        """Return the logarithm of each vote's chances, and the log-posterior."""
        logits = at[own] @ _LOGITS.T
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logits, float((odds * logits).sum() - (precision * at * at).sum() / 2)

    at, steps = np.zeros(size), 0
    cells = own[:, :, None] * size + own[:, None, :]
    while True:
        logits, value = find_chances(at)
        chances = np.exp(logits)
        # The information of a vote about its own parameters: the covariance of the outcome, seen through the logits.
        means = chances @ _LOGITS
        curvature = np.tensordot(chances, _PRODUCTS, 1) - means[:, :, None] * means[:, None, :]
        slopes = odds @ _LOGITS - means
        hessian = np.bincount(cells.ravel(), curvature.ravel(), size**2).reshape(size, size) + np.diag(precision)
        # The ones hold the strengths' mean at 0: nothing else does where there is no prior.
        hessian[:-2, :-2] += 1.0
        step = np.linalg.solve(hessian, np.bincount(own.ravel(), slopes.ravel(), size) - precision * at)
        while np.abs(step).max() > 1e-12 and find_chances(at + step)[1] < value - 1e-9:
            step /= 2
        at, steps = at + step, steps + 1
        # Errors are squared at each step by now.
        if np.abs(step).max() < 1e-6 or steps == 100:
            return at, hessian, slopes[:, 3], curvature[:, 3, 3]


def _dispersion(own: NDArray[np.int64], odds: Floats, pull: Floats, weight: Floats, covariance: Floats) -> float:
    """Estimate how much noisier than independent draws the votes are: a factor for all variances (quasi-likelihood).

    Both orders of a pair share what the model does not know of the pair, so a pair's votes are summed before they are
    squared. There is one factor for all pairs, because a sandwich estimate needs more pairs a clip than a ranking has.
    Four more pairs with the expected noise are added, which makes the estimate stable. It is at least 1 for votes that
    give one outcome all probability, where luck looks like certainty. Soft preferences are less noisy than draws from
    them, but a judge's probabilities have errors, so for them it is at least 0.5. In simulations (tests) the intervals
    then cover 95 % or more; without these limits they covered 76 % for judges with noise of 1 in the log odds.
    """
    if not len(own):
        return 1.0
    _, q1, q2 = odds.T
    softness = float((q1 + q2 - (q1 - q2) ** 2).sum()) / 4 / float(weight.sum())
    ordered = np.sort(own[:, :2], axis=1)
    pairs, index = np.unique(ordered, axis=0, return_inverse=True)
    index = index.ravel()
    pulls = np.bincount(index, np.where(own[:, 0] == ordered[:, 0], pull, -pull))
    weights = np.bincount(index, weight)
    # A pair's vote pulls the fit towards itself; this is the information that remains independent of the fit.
    free = weights * np.clip(1 - weights * find_variance(covariance, *pairs.T), 0, 1)
    steady = 4 * float(weights.mean())
    estimate = (steady + float((pulls**2).sum())) / (steady + float(free.sum()))
    return max(estimate, 1 - softness, SOFTEST)
