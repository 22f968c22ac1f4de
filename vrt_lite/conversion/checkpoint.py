"""A checkpoint folder, as checked plain values.

config.json is read in its two layouts (transformers 4: language keys beside `vision_config`; transformers 5:
`text_config` and `rope_parameters`), with the safetensors shards and their index. A reward model of VideoAlign's
trainer has model.pth and model_config.json in place of shards, with LoRA that is not merged. All of it comes from a
download and is not trusted: every error is a ModelError of one line.

Of adapters only plain LoRA on linear layers is merged; anything else is an error that names it. A merge that leaves
something out would run, and judge in another way than the trained model. Sums are computed in float32 and rounded once,
to the type that is written. PEFT's own merge rounds to the checkpoint's type first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.families import expected_shapes
from vrt_lite.conversion.weights import Correction, JsonObject, StoredTensor, canonical, read_json, read_weights
from vrt_lite.errors import ModelError, UsageError

INDEX: Final = "model.safetensors.index.json"
ONLY_SHARD: Final = "model.safetensors"
STATE: Final = "model.pth"
REWARD_TOKENS: Final = ("<|VQ_reward|>", "<|MQ_reward|>", "<|TA_reward|>")
"""VideoAlign's code has them, not its files: it adds them to a tokenizer in this order."""
_HEAD = "rm_head.weight"
_BESIDE = ("lm_head.weight", _HEAD)
"""What may be stored that no file has as a tensor: the output of a tied model, and the heads of a reward model."""


# Each changes what the adapter computes, or holds weights beside A and B; empty means plain LoRA.
REFUSED = (
    *("use_dora", "use_qalora", "use_bdlora", "lora_bias", "fan_in_fan_out", "modules_to_save", "rank_pattern"),
    *("alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices"),
    *("alora_invocation_tokens", "arrow_config"),
)
# The ways to begin that leave the base as published; pissa, olora and their like train on a changed one.
PLAIN_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose JSON files have been read. `tensors` has the shard of each tensor, by published name.

    `name` is the model's, where the folder has another one, as in the hub's cache. `corrections` are what an adapter
    adds to some tensors. `head` has the weights of a reward model's heads, shape (heads, width).
    """

    folder: Path
    name: str
    config: JsonObject
    preprocessor: JsonObject
    tensors: Mapping[str, str]
    corrections: Mapping[str, Correction]
    head: StoredTensor | None = None


def read_checkpoint(folder: Path, name: str, adapter: Path | None) -> Checkpoint:
    """Read the small files of a folder, and where the weights are that its config.json needs.

    Raises ModelError on what is missing, broken or of another kind.
    """
    config, state = read_json(folder / "config.json"), folder / STATE
    if not state.is_file():
        shapes = expected_shapes(config)
        # The index says where tensors are. Without one there is one shard. No shard need be there.
        listed = list_shards(folder / INDEX) or dict.fromkeys(shapes, ONLY_SHARD)
        # In the order of llama.cpp's converter: by shard, then by name.
        tensors = {canonical(name): shard for name, shard in sorted(listed.items(), key=lambda item: item[::-1])}
        check_tensors(folder / INDEX, tensors, shapes)
        corrections = read_adapter(adapter, shapes) if adapter else {}
    elif adapter:
        raise UsageError(f"{state} has an adapter of its own: leave out --lora")
    else:
        table = read_weights(state)
        # The base model's config.json counts the tokens that were there before the training.
        text = {**config.section("text_config").values, "vocab_size": table["model.embed_tokens.weight"].shape[0]}
        config = JsonObject(config.where, {**config.values, "text_config": text})
        shapes = expected_shapes(config)
        halves = {key: stored for key, stored in table.items() if ".lora_" in key}
        tensors = dict.fromkeys((key for key in table if key not in halves), STATE)
        trained = read_json(folder / "model_config.json").section("peft_lora_config")
        check_tensors(state, tensors, shapes)
        corrections = pair_halves(state, halves, shapes, trained)
    # Without an index only the shard itself can say whether there are heads.
    holder = folder / tensors.get(_HEAD, ONLY_SHARD)
    head = read_weights(holder).get(_HEAD) if _HEAD in tensors or holder.is_file() else None
    preprocessor, newer = folder / "preprocessor_config.json", folder / "processor_config.json"
    inside = newer.is_file() and not preprocessor.is_file()  # as transformers 5 stores it
    pixels = read_json(newer).section("image_processor") if inside else read_json(preprocessor)
    return Checkpoint(folder, name, config, pixels, tensors, corrections, head)


def check_tensors(where: object, found: Collection[str], needed: Collection[str]) -> None:
    """Raise ModelError for a tensor that is missing, and for one that would be left out."""
    if missing := sorted({*needed} - {*found}):
        raise ModelError(f"{where}: {len(missing)} tensors are missing, first {missing[0]:.80}: download again")
    if odd := sorted({*found} - {*needed, *_BESIDE}):
        raise ModelError(f"{where}: tensor {odd[0]:.80} is none that config.json describes")


def list_shards(index: Path) -> dict[str, str]:
    """Return the shard of each tensor; empty if there is no index. Raises ModelError for a path out of the folder."""
    listed: Mapping[str, Any] = read_json(index).section("weight_map").values if index.is_file() else {}
    for name in listed.values():
        if not isinstance(name, str) or not name.endswith(".safetensors") or set(name) & set("/\\:"):
            raise ModelError(f"{index}: shard {name!r:.80} is not a .safetensors name in the same folder")
    return dict(listed)


def read_adapter(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Correction]:
    """Return what an adapter adds to each tensor, of those with these shapes.

    Raises ModelError unless every part of the adapter fits.
    """
    config = read_json(folder / "adapter_config.json")
    config.require(peft_type="LORA", bias="none")
    for key in REFUSED:
        if config.values.get(key):
            raise config.value_error(key, "to be empty: only plain LoRA can be merged")
    if config.values.get("init_lora_weights") not in PLAIN_STARTS:
        raise config.value_error("init_lora_weights", "a start that leaves the base model as it is published")
    path = folder / "adapter_model.safetensors"
    return pair_halves(path, read_weights(path), shapes, config)


def pair_halves(
    path: Path, halves: Mapping[str, StoredTensor], shapes: Mapping[str, tuple[int, ...]], config: JsonObject
) -> dict[str, Correction]:
    """Return what halves MODULE.lora_A.weight and MODULE.lora_B.weight add to each tensor, of those with these shapes.

    `config` has rank and scale, of PEFT or of VideoAlign. Raises ModelError, naming the file `path`, unless every half
    fits.
    """
    rank = config.integer("lora_r" if "lora_r" in config.values else "r")
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
