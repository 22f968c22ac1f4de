"""A reward model's checkpoint as VideoAlign's trainer leaves it, and the heads of any checkpoint that has some.

The folder has model.pth and model_config.json of the reward model, with LoRA that is not merged, and config.json,
tokenizer.json and preprocessor_config.json of the model that it was trained from. That one's tokenizer lacks the
tokens of the heads, which the trainer adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gguf import GGUFValueType

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, Checkpoint, Section, read_json, read_preprocessor
from vrt_lite.conversion.gguf_writer import GgufField
from vrt_lite.conversion.lora import adapt_tensor, scale_and_rank
from vrt_lite.conversion.shards import StoredTensor, canonical, read_shard
from vrt_lite.conversion.torch_state import read_state
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import HEAD

STATE: Final = "model.pth"
_TRAINED: Final = "model_config.json"
REWARD_TOKENS: Final = ("<|VQ_reward|>", "<|MQ_reward|>", "<|TA_reward|>")
"""VideoAlign's code has them, not its files: it adds them to a tokenizer in this order."""
HEAD_PREFIX: Final = "rm_head."
_HALF = re.compile(r"(.+)\.lora_([AB])\.\w+\.weight")


def read_reward_state(folder: Path, *, name: str | None = None) -> Checkpoint:
    """Read such a folder, LoRA merged. Raises ModelError for a file that is missing, broken, or of another kind."""
    path = folder / STATE
    tensors: dict[str, StoredTensor] = {}
    halves: dict[tuple[str, str], StoredTensor] = {}
    for full, stored in read_state(path).items():
        plain = full.removeprefix("base_model.model.").replace(".base_layer.", ".")
        if half := _HALF.fullmatch(plain):
            halves[canonical(half[1]), half[2]] = stored
        else:
            tensors[canonical(plain)] = stored
    if halves:
        scale, rank = scale_and_rank(read_json(folder / _TRAINED).section("peft_lora_config"), "lora_r")
        for module in dict.fromkeys(module for module, _ in halves):
            target, where = f"{module}.weight", f"{path}: {module:.120}"
            if (a := halves.get((module, "A"))) is None or (b := halves.get((module, "B"))) is None:
                raise ModelError(f"{where} has only one of lora_A and lora_B")
            tensors[target] = adapt_tensor(where, target, tensors.get(target), (a, b), scale=scale, rank=rank)
    config = read_json(folder / "config.json")
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None or not embedding.shape:
        raise ModelError(f"{path} has no tensor model.embed_tokens.weight: it is no language model")
    config = _with_rows(config, embedding.shape[0])
    return Checkpoint(folder, name or folder.name, config, read_preprocessor(folder), tensors)


def _with_rows(config: Section, rows: int) -> Section:
    """Say how many tokens there are: the base model's config.json counts those that were there before the training."""
    own = {"vocab_size": rows}
    nested = {"text_config": {**config.section("text_config").values, **own}} if "text_config" in config.values else {}
    return Section(config.where, {**config.values, **own, **nested})


def find_head(checkpoint: Checkpoint) -> StoredTensor | None:
    """Return the heads' weights, shape (heads, width), None if a checkpoint has none. Raises ModelError."""
    name = f"{HEAD_PREFIX}weight"
    stored = checkpoint.tensors.get(name)
    if stored is None and not (checkpoint.folder / INDEX).is_file():
        shard = checkpoint.folder / ONLY_SHARD
        stored = read_shard(shard).get(name) if shard.is_file() else None
    elif stored and not stored.dtype:
        stored = read_shard(stored.path)[name]
    if stored and len(stored.shape) != 2:
        raise ModelError(f"{stored.path}: {name} is {stored.shape}, needs one row for each head")
    return stored


def head_fields(head: StoredTensor | None) -> Iterator[GgufField]:
    """Return the field with the heads' weights: the engine knows no such tensor."""
    if head:
        yield GgufField(HEAD, head.values((), slice(0, None)).ravel().tolist(), GGUFValueType.ARRAY)
