"""Reads a GGUF's name, which says its quant, and its header: metadata and the place of each tensor, but no weight.

A GGUF may be split into parts, each a file: it is read as one.

The gguf package is not used here: it makes Python objects of a whole vocabulary and trusts every count.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError

_MOST_ENTRIES, _MOST_ITEMS, _LONGEST_TEXT = 2**16, 2**20, 2**26
"""The most keys or tensors of a file, items of an array, and bytes of a text."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT, _STRING, _ARRAY = 6, 8, 9
HEAD: Final = "vrt_lite.head.weight"
"""The weights of the heads with which a judge scores a clip: one after the other, each as wide as the model."""
_ALIGNMENT: Final = 32
Value = str | int | float | bool
Header = dict[str, Value]
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)?", re.ASCII)
_MOST_PARTS: Final = 999
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?I?Q\d(?:_[0-9A-Z]+)*|BF16|FP?16|FP?32|MXFP4(?:_MOE)?)(?=[-._]|$)", re.IGNORECASE
)
_PROJECTORS = ("F16", "Q8_0", "BF16", "F32", "Q6_K", "Q5_K", "Q4_K")
"""The types of a projector, the one that is taken first; from the fifth on they make a measurable difference."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its dimensions, fastest first; `kind` is ggml's number of its type; `size` in bytes, as stored."""

    name: str
    dimensions: tuple[int, ...]
    kind: int
    size: int


@dataclass(frozen=True, slots=True)
class Gguf:
    """A file's metadata without arrays, the lengths of its arrays, and its tensors in the file's order."""

    values: Header
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]
    head: tuple[float, ...] = ()
    """The items of the array HEAD."""

    def number(self, key: str) -> int:
        """A whole number of the metadata; 0 if it is not there."""
        value = self.values.get(key)
        return value if isinstance(value, int) else 0


def part_names(name: str) -> tuple[str, ...]:
    """The names of all parts of a split GGUF, in order, from the name of any of them; another name alone.

    They are NAME-00001-of-00003.gguf and so on, as llama.cpp requires (llama_split_path).
    """
    found = _PART.fullmatch(name)
    count = int(found[3]) if found else 0
    if not found or not 1 <= int(found[2]) <= count <= _MOST_PARTS:
        return (name,)
    return tuple(f"{found[1]}-{number:05}-of-{count:05}{found[4] or ''}" for number in range(1, count + 1))


def whole_name(name: str) -> str:
    """The name of a GGUF without what says that the file is a part."""
    found = _PART.fullmatch(name)
    return found[1] + (found[4] or "") if found else name


def normalise_quant(quant: str) -> str:
    """A quant's name in capitals, F16 for FP16."""
    return quant.upper().replace("FP", "F")


def quant_of(name: str) -> str:
    """The quant at the end of a GGUF's file name, in capitals; "" if there is none."""
    quants = _QUANT.findall(whole_name(name).removesuffix(".gguf"))
    return normalise_quant(quants[-1]) if quants else ""


def without_quant(name: str) -> str:
    """A GGUF's file name without its quant: files of one model in several types have it in common."""
    return _QUANT.sub("", whole_name(name)).lower()


def projector_rank(name: str) -> int:
    """The place of a projector among those of its model in other types, by its name: the first is taken."""
    quant = quant_of(name)
    return _PROJECTORS.index(quant) if quant in _PROJECTORS else len(_PROJECTORS)


def loses_detail(projector: Path) -> bool:
    """Whether a projector's type, by its name, makes a measurable difference to what the judge sees."""
    return quant_of(projector.name) in _PROJECTORS[4:]


def parts_of(path: Path) -> tuple[Path, ...]:
    """The files of a GGUF in order, whether they exist or not: all parts if this is one of them, else the path."""
    names = part_names(path.name)
    return tuple(map(path.with_name, names)) if len(names) > 1 else (path,)


def list_pair(folder: Path) -> tuple[list[Path], list[Path]]:
    """The GGUF files of a folder that may be text models, and its projectors, by their names; no file is read.

    Of a split file it is the first part, whether that exists or not.
    """
    found = sorted({parts_of(path)[0] for path in folder.glob("*.gguf")})
    projectors = [path for path in found if "mmproj" in path.name]
    return [path for path in found if path not in projectors and "imatrix" not in path.name], projectors


def gguf_bytes(path: Path) -> int:
    """The size of a GGUF, all parts counted. Raises OSError."""
    return sum(part.stat().st_size for part in parts_of(path))


