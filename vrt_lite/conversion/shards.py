"""Safetensors shards: their table of tensors, and reading rows of a tensor.

A shard comes from a download and is not trusted: sizes are limited before anything is read.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError

MAX_HEADER_BYTES = 16 << 20  # a 7B's largest shard header has under 100 kB
# NumPy has no bfloat16: those are read as the 16-bit words they are, see `widen`.
WORDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a shard; `offset` counts bytes from the file's start."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Read the words of some rows into memory. A memory map would count as resident, and keep the file open."""
        width, kind = math.prod(self.shape[1:]), WORDS[self.dtype]
        offset = self.offset + start * width * kind.itemsize
        words = np.fromfile(self.path, kind, (stop - start) * width, offset=offset)
        if words.size != (stop - start) * width:
            raise ModelError(f"{self.path} became shorter while it was read: download again")
        return words.reshape(stop - start, *self.shape[1:])

    def values(self, part: tuple[slice | int, ...], rows: slice) -> np.ndarray:
        """Return some rows of a part of the tensor as float32; `part` is a NumPy index that begins with a range."""
        first, *rest = part or (slice(None),)
        assert isinstance(first, slice)
        begin, end, _ = first.indices(self.shape[0])
        stop = end if rows.stop is None else min(begin + rows.stop, end)
        return np.ascontiguousarray(widen(self.rows(begin + rows.start, stop)[:, *rest]))

    def moved_to(self, other: StoredTensor) -> StoredTensor:
        """Return the same tensor with its weights where `other` has them."""
        return replace(self, path=other.path, dtype=other.dtype, offset=other.offset)


def widen(words: np.ndarray) -> np.ndarray:
    """Convert stored words to float32, exactly: a bfloat16 is the upper half of a float32."""
    if words.dtype == WORDS["BF16"]:
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.astype(np.float32)


def canonical(name: str) -> str:
    """Return the published name: newer training code saves `model.language_model.…` and `model.visual.…`."""
    return name.replace("language_model.", "").replace("model.visual.", "visual.")


def read_shard(path: Path) -> dict[str, StoredTensor]:
    """Read a shard's table, sorted by name. Its data must be complete: no gap, no overlap, nothing past the end."""
    try:
        size = path.stat().st_size
        with open_to_read(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                allowed = max(0, min(size - 8, MAX_HEADER_BYTES))
                raise ModelError(f"{path}: header claims {length} bytes, {allowed} fit: download again")
            header: Any = json.loads(file.read(length))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: download the shard, or the whole checkpoint folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path}: header is no JSON object: download again")
    entries = sorted(cast("dict[str, Any]", header).items(), key=lambda entry: entry[0])
    table = {name: _entry(path, name, entry) for name, entry in entries if name != "__metadata__"}
    expected = 0
    for begin, end, name in sorted((begin, end, name) for name, (_, _, begin, end) in table.items()):
        if begin != expected:
            raise ModelError(f"{path}: {name} begins at byte {begin}, expected {expected}: download again")
        expected = end
    start = 8 + length
    if start + expected != size:
        raise ModelError(f"{path} has {size} bytes, its header describes {start + expected}: download again")
    return {n: StoredTensor(path, dtype, shape, start + begin) for n, (dtype, shape, begin, _) in table.items()}


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
            if dtype not in WORDS:
                raise ModelError(f"{path}: tensor {name} is {dtype!r:.20}, allowed are {', '.join(WORDS)}")
            sound = len(shape) <= 5 and all(type(n) is int and 0 < n < 2**40 for n in shape)
            if sound and begin >= 0 and end - begin == math.prod(shape) * WORDS[dtype].itemsize:
                return dtype, tuple(cast("list[int]", shape)), begin, end
        case _:
            pass
    raise ModelError(f"{path}: the header entry of {name:.80} is broken, {entry!r:.120}: download again")
