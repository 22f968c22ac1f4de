"""The files of a checkpoint: JSON objects, where each file of weights has its tensors, and rows of a tensor.

Three kinds of files are read: a safetensors shard, the pickle of `torch.save`, and a GGUF that is not quantised. They
come from a download and are not trusted: a pickle may call any function by name, and here it gets only ours.
"""

from __future__ import annotations

import json
import math
import pickle
import tomllib
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
from gguf import GGUFReader
from gguf.utility import SafetensorsLocal

from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError, VrtError
from vrt_lite.shortage import shortage_of

# NumPy has no bfloat16, which is the upper half of a float32.
WORDS: Final = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a file; `offset` counts bytes from the file's start."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read some rows as float32, or all. A memory map would count as resident, and keep the file open."""
        stop = self.shape[0] if stop is None else stop
        width, kind = math.prod(self.shape[1:]), WORDS[self.dtype]
        offset = self.offset + start * width * kind.itemsize
        words = np.fromfile(self.path, kind, (stop - start) * width, offset=offset)
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
        return np.float32(self.scale) * (self.b.rows(start, stop) @ self.a.rows())


@contextmanager
def reading(what: object) -> Generator[None]:
    """Turn whatever a file leads to that anyone may have written into a ModelError of one line; `what` names it."""
    try:
        yield
    except VrtError:
        raise
    except FileNotFoundError:
        raise ModelError(f"{what} is missing: copy or download it") from None
    except Exception as error:
        if short := shortage_of(error):
            raise short from error
        raise ModelError(f"{what} cannot be read: {error!r:.200}. Download or make it again") from error


@dataclass(frozen=True)
class JsonObject:
    """A JSON object, and where it stands, for messages."""

    where: str
    values: Mapping[str, Any]

    def section(self, key: str) -> JsonObject:
        """Return the object under `key`; empty if there is none."""
        return JsonObject(self.where, self.values.get(key) or {})

    def over(self, other: JsonObject) -> JsonObject:
        """Merge two objects; if both have a key, this object's value counts."""
        return JsonObject(self.where, {**other.values, **self.values})

    def integer(self, key: str, *, below: int = 2**31) -> int:
        """Return a count. Raises ModelError unless it is positive and bounded."""
        value = self.values.get(key)
        if type(value) is not int or not 0 < value < below:
            raise self.value_error(key, f"a whole number from 1 to {below - 1}")
        return value

    def require(self, **values: Any) -> None:
        """Raise ModelError unless each of these keys has this value or is missing."""
        for key, value in values.items():
            if self.values.get(key, value) != value:
                raise self.value_error(key, f"{value!r}; no other can be exported")

    def value_error(self, key: str, needs: str) -> ModelError:
        """Return the error for a value that is missing or cannot be used."""
        return ModelError(f"{self.where}: {key} is {self.values.get(key)!r:.60}, needs {needs}")


def read_json(path: Path) -> JsonObject:
    """Read a JSON object. Raises ModelError."""
    with reading(path), open_to_read(path) as file:
        return JsonObject(f"{path}", {**json.loads(file.read())})


@cache
def read_rules(name: str) -> dict[str, Any]:
    """Read a table of this package, NAME.toml."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


def canonical(name: str) -> str:
    """Return the published name of a tensor, without what newer training code and PEFT add to it."""
    for added in ("base_model.model.", "language_model.", ".base_layer", ".default"):
        name = name.replace(added, "")
    return name.replace("model.visual.", "visual.")


def read_weights(path: Path) -> dict[str, StoredTensor]:
    """Read where a file has its tensors, by published name.

    Raises ModelError for a file that is not whole, or has other types than F32, F16 and BF16.
    """
    with reading(path):
        with open_to_read(path) as file:
            read = {b"GGUF": _read_gguf, b"PK\3\4": _read_state}.get(file.read(4), _read_shard)
        found, size = read(path), path.stat().st_size
        table = {canonical(name): stored for name, stored in found.items()}
        if len(table) < len(found):
            raise ModelError(f"{path} has a tensor twice, under an old name and a new one")
        for name, stored in table.items():
            if stored.dtype not in WORDS:
                raise ModelError(f"{path}: {name:.80} is {stored.dtype:.20}, needs to be F32, F16 or BF16")
            if not 0 <= stored.offset <= size - math.prod(stored.shape) * WORDS[stored.dtype].itemsize:
                raise ModelError(f"{path} ends at byte {size}, before {name:.80} does: download again")
        return table


def _read_shard(path: Path) -> dict[str, StoredTensor]:
    found = SafetensorsLocal(path).tensors
    return {name: StoredTensor(path, t.dtype, t.shape, t.data_range.offset) for name, t in found.items()}


def _read_gguf(path: Path) -> dict[str, StoredTensor]:
    return {
        t.name: StoredTensor(path, t.tensor_type.name, tuple(map(int, reversed(t.shape))), int(t.data_offset))
        for t in GGUFReader(path).tensors
    }


def _keep_tensor(tensor: StoredTensor, *_: object) -> StoredTensor:
    return tensor


def _read_state(path: Path) -> dict[str, StoredTensor]:
    """Read the table of a state dict. Each storage is an entry of the zip archive that is not compressed."""
    with path.open("rb") as file, ZipFile(file) as archive:
        (described,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]

        def place(storage: Any, start: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> StoredTensor:
            """Return where a tensor's values are in the file; `start` and strides count values."""
            if strides != tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))):
                raise ValueError(f"a tensor has the shape {shape!r:.80} and the strides {strides!r:.80}")
            dtype, key = storage
            entry = archive.getinfo(described.replace("data.pkl", f"data/{key}"))
            if (start + math.prod(shape)) * WORDS[dtype].itemsize > entry.compress_size:
                raise ValueError(f"the entry {entry.filename!r:.80} does not hold the {shape} values of a tensor")
            with archive.open(entry):
                offset = file.tell()  # the header of the entry is read, and no more
            return StoredTensor(path, dtype, shape, offset + start * WORDS[dtype].itemsize)

        known: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": place,
            "torch._utils._rebuild_parameter": _keep_tensor,
            "torch.FloatStorage": "F32",
            "torch.HalfStorage": "F16",
            "torch.BFloat16Storage": "BF16",
        }

        class Unpickler(pickle.Unpickler):
            """Builds the table with these functions. Nothing that the pickle names is run."""

            def find_class(self, module: str, name: str) -> Any:
                if (full := f"{module}.{name}") not in known:
                    raise ValueError(f"it names {full!r:.60}, which no table of weights needs, and nothing was run")
                return known[full]

            def persistent_load(self, pid: Any) -> Any:
                """Return a storage: its type, and the name of its entry."""
                return pid[1:3]

        with archive.open(described) as pickled:
            return dict(sorted(Unpickler(pickled).load().items()))
