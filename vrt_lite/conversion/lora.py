"""A PEFT LoRA folder, merged into the checkpoint's weights while they are read.

Only plain LoRA on linear layers is merged; anything else is an error that names it. A merge that leaves something out
would run, and judge in another way than the trained model. Sums are computed in float32 and rounded once, to the type
that is written. PEFT's own merge rounds to the checkpoint's type first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from vrt_lite.conversion.checkpoint import Section, read_json
from vrt_lite.conversion.shards import Correction, StoredTensor, canonical, read_shard
from vrt_lite.errors import ModelError

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
# Each changes what the adapter computes, or holds weights beside A and B; empty means plain LoRA.
REFUSED = (
    *("use_dora", "use_qalora", "use_bdlora", "lora_bias", "fan_in_fan_out", "modules_to_save", "rank_pattern"),
    *("alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices"),
    *("alora_invocation_tokens", "arrow_config"),
)
# The ways to begin that leave the base as published; pissa, olora and their like train on a changed one.
PLAIN_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")


def read_adapter(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Correction]:
    """Return what an adapter adds to each tensor, of those with these shapes.

    Raises ModelError unless every part of the adapter fits.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder: give the adapter's own, with {CONFIG}")
    scale, rank = _scale(read_json(folder / CONFIG))
    if not (path := folder / WEIGHTS).is_file():
        raise ModelError(f"{path} is missing: save the adapter as safetensors, no other format is read")
    halves = read_shard(path)
    if not halves:
        raise ModelError(f"{path} holds no tensor")
    for name in halves:
        module, side, kind = name.rpartition(".lora_")
        if not side or kind not in ("A.weight", "B.weight") or not module.startswith(PREFIX):
            raise ModelError(f"{path}: tensor {name:.120} is no half of a plain LoRA on a linear layer")
    plain = {name.removeprefix(PREFIX): half for name, half in halves.items()}
    return pair_halves(path, plain, shapes, scale=scale, rank=rank)


def pair_halves(
    path: Path,
    halves: Mapping[str, StoredTensor],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    scale: float,
    rank: int,
) -> dict[str, Correction]:
    """Return what halves MODULE.lora_A.weight and MODULE.lora_B.weight add to each tensor, of those with these shapes.

    Raises ModelError, naming the file `path`, unless every half fits.
    """
    found: dict[str, Correction] = {}
    for module in sorted({name.rpartition(".lora_")[0] for name in halves}):
        a, b = (halves.get(f"{module}.lora_{half}.weight") for half in "AB")
        if a is None or b is None:
            raise ModelError(f"{path}: {module:.120} has only one of lora_A and lora_B")
        target = f"{canonical(module)}.weight"
        if target not in shapes or target in found:
            raise ModelError(f"{path}: {module:.120} adapts {target:.80}, which the checkpoint does not have once")
        rows, *columns = shapes[target]
        if (a.shape, b.shape) != ((rank, *columns), (rows, rank)) or len(columns) != 1:
            raise ModelError(f"{path}: {module:.120} is {a.shape}, {b.shape} for {target} of {shapes[target]}")
        found[target] = Correction(a, b, scale)
    return found


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
