"""Averages the weights of checkpoints of one shape.

The mean of a leg's model and of the model that it began with often judges better than both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from train.policy.model import create_folder, load, save
from train.recipe import TrainingRecipe
from vrt_lite.errors import ModelError, UsageError


def average(recipe: TrainingRecipe, shares: Mapping[Path, float], out: Path) -> Path:
    """Write the weighted mean of the weights of checkpoints, with the documents of the first one. Returns `out`.

    `shares` are relative to their sum. Raises UsageError for a folder that is not empty or a share that is not
    positive, ModelError for a checkpoint that cannot be loaded or has another shape than the first one.
    """
    if not shares or not all(0 < share < math.inf for share in shares.values()):
        raise UsageError(f"The shares are {[*shares.values()]}: give each checkpoint a share above 0.")
    return create_folder(out, partial(_write, recipe, shares))


def _write(recipe: TrainingRecipe, shares: Mapping[Path, float], folder: Path) -> None:
    first, *others = shares
    total = sum(shares.values())
    model, _ = load(recipe, first, trainable=False)
    mean = {name: weight * (shares[first] / total) for name, weight in model.state_dict().items()}
    for checkpoint in others:
        weights = load(recipe, checkpoint, trainable=False)[0].state_dict()
        if {name: w.shape for name, w in weights.items()} != {name: w.shape for name, w in mean.items()}:
            raise ModelError(f"{checkpoint} has weights of other shapes than {first}: they have no mean.")
        for name, weight in weights.items():
            mean[name] += weight * (shares[checkpoint] / total)
    model.load_state_dict(mean)
    save(model, first, folder)
