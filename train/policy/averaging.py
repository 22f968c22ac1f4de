"""Averages the weights of checkpoints of one shape.

The mean of a leg's model and of the model that it began with often judges better than both.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from train.policy.model import create_folder
from vrt_lite.errors import ModelError, UsageError

WEIGHTS = "model.safetensors"


def average(shares: Mapping[Path, float], out: Path) -> Path:
    """Write the weighted mean of the weights of checkpoints, with the documents of the first one. Returns `out`.

    `shares` are relative to their sum. Each checkpoint has one file of weights, as a small model has. Raises UsageError
    for a folder that is not empty or shares that are not positive, ModelError for checkpoints of different shapes.
    """
    if not shares or min(shares.values()) <= 0:
        raise UsageError(f"The shares are {[*shares.values()]}: give each checkpoint a share above 0.")
    return create_folder(out, lambda folder: _write(shares, folder))


def _write(shares: Mapping[Path, float], folder: Path) -> None:
    first, total = next(iter(shares)), sum(shares.values())
    mean: dict[str, torch.Tensor] = {}
    for checkpoint, share in shares.items():
        found = _read(checkpoint / WEIGHTS)
        shapes = {name: weight.shape for name, weight in found.items()}
        if mean and shapes != {name: weight.shape for name, weight in mean.items()}:
            raise ModelError(f"{checkpoint} has other weights than {first}: only checkpoints of one shape have a mean.")
        for name, weight in found.items():
            mean[name] = mean.get(name, 0) + weight.float() * (share / total)
    for path in first.iterdir():
        if path.is_file() and path.suffix in (".json", ".jinja", ".toml"):
            shutil.copyfile(path, folder / path.name)
    save_file(mean, folder / WEIGHTS, metadata={"format": "pt"})


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of weights. Raises ModelError."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"The weights {path} cannot be read: {error}") from error
