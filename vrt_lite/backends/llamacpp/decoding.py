"""Chooses the tokens of a reply, and guesses them, so that several can be evaluated at once.

The sampler picks each token from the model's logits, greedily or drawn at a temperature. Prompt lookup guesses the next
tokens from what has followed the same few tokens before: a reply is prose between fixed text (tags, the answer's keys,
the tool call's JSON). A guess costs one batch, right or wrong, and only makes logits available sooner. The sampler
chooses every token, so no guess changes one. After A. Saxena, "Prompt Lookup Decoding" (2023), with two changes,
because prose repeats itself just enough to mislead. Tokens must have followed twice. Digits are never guessed, and all
digits count as the same token in the text before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.kv_cache import MOST_WRITTEN
from vrt_lite.errors import ModelError
from vrt_lite.protocol.messages import Odds

MOST_GUESSED = MOST_WRITTEN - 1
"""Tokens guessed at once."""
_KEY_TOKENS = 4
_MIN_TIMES = 2
_MOST_KEYS = 2**16
_DIGIT = -1
"""Replaces every digit in the text that was read; no token has this id."""
_LONGEST_CYCLE = 64
_LEAST_SPAN = 96
_LEAST_REPEATS = 6


class PromptLookup:
    """Which token has followed which tokens. `digits` are the ids of the tokens 0 to 9."""

    def __init__(self, digits: Iterable[int]) -> None:
        self._digits = frozenset(digits)
        self._following: dict[tuple[int, ...], int] = {}
        self._times: Counter[tuple[int, ...]] = Counter()
        self._last: tuple[int, ...] = ()

    def learn(self, tokens: Iterable[int], *, times: int = 1) -> None:
        """Learn from a separate text, as if it was read `times` times."""
        for _ in range(times):
            self._last = ()
            for token in tokens:
                self.add(token)
        self._last = ()

    def add(self, token: int) -> None:
        """Continue the text with `token`."""
        item = _DIGIT if token in self._digits else token
        if len(self._last) == _KEY_TOKENS:
            if self._following.get(self._last) != item:
                if len(self._following) >= _MOST_KEYS:
                    self._following.clear()
                    self._times.clear()
                self._following[self._last] = item
                self._times[self._last] = 0
            self._times[self._last] += 1
        self._last = (*self._last, item)[-_KEY_TOKENS:]

    def guess(self, most: int) -> list[int]:
        """At most `most` tokens, up to the first that is not certain."""
        guessed: list[int] = []
        key = self._last
        while len(guessed) < most and self._times[key] >= _MIN_TIMES and self._following[key] != _DIGIT:
            guessed.append(self._following[key])
            key = (*key, guessed[-1])[-_KEY_TOKENS:]
        return guessed


class Sampler:
    """Draws tokens; the same seed draws the same ones."""

    def __init__(self, *, temperature: float, seed: int, banned: Sequence[int]) -> None:
        self._temperature = temperature
        self._random = np.random.default_rng(seed) if temperature > 0 else None  # its import takes 10 ms
        self._banned = np.asarray(banned, dtype=np.int64)

    def pick(self, logits: NDArray[np.float32]) -> int:
        """The next token. ModelError if the model gives no numbers, which is the file's fault."""
        logits[self._banned] = -np.inf
        if np.isnan(logits[likeliest := int(np.argmax(logits))]):  # argmax finds a NaN first
            raise ModelError("The model computes what is no number: its files are damaged. Pull or convert them again.")
        if self._random is None:
            return likeliest
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


def odds_of_opening(logits: NDArray[np.float32], winner: int, tie: int) -> Odds:
    """Probabilities at the word with which an answer begins: which video would win is not known there."""
    share, rest = softmax(logits[[tie, winner]].astype(np.float64)).tolist()
    return (share, rest / 2, rest / 2)


def loops(tokens: Sequence[int]) -> bool:
    """Whether the end only repeats a cycle of at most 64 tokens: at least six times, and for at least 96 tokens."""
    for cycle in range(1, _LONGEST_CYCLE + 1):
        span = max(_LEAST_SPAN, _LEAST_REPEATS * cycle)
        if len(tokens) < span + cycle:
            continue
        if tokens[-span:] == tokens[-span - cycle : -cycle]:
            return True
    return False
