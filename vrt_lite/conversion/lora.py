"""A PEFT LoRA, merged into the checkpoint's weights while they are read.

Only plain LoRA on linear layers is merged; anything else is an error that names it. A merge that leaves something out
would run, and judge in another way than the trained model. Sums are computed in float32 and rounded once, to the type
that is written. PEFT's own merge rounds to the checkpoint's type first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vrt_lite.conversion.checkpoint import Section, read_json
from vrt_lite.conversion.weights import Correction, StoredTensor, read_weights
from vrt_lite.errors import ModelError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
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
    config = read_json(folder / CONFIG)
    if config.values.get("peft_type") != "LORA":
        raise config.value_error("peft_type", "'LORA'; no other can be merged")
    for key in REFUSED:
        if config.values.get(key):
            raise config.value_error(key, "to be empty: only plain LoRA can be merged")
    config.require(bias="none")
    if config.values.get("init_lora_weights") not in PLAIN_STARTS:
        raise config.value_error("init_lora_weights", "a start that leaves the base model as it is published")
    return pair_halves(
        folder / WEIGHTS, read_weights(folder / WEIGHTS), shapes, config=config, rank=config.integer("r")
    )


def pair_halves(
    path: Path,
    halves: Mapping[str, StoredTensor],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    config: Section,
    rank: int,
) -> dict[str, Correction]:
    """Return what halves MODULE.lora_A.weight and MODULE.lora_B.weight add to each tensor, of those with these shapes.

    `config` has the scale. Raises ModelError, naming the file `path`, unless every half fits.
    """
    scale = float(config.values["lora_alpha"]) / (rank**0.5 if config.values.get("use_rslora") is True else rank)
    if not halves:
        raise ModelError(f"{path} holds no tensor")
    for name in halves:
        if not name.endswith((".lora_A.weight", ".lora_B.weight")):
            raise ModelError(f"{path}: tensor {name:.120} is no half of a plain LoRA on a linear layer")
    found: dict[str, Correction] = {}
    for module in sorted({name.rpartition(".lora_")[0] for name in halves}):
        target = f"{module}.weight"
        if target not in shapes:
            raise ModelError(f"{path}: {module:.120} adapts {target:.80}, which the checkpoint does not have")
        rows, *columns = shapes[target]
        a, b = (halves.get(f"{module}.lora_{half}.weight") for half in "AB")
        if a and b and len(columns) == 1 and (a.shape, b.shape) == ((rank, *columns), (rows, rank)):
            found[target] = Correction(a, b, scale)
        else:
            shown = f"{a and a.shape}, {b and b.shape}"
            raise ModelError(f"{path}: {module:.120} is {shown} of rank {rank} for {target} of {shapes[target]}")
    return found
