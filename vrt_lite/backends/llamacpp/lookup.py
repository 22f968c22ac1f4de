"""Guesses known text: what has followed the same few tokens at least twice, digits aside.

A reply is prose between fixed text: tags, the answer's keys, the tool call's JSON. A guess costs one batch whatever
comes of it, and the model's own choice decides, so no guess changes a token. After A. Saxena, "Prompt Lookup Decoding"
(2023), with two things changed, since prose repeats itself just enough to mislead: one witness is not believed, and a
digit is a slot, never guessed, and alike in what stands before. Pure; knows no engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_KEY = 4
_WITNESSES = 2
_MOST_KEYS = 2**16
_SLOT = -1
"""Stands for any digit in what was read; no token has this id."""


class Lookup:
    """What has followed what. `digits` are the ids of the tokens 0 to 9."""

    def __init__(self, digits: Iterable[int]) -> None:
        self._digits = frozenset(digits)
        self._following: dict[tuple[int, ...], int] = {}
        self._times: Counter[tuple[int, ...]] = Counter()
        self._last: tuple[int, ...] = ()

    def learn(self, tokens: Iterable[int], *, times: int = 1) -> None:
        """Read a text that stands by itself."""
        for _ in range(times):
            self._last = ()
            for token in tokens:
                self.add(token)
        self._last = ()

    def add(self, token: int) -> None:
        """The text goes on with `token`."""
        seen = _SLOT if token in self._digits else token
        if len(self._last) == _KEY:
            if self._following.get(self._last) != seen:
                if len(self._following) >= _MOST_KEYS:
                    self._following.clear()
                    self._times.clear()
                self._following[self._last] = seen
                self._times[self._last] = 0
            self._times[self._last] += 1
        self._last = (*self._last, seen)[-_KEY:]

    def guess(self, most: int) -> list[int]:
        """At most `most` tokens, up to the next that is not sure."""
        found: list[int] = []
        key = self._last
        while len(found) < most and self._times[key] >= _WITNESSES and self._following[key] != _SLOT:
            found.append(self._following[key])
            key = (*key, found[-1])[-_KEY:]
        return found
