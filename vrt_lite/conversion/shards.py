"""The weights of a checkpoint: which tensors a safetensors shard has, and rows of a tensor.

A shard comes from a download and is not trusted: no more is read than its size allows.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError

MAX_HEADER_BYTES = 16 << 20  # a 7B's largest shard header has under 100 kB
# NumPy has no bfloat16, which is the upper half of a float32.
WORDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a file; `offset` counts bytes from the file's start."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Read some rows as float32. A memory map would count as resident, and keep the file open."""
        width, kind = math.prod(self.shape[1:]), WORDS[self.dtype]
        offset = self.offset + start * width * kind.itemsize
        words = np.fromfile(self.path, kind, (stop - start) * width, offset=offset)
        if words.size < (stop - start) * width:
            raise ModelError(f"{self.path} became shorter while it was read: download again")
        if self.dtype == "BF16":
            words = (words.astype(np.uint32) << 16).view(np.float32)
        return words.astype(np.float32, copy=False).reshape(stop - start, *self.shape[1:])


@dataclass(frozen=True)
class Correction:
    """What an adapter adds to a tensor: scale · B A."""

    a: StoredTensor
    b: StoredTensor
    scale: float

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Compute some rows."""
        return np.float32(self.scale) * (self.b.rows(start, stop) @ self.a.rows(0, self.a.shape[0]))


class _Entry(msgspec.Struct):
    """A tensor in a shard's header. `__metadata__`, an object of texts, has none of these keys."""

    dtype: Literal["F32", "F16", "BF16"] = "F32"
    shape: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=5)] = ()
    data_offsets: tuple[_Count, _Count] = (0, 0)


def canonical(name: str) -> str:
    """Return the published name: newer training code saves `model.language_model.…` and `model.visual.…`."""
    return name.replace("language_model.", "").replace("model.visual.", "visual.")


@contextmanager
def reading(what: object) -> Generator[None]:
    """Turn whatever a file leads to that anyone may have written into a ModelError of one line; `what` names it."""
    try:
        yield
    except ModelError:
        raise
    except FileNotFoundError:
        raise ModelError(f"{what} is missing: download the whole checkpoint folder") from None
    except Exception as error:
        raise ModelError(f"{what} cannot be read: {error!r:.200}. Download or make it again") from error


def read_shard(path: Path) -> dict[str, StoredTensor]:
    """Read which tensors a shard has. Raises ModelError for a shard that is not whole."""
    with reading(path), open_to_read(path) as file:
        size, length = path.stat().st_size, int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise ModelError(f"{path}: header claims {length} bytes: download again")
        header = msgspec.json.decode(file.read(length), type=dict[str, _Entry])
    header.pop("__metadata__", None)
    table: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        begin, end = entry.data_offsets
        needed = math.prod(entry.shape) * WORDS[entry.dtype].itemsize
        if not needed or end - begin != needed or 8 + length + end > size:
            raise ModelError(
                f"{path}: {name:.80} has bytes {begin} to {end} of {size}, which is broken: download again"
            )
        table[name] = StoredTensor(path, entry.dtype, entry.shape, 8 + length + begin)
    return table
