"""A PEFT LoRA folder, merged into the checkpoint's weights while they are read.

Only plain LoRA on linear layers is merged; anything else is an error that names it. A merge that leaves something out
would run, and judge in another way than the trained model. Sums are computed in float32 and rounded once, to the type
that is written. PEFT's own merge rounds to the checkpoint's type first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vrt_lite.conversion.checkpoint import Checkpoint, Section, read_json
from vrt_lite.conversion.shards import StoredTensor, canonical, read_shard
from vrt_lite.errors import ModelError

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
# Each changes what the adapter computes, or holds weights beside A and B; empty means plain LoRA.
REFUSED = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "fan_in_fan_out",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
)
# The ways to begin that leave the base as published; pissa, olora and their like train on a changed one.
PLAIN_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True)
class AdaptedTensor(StoredTensor):
    """A tensor and its correction: the values are W + scale · B A."""

    a: StoredTensor
    b: StoredTensor
    scale: float

    def values(self, part: tuple[slice | int, ...], rows: slice) -> np.ndarray:
        """Only these rows of B A are computed. A piece of a linear weight is a range of its rows, so of B's."""
        correction = self.b.values(part, rows) @ self.a.values((), slice(0, None))
        return super().values(part, rows) + np.float32(self.scale) * correction


def adapt(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """Merge an adapter into a checkpoint. Raises ModelError unless every part of the adapter fits."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder: give the adapter's own, with {CONFIG}")
    scale, rank = _scale(read_json(folder / CONFIG))
    if not (path := folder / WEIGHTS).is_file():
        raise ModelError(f"{path} is missing: save the adapter as safetensors, no other format is read")
    halves = read_shard(path)
    merged: dict[str, StoredTensor] = dict(checkpoint.tensors)
    while halves:
        name = next(iter(halves))
        module, side, kind = name.rpartition(".lora_")
        a, b = (halves.pop(f"{module}.lora_{half}.weight", None) for half in "AB")
        if not side or kind not in ("A.weight", "B.weight") or not module.startswith(PREFIX):
            raise ModelError(f"{path}: tensor {name:.120} is no half of a plain LoRA on a linear layer")
        if a is None or b is None:
            raise ModelError(f"{path}: {module:.120} has only one of lora_A and lora_B")
        target = canonical(module.removeprefix(PREFIX)) + ".weight"
        where = f"{path}: {module:.120}"
        merged[target] = adapt_tensor(where, target, merged.get(target), (a, b), scale=scale, rank=rank)
    if merged == checkpoint.tensors:
        raise ModelError(f"{path} holds no tensor")
    return replace(checkpoint, tensors=merged)


def adapt_tensor(
    where: str,
    target: str,
    stored: StoredTensor | None,
    halves: tuple[StoredTensor, StoredTensor],
    *,
    scale: float,
    rank: int,
) -> AdaptedTensor:
    """Return a tensor with its correction. Raises ModelError, which begins with `where`, unless all shapes fit."""
    if stored is None or isinstance(stored, AdaptedTensor):
        raise ModelError(f"{where} adapts {target:.80}, which the checkpoint does not have once")
    if not stored.shape:
        raise ModelError(f"{where} adapts {target:.80}, which this checkpoint does not use")
    a, b = halves
    expected = ((rank, stored.shape[-1]), (stored.shape[0], rank))
    if len(stored.shape) != 2 or (a.shape, b.shape) != expected:
        raise ModelError(f"{where} is {a.shape}, {b.shape} for {target} of {stored.shape}")
    return AdaptedTensor(stored.path, stored.dtype, stored.shape, stored.offset, a, b, scale)


def _scale(config: Section) -> tuple[float, int]:
    """Return the factor of B A and the rank. Raises ModelError for anything but plain LoRA."""
    if config.values.get("peft_type") != "LORA":
        raise config.value_error("peft_type", "'LORA'; no other can be merged")
    for key in REFUSED:
        if config.values.get(key):
            raise config.value_error(key, "to be empty: only plain LoRA can be merged")
    config.require(bias="none")
    if config.values.get("init_lora_weights") not in PLAIN_STARTS:
        raise config.value_error("init_lora_weights", "a start that leaves the base model as it is published")
    return scale_and_rank(config, "r")


def scale_and_rank(config: Section, key: str) -> tuple[float, int]:
    """Return the factor of B A and the rank, which is under `key`."""
    rank, alpha = config.integer(key), config.real("lora_alpha")
    return alpha / (math.sqrt(rank) if config.values.get("use_rslora") is True else rank), rank
