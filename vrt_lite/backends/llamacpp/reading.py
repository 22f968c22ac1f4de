"""What a model made of a conversation, stage by stage: a value to compare two implementations by.

The engine and the reference each give one. Knows no engine, and refuses to know what a good distance is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME = -1
"""Stands in `Reading.tokens` for one token of a frame."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A conversation as read, up to where the judge's next turn begins.

    `tokens` (n,) are ids, `FRAME` for a frame's; `positions` (3, n) the planes t, y, x; `embeddings` (frame
    tokens, width) what the vision tower gave, in the order shown; `logits` (text tokens, vocabulary) what
    follows each token of text.
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    logits: NDArray[np.float32]
