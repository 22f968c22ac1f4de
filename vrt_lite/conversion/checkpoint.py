"""A local Qwen2.5-VL checkpoint folder, as checked plain values.

config.json is read in its two layouts (transformers 4: language keys beside `vision_config`; transformers 5:
`text_config` and `rope_parameters`), with the safetensors shards and their index. Everything in the folder comes from a
download and is not trusted: sizes are limited before anything is read, and every error is a ModelError of one line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from vrt_lite.errors import ModelError

MAX_TEXT_BYTES = 64 << 20  # a published tokenizer.json has 11 MB
MAX_HEADER_BYTES = 16 << 20  # a 7B's largest shard header has under 100 kB
INDEX = "model.safetensors.index.json"
# NumPy has no bfloat16: those are read as the 16-bit words they are, see `widen`.
WORDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True)
class Section:
    """A JSON object, and where it stands, for messages. Getters raise ModelError for a value that cannot be used."""

    where: str
    values: Mapping[str, Any]

    def section(self, key: str) -> Section:
        """Return the object under `key`; empty if there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.value_error(key, "an object")
        return Section(self.where, value or {})

    def over(self, other: Section) -> Section:
        """Merge two objects; if both have a key, this object's value counts."""
        return Section(self.where, {**other.values, **self.values})

    def integer(self, key: str, *, below: int = 2**31) -> int:
        """Return a count: positive and bounded."""
        value = self.values.get(key)
        if type(value) is not int or not 0 < value < below:
            raise self.value_error(key, f"a whole number from 1 to {below - 1}")
        return value

    def real(self, key: str) -> float:
        """Return a positive finite number."""
        value = self.values.get(key)
        if type(value) not in (int, float) or not 0 < cast("float", value) < 2**31:
            raise self.value_error(key, "a positive number")
        return float(cast("float", value))

    def require(self, **values: Any) -> None:
        """Raise ModelError unless each of these keys has this value or is missing."""
        for key, value in values.items():
            if self.values.get(key, value) != value:
                raise self.value_error(key, f"{value!r}; no other can be exported")

    def value_error(self, key: str, needs: str) -> ModelError:
        """Return the error for a value that is missing or cannot be used."""
        return ModelError(f"{self.where}: {key} is {self.values.get(key)!r:.60}, needs {needs}")


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a shard; `offset` counts bytes from the file's start."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def words(self) -> np.ndarray:
        """Return the raw words, memory-mapped. Do not keep them: pages that were read count as resident memory."""
        return np.memmap(self.path, WORDS[self.dtype], "r", self.offset, self.shape)

    def values(self, part: tuple[slice | int, ...], rows: slice) -> np.ndarray:
        """Return some rows of a part of the tensor, copied as float32."""
        return np.ascontiguousarray(widen(self.words()[part][rows]))


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose JSON files and shard headers have been read; no weight has been."""

    folder: Path
    name: str
    config: Section
    preprocessor: Section
    tensors: Mapping[str, StoredTensor]


def widen(words: np.ndarray) -> np.ndarray:
    """Convert stored words to float32, exactly: a bfloat16 is the upper half of a float32."""
    if words.dtype == WORDS["BF16"]:
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.astype(np.float32)


def read_checkpoint(folder: Path, *, name: str | None = None) -> Checkpoint:
    """Read everything but the weights; `name` for a folder whose own is none, as in the hub's cache.

    Raises ModelError on what is missing, broken or of another kind.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder: give the checkpoint's own, with config.json and shards")
    config = read_json(folder / "config.json")
    check_model_type(config)
    return Checkpoint(folder, name or folder.name, config, _preprocessor(folder), _read_shards(folder))


def check_model_type(config: Section) -> None:
    """Raise ModelError unless a config.json describes a Qwen2.5-VL."""
    if config.values.get("model_type") != "qwen2_5_vl":
        raise config.value_error("model_type", "'qwen2_5_vl'; no other can be exported")


def read_json(path: Path) -> Section:
    """Read a JSON object of bounded size. Raises ModelError."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}, an object is needed")
    return Section(f"{path}", value)


def read_text(path: Path) -> str:
    """Read a UTF-8 file of bounded size. Raises ModelError."""
    try:
        if (size := path.stat().st_size) > MAX_TEXT_BYTES:
            raise ModelError(f"{path} has {size} bytes, at most {MAX_TEXT_BYTES} are read")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: download the whole checkpoint folder") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def _preprocessor(folder: Path) -> Section:
    """Read preprocessor_config.json, or the part of processor_config.json where transformers 5 stores it."""
    path = folder / "preprocessor_config.json"
    if not path.is_file() and (newer := folder / "processor_config.json").is_file():
        return read_json(newer).section("image_processor")
    return read_json(path)


def _read_shards(folder: Path) -> dict[str, StoredTensor]:
    """Read all tensors by canonical name, in the order of llama.cpp's converter: by shard, then by name."""
    listed, names = None, sorted(path.name for path in folder.glob("model*.safetensors"))
    if (index := folder / INDEX).is_file():
        listed = read_json(index).section("weight_map").values
        names = sorted({_shard_name(index, name) for name in listed.values()})
    if not names:
        raise ModelError(f"{folder} holds no model*.safetensors: download the whole checkpoint folder")
    raw: dict[str, StoredTensor] = {}
    for name in names:
        shard = read_shard(folder / name)
        if twice := sorted(raw.keys() & shard.keys()):
            raise ModelError(f"{folder / name} repeats tensor {twice[0]} of an earlier shard")
        raw |= shard
    if listed is not None and (odd := sorted(listed.keys() ^ raw.keys())):
        raise ModelError(f"{index}: {odd[0]} and {len(odd) - 1} more are not in both index and shards")
    tensors = {canonical(name): stored for name, stored in raw.items()}
    if len(tensors) != len(raw):
        raise ModelError(f"{folder} holds one tensor under two spellings of its name: download again")
    return tensors


def _shard_name(index: Path, name: Any) -> str:
    """Return a shard's name. Raises ModelError for a path out of the checkpoint's folder."""
    if not isinstance(name, str) or not name.endswith(".safetensors") or set(name) & set("/\\:"):
        raise ModelError(f"{index}: shard {name!r:.80} is not a .safetensors name in the same folder")
    return name


def canonical(name: str) -> str:
    """Return the published name: newer training code saves `model.language_model.…` and `model.visual.…`."""
    return name.replace("language_model.", "").replace("model.visual.", "visual.")


def read_shard(path: Path) -> dict[str, StoredTensor]:
    """Read a shard's table, sorted by name. Its data must be complete: no gap, no overlap, nothing past the end."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                allowed = max(0, min(size - 8, MAX_HEADER_BYTES))
                raise ModelError(f"{path}: header claims {length} bytes, {allowed} fit: download again")
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: download the shard, or the whole checkpoint folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path}: header is no JSON object: download again")
    table = {name: _entry(path, name, header[name]) for name in sorted(header) if name != "__metadata__"}
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
                return dtype, tuple(shape), begin, end
    raise ModelError(f"{path}: the header entry of {name:.80} is broken, {entry!r:.120}: download again")
