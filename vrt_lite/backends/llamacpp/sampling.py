"""Picks the next token from logits. Greedy, or drawn at a temperature; some tokens are never picked.

Pure arithmetic on arrays; knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vrt_lite.protocol.messages import Odds

_LONGEST_CYCLE = 64
_LEAST_SPAN = 96
_LEAST_REPEATS = 6


class Sampler:
    """Draws tokens; the same seed draws the same ones."""

    def __init__(self, *, temperature: float, seed: int, banned: Sequence[int]) -> None:
        self._temperature = temperature
        self._random = np.random.default_rng(seed)
        self._banned = np.asarray(banned, dtype=np.int64)

    def pick(self, logits: NDArray[np.float32]) -> int:
        """The next token."""
        logits[self._banned] = -np.inf
        if self._temperature <= 0:
            return int(np.argmax(logits))
        cumulative = np.cumsum(softmax(logits.astype(np.float64) / self._temperature))
        return int(np.searchsorted(cumulative, self._random.random() * float(cumulative[-1]), side="right"))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of logits."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def odds(logits: NDArray[np.float32], digits: Sequence[int]) -> Odds:
    """Probabilities of (tie, video 1, video 2) at a digit: those of the tokens "0", "1", "2", renormalised."""
    tie, one, two = softmax(logits[np.asarray(digits)].astype(np.float64)).tolist()
    return (tie, one, two)


def loops(tokens: Sequence[int]) -> bool:
    """Whether the tail only repeats itself: a cycle of at most 64 tokens, six times and 96 tokens or more."""
    for cycle in range(1, _LONGEST_CYCLE + 1):
        span = max(_LEAST_SPAN, _LEAST_REPEATS * cycle)
        if len(tokens) < span + cycle:
            continue
        if tokens[-span:] == tokens[-span - cycle : -cycle]:
            return True
    return False
