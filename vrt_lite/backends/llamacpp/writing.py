"""Writes a reply token by token, known text several tokens at a time.

Each token is the sampler's own choice from the model's logits; a guess only has them at hand sooner. Knows the
cache and the sampler; refuses to know text, tags and when to stop.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.held import Held
from vrt_lite.backends.llamacpp.lookup import Lookup
from vrt_lite.backends.llamacpp.sampling import Sampler

MOST_GUESSED = 6
"""Tokens guessed at once. On a CPU seven tokens take as long as 3.5 single ones; with eight the engine changes to a
kernel for K-quants that takes twice as long."""


def written(
    held: Held, sampler: Sampler, lookup: Lookup, *, guesses: int = MOST_GUESSED
) -> Generator[tuple[int, NDArray[np.float32]]]:
    """Tokens without end, each with the logits (vocabulary,) it was picked from; at most `guesses` guessed at once.

    When the reader stops, the cache holds what was written before the last token it took.
    """
    rows = [held.context.logits()]
    guessed: list[int] = []
    try:
        while True:
            logits = rows.pop(0)
            token = sampler.pick(logits)
            yield token, logits
            lookup.add(token)
            if guessed and guessed[0] == token:
                guessed.pop(0)
                continue
            held.cut(len(held.items) - len(guessed))
            guessed = lookup.guess(min(guesses, held.room - 1))
            rows = held.write([token, *guessed])
    finally:
        held.cut(len(held.items) - len(guessed))
