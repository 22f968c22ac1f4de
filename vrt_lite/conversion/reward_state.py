"""A reward model's checkpoint as VideoAlign's trainer leaves it, and the heads of any checkpoint that has some.

The folder has model.pth and model_config.json of the reward model, with LoRA that is not merged, and config.json,
tokenizer.json and preprocessor_config.json of the model that it was trained from. That one's tokenizer lacks the
tokens of the heads, which the trainer adds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from vrt_lite.conversion import lora
from vrt_lite.conversion.checkpoint import (
    HEAD,
    ONLY_SHARD,
    Checkpoint,
    Section,
    check_tensors,
    read_json,
    read_preprocessor,
)
from vrt_lite.conversion.families import expected_shapes
from vrt_lite.conversion.shards import Correction, StoredTensor, canonical, read_shard
from vrt_lite.conversion.torch_state import read_state
from vrt_lite.errors import ModelError

STATE: Final = "model.pth"
_TRAINED: Final = "model_config.json"
REWARD_TOKENS: Final = ("<|VQ_reward|>", "<|MQ_reward|>", "<|TA_reward|>")
"""VideoAlign's code has them, not its files: it adds them to a tokenizer in this order."""
_EMBEDDING: Final = "model.embed_tokens.weight"
_HALF = re.compile(r"(.+\.lora_[AB])\.\w+(\.weight)")


def read_reward_state(folder: Path, name: str, config: Section) -> Checkpoint:
    """Read such a folder, beside its config.json. Raises ModelError for one that is broken or incomplete."""
    path = folder / STATE
    weights, halves = _read(path)
    if (embedding := weights.get(_EMBEDDING)) is None or not embedding.shape:
        raise ModelError(f"{path} has no tensor {_EMBEDDING}: it is no language model")
    config = _with_rows(config, embedding.shape[0])
    shapes, corrections = expected_shapes(config), dict[str, Correction]()
    if halves:
        scale, rank = lora.scale_and_rank(read_json(folder / _TRAINED).section("peft_lora_config"), "lora_r")
        corrections = lora.pair_halves(path, halves, shapes, scale=scale, rank=rank)
    tensors = dict.fromkeys(weights, STATE)
    found = Checkpoint(folder, name, config, read_preprocessor(folder), tensors, corrections)
    return check_tensors(found, shapes)


def read_base_weights(path: Path) -> dict[str, StoredTensor]:
    """Read which tensors a state has, by published name, without the halves of LoRA."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, StoredTensor], dict[str, StoredTensor]]:
    """Read which tensors a state has, and the halves of LoRA, without what PEFT adds to their names."""
    weights, halves = dict[str, StoredTensor](), dict[str, StoredTensor]()
    for full, stored in read_state(path).items():
        name = full.removeprefix(lora.PREFIX).replace(".base_layer.", ".")
        if half := _HALF.fullmatch(name):
            halves["".join(half.groups())] = stored
        else:
            weights[canonical(name)] = stored
    return weights, halves


def _with_rows(config: Section, rows: int) -> Section:
    """Say how many tokens there are: the base model's config.json counts those that were there before the training."""
    own = {"vocab_size": rows}
    nested = {"text_config": {**config.section("text_config").values, **own}} if "text_config" in config.values else {}
    return Section(config.where, {**config.values, **own, **nested})


def find_head(checkpoint: Checkpoint) -> StoredTensor | None:
    """Return the heads' weights, shape (heads, width); None if a checkpoint has none. Raises ModelError."""
    # Without an index only the shard itself can say.
    path = checkpoint.folder / checkpoint.tensors.get(HEAD, ONLY_SHARD)
    if HEAD not in checkpoint.tensors and (len(set(checkpoint.tensors.values())) > 1 or not path.is_file()):
        return None
    stored = (read_base_weights if path.suffix == ".pth" else read_shard)(path).get(HEAD)
    if stored and len(stored.shape) != 2:
        raise ModelError(f"{path}: {HEAD} is {stored.shape}, needs one row for each head")
    return stored
