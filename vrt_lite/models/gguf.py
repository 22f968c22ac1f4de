"""Reads a GGUF's name, which says its quant, and its header: metadata and the place of each tensor, but no weight.

A GGUF may be split into parts, each a file: it is read as one.

The gguf package is not used here: it makes Python objects of a whole vocabulary and trusts every count.
"""

from __future__ import annotations

import itertools
import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError
from vrt_lite.shortage import shortage_of

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
HEAD: Final = "vrt_lite.head.weight"
"""The weights of the heads with which a judge scores a clip: one after the other, each as wide as the model."""
_ALIGNMENT: Final = 32
Value = str | int | float | bool
Header = dict[str, Value]
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(|\.gguf)", re.ASCII)
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
    if not found or not 1 <= int(found[2]) <= (count := int(found[3])):
        return (name,)
    return tuple(f"{found[1]}-{number:05}-of-{count:05}{found[4]}" for number in range(1, count + 1))


def whole_name(name: str) -> str:
    """The name of a GGUF without what says that the file is a part."""
    return _PART.sub(r"\1\4", name)


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
    return tuple(map(path.with_name, part_names(path.name)))


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
        with open_to_read(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = _Reader(data).read()
    except OSError as error:
        if short := shortage_of(error):
            raise short from error
        advice = f" The model is split into {len(parts)} files, and all are needed." if len(parts) > 1 else ""
        raise ModelError(f"{path} cannot be read: {error.strerror}.{advice}") from error
    except (ValueError, KeyError, OverflowError, struct.error) as error:
        why = "it ends inside its header" if isinstance(error, struct.error) else error
        raise ModelError(f"{path} is not a whole GGUF file: {why}. Copy, download or convert it again.") from error
    number, count = found.number("split.no"), max(found.number("split.count"), 1)
    if (number, count) != (parts.index(path), len(parts)):
        raise ModelError(
            f"{path} is part {number + 1} of {count} of a model, so its name must end with "
            f"-{number + 1:05}-of-{count:05}.gguf. Rename it, or download it again."
        )
    return found


class _Reader:
    """Reads a mapped file from its beginning."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def read(self) -> Gguf:
        if (magic := self._data[:4]) != b"GGUF":
            raise ValueError(f"it begins with {magic!r}, not b'GGUF'")
        self._at = 4
        version, count, entries = self._unpack("IQQ")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are readable")
        values: Header = {}
        lengths: dict[str, int] = {}
        head: tuple[float, ...] = ()
        for _ in range(entries):
            key, [kind] = self._text(), self._unpack("I")
            if kind == _STRING:
                values[key] = self._text()
            elif kind != _ARRAY:
                [values[key]] = self._unpack(_SCALARS[kind])
            else:
                item, lengths[key] = self._unpack("IQ")
                items = self._items(item, lengths[key], kept=key == HEAD)
                head = items or head
        listed = [(self._text(), *self._place()) for _ in range(count)]
        start = -(-self._at // _ALIGNMENT) * _ALIGNMENT
        # A tensor ends where the next begins: no table of types is needed.
        ends = sorted({offset for *_, offset in listed} | {len(self._data) - start})
        after = dict(itertools.pairwise(ends))
        if any(offset not in after for *_, offset in listed):
            raise ValueError(f"it ends at byte {len(self._data)}, before its last tensor begins")
        tensors = (Tensor(name, shape, kind, after[offset] - offset) for name, shape, kind, offset in listed)
        return Gguf(values, lengths, tuple(tensors), head)

    def _items(self, kind: int, count: int, *, kept: bool) -> tuple[float, ...]:
        """Read the items of an array, or pass over them."""
        if kept:
            return self._unpack(f"{count}f")
        if kind != _STRING:
            self._at += count * struct.calcsize(_SCALARS[kind])
        else:
            for _ in range(count):
                self._text()
        return ()

    def _place(self) -> tuple[tuple[int, ...], int, int]:
        """Read a tensor's dimensions, its type, and its offset."""
        [dimensions] = self._unpack("I")
        if not dimensions:
            raise ValueError("a tensor has no dimensions")
        *shape, kind, offset = self._unpack(f"{dimensions}QIQ")
        return tuple(shape), kind, offset

    def _text(self) -> str:
        [size] = self._unpack("Q")
        self._at += size
        return self._data[self._at - size : self._at].decode(errors="replace")

    def _unpack(self, codes: str) -> tuple[int, ...]:
        """Read little-endian numbers. Raises struct.error at the end of the file."""
        found = struct.unpack_from(f"<{codes}", self._data, self._at)
        self._at += struct.calcsize(f"<{codes}")
        return found
