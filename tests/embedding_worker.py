"""A process that reads, writes and evicts in a shared folder of embeddings. Light, because many are started."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrt_lite.embeddings import EmbeddingCache

KEYS = 80
SHARED_BYTES = 4_000_000  # all keys together have 4.5 MB


def same(a: NDArray[np.float32] | None, b: NDArray[np.float32]) -> bool:
    return a is not None and a.dtype == np.float32 and a.shape == b.shape and a.tobytes() == b.tobytes()


def expected(key: int) -> NDArray[np.float32]:
    return np.random.default_rng(key).standard_normal((16 + key, 256), dtype=np.float32)


def work(folder: Path, seed: int, stop: Path, began: Any, found: Any) -> None:
    """Go on until `stop` is there; leaves with status 3 if something wrong was read, counts what was right."""
    chance = random.Random(seed)
    arrays = [expected(key) for key in range(KEYS)]
    began.set()
    while not stop.exists():  # not an Event: who is killed while asking one keeps its lock
        cache = EmbeddingCache(folder, most_bytes=SHARED_BYTES)
        for key in chance.sample(range(KEYS), 20):
            array = cache.get(f"{key}")
            if array is None:
                cache.put(f"{key}", arrays[key])
            elif same(array, arrays[key]):
                found.value += 1
            else:
                sys.exit(3)
