"""Grows the text model of a checkpoint: more heads of keys and values, more layers. It answers as before.

A small model that has learnt much of a task can lack room for the rest. Here each new head of keys and values is a copy
of the one that its query heads used, and a new layer adds nothing at first, because its last matrices are zero
(Net2Net, arXiv 1511.05641). So training goes on from the same loss.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from train.policy.model import create_folder, initialise, load, new_model, save
from train.recipe import TrainingRecipe
from vrt_lite.errors import ModelError

_LAYER = re.compile(r"(?<=language_model\.layers\.)\d+")
_KEYS_AND_VALUES = ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias")
_LAST = ("o_proj.weight", "down_proj.weight")


def grow(recipe: TrainingRecipe, checkpoint: Path, out: Path) -> Path:
    """Write `checkpoint` in the recipe's shape, which has more layers, or more heads of keys and values. Returns `out`.

    New layers are in the middle. Raises UsageError for a folder that is not empty, ModelError for a shape to which the
    checkpoint cannot grow.
    """
    return create_folder(out, partial(_write, recipe, checkpoint))


def _write(recipe: TrainingRecipe, checkpoint: Path, folder: Path) -> None:
    shape = recipe.model.shape
    model, tokenizer = load(recipe, checkpoint, trainable=False)
    text = model.config.text_config
    repeats, rest = divmod(shape.kv_heads, text.num_key_value_heads)
    added = shape.layers - text.num_hidden_layers
    if rest or not repeats or added < 0:
        raise ModelError(
            f"{checkpoint} has {text.num_hidden_layers} layers and kv_heads = {text.num_key_value_heads}, the recipe "
            f"{shape.layers} and {shape.kv_heads}: layers can be added, and kv_heads multiplied by a whole number."
        )
    torch.manual_seed(recipe.model.seed)
    grown = new_model(shape, tokenizer)
    initialise(grown, shape)
    before = model.state_dict()
    first = text.num_hidden_layers // 2
    with torch.no_grad():
        for name, weight in grown.named_parameters():
            source = _find_source(name, first=first, added=added)
            if source is None:
                if name.endswith(_LAST):
                    weight.zero_()
                continue
            value = before.get(source, torch.empty(0))
            if name.endswith(_KEYS_AND_VALUES):
                value = _repeat_heads(value, text.num_key_value_heads, repeats)
            if value.shape != weight.shape:
                raise ModelError(
                    f"{checkpoint}: {source} is {tuple(value.shape)}, and {tuple(weight.shape)} in the recipe's shape: "
                    f"only layers and kv_heads can grow."
                )
            weight.copy_(value)
    save(grown, checkpoint, folder)


def _find_source(name: str, *, first: int, added: int) -> str | None:
    """Return the name that a weight has in the smaller model; None in a new layer."""
    found = _LAYER.search(name)
    if not found or int(found[0]) < first:
        return name
    number = int(found[0]) - added
    return None if number < first else _LAYER.sub(str(number), name)


def _repeat_heads(weight: Tensor, heads: int, repeats: int) -> Tensor:
    """Repeat each head's rows, so that its query heads find a copy each."""
    return weight.unflatten(0, (heads, -1)).repeat_interleave(repeats, 0).flatten(0, 1)
