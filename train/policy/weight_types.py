"""In which type weights are loaded, so that small steps of training are not rounded away."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import torch

from train.recipe import TrainingRecipe

SMALL: Final = 100_000_000
"""The most parameters of a small model, whose tower is batched."""


def choose_weight_type(
    recipe: TrainingRecipe, folder: Path, *, learned: bool, gpu: bool
) -> torch.dtype | Literal["auto"]:
    """Return the type in which to load the checkpoint in `folder`, for training all of its weights if `learned`.

    Learned weights are float32: a step of 1e-6 is less than half of the distance between most bfloat16 numbers. What is
    computed is bfloat16 all the same, by autocast. DeepSpeed keeps float32 copies of its own, and PEFT has its adapters
    in float32. So there, and where nothing is learned, a large model has a recipe's bfloat16, and a small one what is
    stored.
    """
    copied = os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() in ("1", "true")
    if not gpu or recipe.model.precision == "float32" or (learned and not copied):
        return torch.float32
    stored_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return torch.bfloat16 if stored_bytes > SMALL * torch.float32.itemsize else "auto"
