"""Reads a GGUF's name, which says its quant, and its header: metadata and the place of each tensor, but no weight.

A GGUF may be split into parts, each a file: it is read as one.

The gguf package is not used here: it makes Python objects of a whole vocabulary and trusts every count.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError
from vrt_lite.shortage import shortage_of

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT, _STRING, _ARRAY = 6, 8, 9
_LENGTH = struct.Struct("<Q")  # of a text: a vocabulary has some hundred thousand
HEAD: Final = "vrt_lite.head.weight"
"""The weights of the heads with which a judge scores a clip: one after the other, each as wide as the model."""
_ALIGNMENT: Final = 32
Header = dict[str, str | int | float | bool | tuple[float, ...]]
"""Metadata by key. An array of 32-bit floats is there with its items, any other with its length."""
_PART = re.compile(r"-\d{5}-of-(\d{5})(?=(?:\.gguf)?$)", re.ASCII)
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
    """A file's metadata, and its tensors in the file's order."""

    values: Header
    tensors: tuple[Tensor, ...]

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    def number(self, key: str) -> int:
        """A whole number of the metadata, or the length of an array; 0 if it is not there."""
        value = self.values.get(key)
        return value if isinstance(value, int) else 0


def normalise_quant(quant: str) -> str:
    """A quant's name in capitals, F16 for FP16."""
    return quant.upper().replace("FP", "F")


def part_names(name: str) -> tuple[str, ...]:
    """The names of all parts of a split GGUF, in order, by the name of any of them; another name alone.

    They are NAME-00001-of-00003.gguf and so on, as llama.cpp requires (llama_split_path).
    """
    found = _PART.search(name)
    count = int(found[1]) if found else 0
    return tuple(_PART.sub(f"-{number:05}-of-{count:05}", name) for number in range(1, count + 1)) or (name,)


def parts_of(path: Path) -> list[Path]:
    """The files of a GGUF in order, whether they exist or not: all parts if this is one of them, else the path."""
    return [path.with_name(name) for name in part_names(path.name)]


def whole_name(name: str) -> str:
    """The name of a GGUF without what says that the file is a part."""
    return _PART.sub("", name)


def gguf_bytes(path: Path) -> int:
    """The size of a GGUF, all parts counted. Raises OSError."""
    return sum(part.stat().st_size for part in parts_of(path))


def gguf_sha256(path: Path, digest: Callable[[Path], str]) -> str:
    """The sha256 of a GGUF; of a split one, that of its parts' sha256 in hexadecimal, one after another.

    `digest` gives a file's sha256.
    """
    digests = list(map(digest, parts_of(path)))
    return hashlib.sha256("".join(digests).encode()).hexdigest() if digests[1:] else digests[0]


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
    return (*_PROJECTORS, quant).index(quant)  # an unknown one is the last


def loses_detail(projector: Path) -> bool:
    """Whether a projector's type, by its name, makes a measurable difference to what the judge sees."""
    return quant_of(projector.name) in _PROJECTORS[4:]


def list_pair(folder: Path) -> tuple[list[Path], list[Path]]:
    """The GGUF files of a folder that may be text models, and its projectors, by their names; no file is read.

    Of a split file it is the first part, whether that exists or not.
    """
    found = sorted({parts_of(path)[0] for path in folder.glob("*.gguf")})
    projectors = [path for path in found if "mmproj" in path.name]
    return [path for path in found if path not in projectors and "imatrix" not in path.name], projectors


def read_gguf(path: Path) -> Gguf:
    """A GGUF's header, with the tensors of all its parts; ModelError if a part is missing or not whole."""
    parts = parts_of(path)
    first, *others = found = list(map(_read_part, parts))
    tensors = sum((other.tensors for other in others), first.tensors)
    numbers = [(part.number("split.no"), part.number("split.count") or 1) for part in found]
    fits = not others or len(tensors) == first.number("split.tensors.count")
    if not fits or numbers != [(number, len(parts)) for number in range(len(parts))]:
        raise ModelError(
            f"{parts[0]}: what is in the file and its name do not agree on the parts of the model, or they are of "
            "several models. Rename the files, or copy or download them again."
        )
    return replace(first, tensors=tensors)


def _read_part(path: Path) -> Gguf:
    """The header of one file; ModelError if it is not whole."""
    try:
        with open_to_read(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_header(data)
    except OSError as error:
        count = len(parts_of(path))
        advice = f" The model is split into {count} files, and all are needed." if count > 1 else ""
        raise shortage_of(error) or ModelError(f"{path} cannot be read: {error.strerror}.{advice}") from error
    except (ValueError, KeyError, OverflowError, struct.error) as error:
        why = error if isinstance(error, ValueError) else "its header is damaged, or it ends early"
        raise ModelError(f"{path} is not a whole GGUF file: {why}. Copy, download or convert it again.") from error


def _read_header(data: mmap.mmap) -> Gguf:
    """Read a mapped file from its beginning. Raises ValueError, KeyError or struct.error for one that is damaged."""

    def unpack(codes: str) -> tuple[int, ...]:
        """Read little-endian numbers. Raises struct.error at the end of the file."""
        return struct.unpack(f"<{codes}", data.read(struct.calcsize(f"<{codes}")))

    def read_text() -> str:
        return data.read(*_LENGTH.unpack(data.read(8))).decode(errors="replace")

    def read_value(kind: int) -> str | int | float | tuple[float, ...]:
        if kind == _STRING:
            return read_text()
        if kind != _ARRAY:
            return unpack(_SCALARS[kind])[0]
        item, count = unpack("IQ")
        if item == _FLOAT:
            return unpack(f"{count}f")
        if item == _STRING:
            for _ in range(count):
                read_text()
        else:
            data.seek(count * struct.calcsize(_SCALARS[item]), os.SEEK_CUR)
        return count

    def read_dimensions() -> tuple[int, ...]:
        [count] = unpack("I")
        if not count:
            raise ValueError("a tensor has no dimensions")
        return unpack(f"{count}Q")

    if (magic := data.read(4)) != b"GGUF":
        raise ValueError(f"it begins with {magic!r}, not b'GGUF'")
    version, count, entries = unpack("IQQ")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}; 2 and 3 are readable")
    values = {read_text(): read_value(*unpack("I")) for _ in range(entries)}
    listed = [(read_text(), read_dimensions(), unpack("IQ")) for _ in range(count)]
    start = -(-data.tell() // _ALIGNMENT) * _ALIGNMENT
    # A tensor ends where the next begins: no table of types is needed.
    ends = sorted({offset for _, _, (_, offset) in listed} | {len(data) - start})
    after = dict(itertools.pairwise(ends))
    tensors = (Tensor(name, shape, kind, after[offset] - offset) for name, shape, (kind, offset) in listed)
    return Gguf(values, tuple(tensors))
