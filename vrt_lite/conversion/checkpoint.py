"""A local checkpoint folder, as checked plain values.

config.json is read in its two layouts (transformers 4: language keys beside `vision_config`; transformers 5:
`text_config` and `rope_parameters`), with the safetensors shards and their index. Everything in the folder comes from a
download and is not trusted: sizes are limited before anything is read, and every error is a ModelError of one line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from vrt_lite.conversion.shards import Correction, canonical, reading
from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError

MAX_TEXT_BYTES = 64 << 20  # a published tokenizer.json has 11 MB
INDEX = "model.safetensors.index.json"
ONLY_SHARD = "model.safetensors"
HEAD = "rm_head.weight"
BESIDE = ("lm_head.weight", HEAD)
"""What may be stored that no file has as a tensor: the output of a tied model, and the heads of a reward model."""


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
        return Section(self.where, cast("dict[str, Any]", value or {}))

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
class Checkpoint:
    """A folder whose JSON files have been read, and no shard. `tensors` has the shard of each, by published name.

    `corrections` are what an adapter adds to some of them.
    """

    folder: Path
    name: str
    config: Section
    preprocessor: Section
    tensors: Mapping[str, str]
    corrections: Mapping[str, Correction] = field(default_factory=dict[str, Correction])


def read_checkpoint(folder: Path, name: str, config: Section, needed: Collection[str]) -> Checkpoint:
    """Read the other small files of a folder whose config.json needs these tensors.

    The index says which shard has a tensor. Without one there is one shard with all of them. No shard is read, or need
    be there. Raises ModelError on what is missing, broken or of another kind.
    """
    tensors = list_shards(folder / INDEX) or dict.fromkeys(needed, ONLY_SHARD)
    return check_tensors(Checkpoint(folder, name, config, read_preprocessor(folder), tensors), needed)


def check_tensors(checkpoint: Checkpoint, needed: Collection[str]) -> Checkpoint:
    """Return a checkpoint with the published names of its tensors. Raises ModelError if one of those `needed` lacks."""
    # In the order of llama.cpp's converter: by shard, then by name.
    ordered = sorted((shard, stored) for stored, shard in checkpoint.tensors.items())
    tensors = {canonical(stored): shard for shard, stored in ordered}
    where = checkpoint.config.where
    if missing := sorted(set(needed) - tensors.keys()):
        raise ModelError(f"{where}: {len(missing)} tensors are missing, first {missing[0]}: download again")
    refuse_others(where, tensors, needed)
    return replace(checkpoint, tensors=tensors)


def refuse_others(where: object, tensors: Collection[str], needed: Collection[str]) -> None:
    """Raise ModelError for a tensor that would be left out."""
    if odd := sorted({*tensors} - {*needed, *BESIDE}):
        raise ModelError(f"{where}: tensor {odd[0]:.80} is none that config.json describes")


def read_preprocessor(folder: Path) -> Section:
    """Read preprocessor_config.json, or the part of processor_config.json where transformers 5 stores it."""
    path, newer = folder / "preprocessor_config.json", folder / "processor_config.json"
    inside = newer.is_file() and not path.is_file()
    return read_json(newer).section("image_processor") if inside else read_json(path)


def list_shards(index: Path) -> dict[str, str]:
    """Return the shard of each tensor; empty if there is no index. Raises ModelError for a path out of the folder."""
    listed: Mapping[str, Any] = read_json(index).section("weight_map").values if index.is_file() else {}
    for name in listed.values():
        if not isinstance(name, str) or not name.endswith(".safetensors") or set(name) & set("/\\:"):
            raise ModelError(f"{index}: shard {name!r:.80} is not a .safetensors name in the same folder")
    return dict(listed)


def read_json(path: Path) -> Section:
    """Read a JSON object of bounded size. Raises ModelError."""
    with reading(path), open_to_read(path) as file:
        if (size := path.stat().st_size) > MAX_TEXT_BYTES:
            raise ModelError(f"{path} has {size} bytes, at most {MAX_TEXT_BYTES} are read")
        value = json.loads(file.read(size))  # a larger number would be allocated as a whole
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}, an object is needed")
    return Section(f"{path}", cast("dict[str, Any]", value))
