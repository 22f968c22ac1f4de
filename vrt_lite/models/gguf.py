"""GGUF's header: metadata, and where each tensor lies; bounded by the file's own size.

The gguf package is not used here: it builds Python objects of a whole vocabulary and trusts every count. Refuses to
know what the values mean, and never reads a weight.
"""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from vrt_lite.errors import ModelError

_MOST_ENTRIES: Final = 2_000_000
_LONGEST_STRING: Final = 2**26
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
Value = str | int | float | bool
Header = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its dimensions, fastest first; `kind` is ggml's number of its type; `size` in bytes, as stored."""

    name: str
    dimensions: tuple[int, ...]
    kind: int
    size: int


@dataclass(frozen=True, slots=True)
class Gguf:
    """A file's metadata, arrays left out, the lengths of its arrays, and its tensors in the file's order."""

    values: Header
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]

    def number(self, key: str) -> int:
        """A whole number of the metadata; 0 if it is not there."""
        value = self.values.get(key)
        return value if isinstance(value, int) else 0


def read_header(path: Path) -> Header:
    """A GGUF's scalar and string metadata; ModelError if the file is no whole GGUF. Arrays are passed over."""
    return read_gguf(path).values


def read_gguf(path: Path) -> Gguf:
    """All of a GGUF's header; ModelError if the file is no whole GGUF."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path).read()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not a whole GGUF file: {error}. Copy, download or convert it again.") from error


class _Reader:
    """A bounded reader: no count or length in the file is believed beyond the file's own size."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._size = path.stat().st_size
        self._lengths: dict[str, int] = {}

    def read(self) -> Gguf:
        if (magic := self._bytes(4)) != b"GGUF":
            raise ValueError(f"it begins with {magic!r}, not b'GGUF'")
        if (version := self._scalar("I")) not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are readable")
        count, entries = self._count(), self._count()
        values: Header = {}
        for _ in range(entries):
            key = self._string()
            value = self._value(self._scalar("I"), key)
            if value is not None:
                values[key] = value
        found = [self._tensor() for _ in range(count)]
        alignment = values.get("general.alignment", 32)
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        start = -(-self._file.tell() // step) * step
        furthest = max((offset for *_, offset in found), default=0)
        if start + furthest >= self._size:
            raise ValueError(f"it ends at byte {self._size}, before its last tensor begins at {start + furthest}")
        # A tensor ends where the next begins: no table of types is needed.
        ends = sorted({offset for *_, offset in found} | {self._size - start})
        after = dict(itertools.pairwise(ends))
        tensors = (Tensor(name, shape, kind, after[offset] - offset) for name, shape, kind, offset in found)
        return Gguf(values, self._lengths, tuple(tensors))

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._scalar("I")
        if dimensions > 4:
            raise ValueError(f"a tensor has {dimensions} dimensions")
        shape = tuple(self._scalar("Q") for _ in range(dimensions))
        if math.prod(shape) > 2**50:
            raise ValueError(f"a tensor has the dimensions {shape}")
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _value(self, kind: int, key: str) -> Value | None:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise ValueError(f"a metadata value has the unknown type {kind}")
        item, count = self._scalar("I"), self._count(_LONGEST_STRING)
        self._lengths[key] = count
        if item == _STRING:
            for _ in range(count):
                self._bytes(self._scalar("Q"))
        elif item in _SCALARS:
            self._bytes(count * struct.calcsize(_SCALARS[item]))
        else:
            raise ValueError(f"a metadata array has the unknown type {item}")
        return None

    def _count(self, most: int = _MOST_ENTRIES) -> int:
        count = self._scalar("Q")
        if count > min(most, self._size):
            raise ValueError(f"it claims {count} entries in {self._size} bytes")
        return count

    def _string(self) -> str:
        return self._bytes(self._scalar("Q")).decode(errors="replace")

    def _scalar(self, code: str) -> int:
        return struct.unpack(f"<{code}", self._bytes(struct.calcsize(f"<{code}")))[0]

    def _bytes(self, count: int) -> bytes:
        if count > _LONGEST_STRING or count > self._size - self._file.tell():
            raise ValueError(f"it ends at byte {self._size}, inside its header")
        return self._file.read(count)
