"""M-RoPE positions, as Qwen2.5-VL was trained with (transformers, `get_rope_index`).

Pure arithmetic on grids: text advances one position a token on all three axes; a video that starts at p has
t = p + step of its temporal patch, y = p + row, x = p + column over its merged grid (28 pixels a cell), and
what follows it starts at the largest of the three + 1. Knows no tokens and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def patch_positions(start: int, step: int, rows: int, columns: int) -> NDArray[np.int32]:
    """Positions of one temporal patch, shape (4, rows·columns): planes t, y, x and an unused zero."""
    y, x = np.divmod(np.arange(rows * columns, dtype=np.int32), np.int32(columns))
    return np.stack([np.full_like(y, start + step), start + y, start + x, np.zeros_like(y)])


def extent(steps: Sequence[int], rows: int, columns: int) -> int:
    """How many positions a video takes up: the next token starts at its start + this."""
    return max(*steps, rows - 1, columns - 1) + 1