def read_header(path: Path) -> Header:
    """A GGUF's metadata without arrays; ModelError if the file is no whole GGUF."""
    return read_gguf(path).values


def read_gguf(path: Path) -> Gguf:
    """All of a GGUF's header, with the tensors of all its parts; ModelError if a part is missing or not whole."""
    parts = parts_of(path)
    found = [_read_file(part, parts) for part in parts]
    first, tensors = found[0], tuple(tensor for part in found for tensor in part.tensors)
    if len(parts) > 1 and len(tensors) != (expected := first.number("split.tensors.count")):
        raise ModelError(
            f"The {len(parts)} parts of {parts[0]} hold {len(tensors)} tensors, not {expected}: they are not of one "
            "model. Copy or download them again."
        )
    return replace(first, tensors=tensors)


def _read_file(path: Path, parts: Sequence[Path]) -> Gguf:
    """The header of one file; ModelError if it is not whole, or not the part that its name says."""
    try:
        with open_to_read(path) as file:
            found = _Reader(file, path.stat().st_size).read()
    except OSError as error:
        advice = f" The model is split into {len(parts)} files, and all are needed." if len(parts) > 1 else ""
        raise ModelError(f"{path} cannot be read: {error.strerror}.{advice}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not a whole GGUF file: {error}. Copy, download or convert it again.") from error
    number, count = found.number("split.no"), max(found.number("split.count"), 1)
    if (number, count) != (parts.index(path), len(parts)):
        raise ModelError(
            f"{path} is part {number + 1} of {count} of a model, so its name must end with "
            f"-{number + 1:05}-of-{count:05}.gguf. Rename it, or download it again."
        )
    return found


class _Reader:
    """A reader that refuses counts and lengths beyond the file's size."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def read(self) -> Gguf:
        if (magic := self._bytes(4)) != b"GGUF":
            raise ValueError(f"it begins with {magic!r}, not b'GGUF'")
        if (version := self._scalar("I")) not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are readable")
        count, entries = self._count(_MOST_ENTRIES), self._count(_MOST_ENTRIES)
        values: Header = {}
        lengths: dict[str, int] = {}
        head: tuple[float, ...] = ()
        for _ in range(entries):
            key, kind = self._text(), self._scalar("I")
            if kind == _ARRAY:
                lengths[key], items = self._read_array()
                head = items if key == HEAD else head
            else:
                values[key] = self._value(kind)
        listed = [self._tensor() for _ in range(count)]
        start = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
        # A tensor ends where the next begins: no table of types is needed.
        ends = sorted({offset for *_, offset in listed} | {self._size - start})
        after = dict(itertools.pairwise(ends))
        if any(offset not in after for *_, offset in listed):
            raise ValueError(f"it ends at byte {self._size}, before its last tensor begins")
        tensors = (Tensor(name, shape, kind, after[offset] - offset) for name, shape, kind, offset in listed)
        return Gguf(values, lengths, tuple(tensors), head)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._text(), self._scalar("I")
        if not 1 <= dimensions <= 4:
            raise ValueError(f"a tensor has {dimensions} dimensions")
        shape = tuple(self._scalar("Q") for _ in range(dimensions))
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._text()
        if kind not in _SCALARS:
            raise ValueError(f"a metadata value has the unknown type {kind}")
        return self._scalar(_SCALARS[kind])

    def _read_array(self) -> tuple[int, tuple[float, ...]]:
        """Pass over the items of an array; returns how many there are, and those of type float32."""
        item, count = self._scalar("I"), self._count(_MOST_ITEMS)
        if item == _FLOAT:
            return count, struct.unpack(f"<{count}f", self._bytes(4 * count))
        for _ in range(count):
            self._value(item)
        return count, ()

    def _count(self, most: int) -> int:
        if (count := self._scalar("Q")) > min(most, self._size):
            raise ValueError(f"it claims {count} entries in {self._size} bytes")
        return count

    def _text(self) -> str:
        return self._bytes(self._scalar("Q")).decode(errors="replace")

    def _scalar(self, code: str) -> int:
        return struct.unpack(f"<{code}", self._bytes(struct.calcsize(f"<{code}")))[0]

    def _bytes(self, count: int) -> bytes:
        data = self._file.read(min(count, _LONGEST_TEXT))
        if len(data) < count:
            raise ValueError(f"it ends at byte {self._size}, inside its header")
        return data
