"""A checkpoint folder, as checked plain values.

config.json is read in its two layouts (transformers 4: language keys beside `vision_config`; transformers 5:
`text_config` and `rope_parameters`), with the safetensors shards and their index. A reward model of VideoAlign's
trainer has model.pth and model_config.json in place of shards, with LoRA that is not merged. All of it comes from a
download and is not trusted: every error is a ModelError of one line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.weights import Correction, StoredTensor, canonical, read_weights, reading
from vrt_lite.errors import ModelError

INDEX: Final = "model.safetensors.index.json"
ONLY_SHARD: Final = "model.safetensors"
STATE: Final = "model.pth"
REWARD_TOKENS: Final = ("<|VQ_reward|>", "<|MQ_reward|>", "<|TA_reward|>")
"""VideoAlign's code has them, not its files: it adds them to a tokenizer in this order."""
_HEAD = "rm_head.weight"
_BESIDE = ("lm_head.weight", _HEAD)
"""What may be stored that no file has as a tensor: the output of a tied model, and the heads of a reward model."""


@dataclass(frozen=True)
class Section:
    """A JSON object, and where it stands, for messages."""

    where: str
    values: Mapping[str, Any]

    def section(self, key: str) -> Section:
        """Return the object under `key`; empty if there is none."""
        return Section(self.where, self.values.get(key) or {})

    def over(self, other: Section) -> Section:
        """Merge two objects; if both have a key, this object's value counts."""
        return Section(self.where, {**other.values, **self.values})

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


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose JSON files have been read. `tensors` has the shard of each tensor, by published name.

    `corrections` are what an adapter adds to some of them. `head` has the weights of a reward model's heads, shape
    (heads, width).
    """

    folder: Path
    config: Section
    preprocessor: Section
    tensors: Mapping[str, str]
    corrections: Mapping[str, Correction]
    head: StoredTensor | None = None


def check_tensors(where: object, found: Collection[str], needed: Collection[str]) -> None:
    """Raise ModelError for a tensor that is missing, and for one that would be left out."""
    if missing := sorted({*needed} - {*found}):
        raise ModelError(f"{where}: {len(missing)} tensors are missing, first {missing[0]:.80}: download again")
    if odd := sorted({*found} - {*needed, *_BESIDE}):
        raise ModelError(f"{where}: tensor {odd[0]:.80} is none that config.json describes")


def list_tensors(folder: Path, needed: Collection[str]) -> dict[str, str]:
    """Return the shard of each tensor, in the order of llama.cpp's converter: by shard, then by name.

    The index says it. Without one there is one shard. No shard need be there. Raises ModelError.
    """
    listed = list_shards(folder / INDEX) or dict.fromkeys(needed, ONLY_SHARD)
    check_tensors(folder / INDEX, {canonical(name) for name in listed}, needed)
    return {canonical(name): shard for shard, name in sorted((shard, name) for name, shard in listed.items())}


def read_preprocessor(folder: Path) -> Section:
    """Read preprocessor_config.json, or the part of processor_config.json where transformers 5 stores it."""
    path, newer = folder / "preprocessor_config.json", folder / "processor_config.json"
    inside = newer.is_file() and not path.is_file()
    return read_json(newer).section("image_processor") if inside else read_json(path)


def find_head(folder: Path, tensors: Mapping[str, str]) -> StoredTensor | None:
    """Return the heads' weights, shape (heads, width); None if a checkpoint has none. Raises ModelError."""
    # Without an index only the shard itself can say.
    path = folder / tensors.get(_HEAD, ONLY_SHARD)
    return read_weights(path).get(_HEAD) if _HEAD in tensors or path.is_file() else None


def list_shards(index: Path) -> dict[str, str]:
    """Return the shard of each tensor; empty if there is no index. Raises ModelError for a path out of the folder."""
    listed: Mapping[str, Any] = read_json(index).section("weight_map").values if index.is_file() else {}
    for name in listed.values():
        if not isinstance(name, str) or not name.endswith(".safetensors") or set(name) & set("/\\:"):
            raise ModelError(f"{index}: shard {name!r:.80} is not a .safetensors name in the same folder")
    return dict(listed)


def read_json(path: Path) -> Section:
    """Read a JSON object. Raises ModelError."""
    with reading(path):
        return Section(f"{path}", {**json.loads(path.read_bytes())})
