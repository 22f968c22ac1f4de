"""Loads and saves Qwen2.5-VL checkpoints to train, in the type in which small steps are not rounded away.

A saved folder is complete: `python -m convert export`, transformers and `vrt-lite` read it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit
import torch
from torch import Tensor
from transformers import Qwen2_5_VLForConditionalGeneration
from transformers.utils import logging

from convert.source import locate
from train.policy_tokenizer import TOKENIZER_FILE, PolicyTokenizer
from train.recipe import StartingModel
from vrt_lite.errors import ModelError
from vrt_lite.profile import PROFILE_NAME, Profile, to_table

_DOCUMENTS = (
    *(TOKENIZER_FILE, "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"),
    *("chat_template.jinja", "chat_template.json", PROFILE_NAME),
)
_ADAPTED = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


def load(
    source: Path | str, how: StartingModel | None = None, *, trainable: bool = False
) -> tuple[Any, PolicyTokenizer]:
    """Load a model and its tokenizer, from a folder or the hub's cache, to the CPU. Raises ModelError.

    With a `lora_rank` a trainable model gets a new adapter. Its tower takes bytes (`take_bytes`).
    """
    how = how or StartingModel(source=str(source), precision="float32")
    folder = locate(str(source)).folder
    adapted = trainable and how.lora_rank > 0
    kind = choose_weight_type(how, learned=trainable and not adapted, gpu=torch.cuda.is_available())
    model = read_model(folder, kind)
    colours = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    take_bytes(model.model.visual, mean=colours["image_mean"], std=colours["image_std"])
    model.model.language_model.register_forward_pre_hook(_require_positions, with_kwargs=True)
    model.requires_grad_(trainable)
    model.model.visual.requires_grad_(trainable and how.tower)
    if adapted:
        model = add_adapter(model, how)
    return model.train(trainable), PolicyTokenizer(folder / TOKENIZER_FILE)


def read_model(folder: Path, kind: torch.dtype | str) -> Any:
    """Read a checkpoint's model. Raises ModelError, also for one that lacks a weight."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it would warn that there is no padding token
    try:
        model, found = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            folder, dtype=kind, attn_implementation="sdpa", local_files_only=True, output_loading_info=True
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"transformers cannot load {folder}: {str(error).splitlines()[0]}") from error
    if found["missing_keys"]:
        raise ModelError(f"{folder} lacks the weight {min(found['missing_keys'])}.")
    return model


def choose_weight_type(how: StartingModel, *, learned: bool, gpu: bool) -> torch.dtype:
    """Return the type in which to load weights, for training all of them if `learned`.

    Learned weights are float32: a step of 1e-6 is less than half of the distance between most bfloat16 numbers. What is
    computed is bfloat16 all the same, by autocast. DeepSpeed keeps float32 copies of its own, and PEFT has its adapters
    in float32: there, and where nothing is learned, the weights have the recipe's precision.
    """
    copied = os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() in ("1", "true")
    exact = not gpu or how.precision == "float32" or (learned and not copied)
    return torch.float32 if exact else torch.bfloat16


def add_adapter(model: Any, how: StartingModel) -> Any:
    """Add new low-rank weights to the text model."""
    import peft  # noqa: PLC0415 - only for a recipe with an adapter

    torch.manual_seed(how.seed)
    config = peft.LoraConfig(r=how.lora_rank, lora_alpha=2 * how.lora_rank, target_modules=_ADAPTED)
    return peft.get_peft_model(model, config)


def merge_adapter(start: Path | str, adapter: Path, out: Path, *, documents: Path) -> None:
    """Write the checkpoint of a model with an adapter's weights added to its own, in float32."""
    import peft  # noqa: PLC0415

    model = peft.PeftModel.from_pretrained(load(start)[0], str(adapter)).merge_and_unload()
    save(model, documents, out)


def save(model: Any, documents: Path, out: Path, *, weights: dict[str, Any] | None = None) -> None:
    """Write a checkpoint. The tokenizer and the other documents are copied from the folder `documents`.

    `weights` replace the model's own weights where these are spread over processes.
    """
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out, state_dict=weights)
    for name in _DOCUMENTS:
        if (documents / name).is_file() and documents != out:
            shutil.copyfile(documents / name, out / name)


def write_profile(profile: Profile, folder: Path) -> None:
    """Write all values of a profile as the TOML that `vrt_lite.profile.load_profile` reads."""
    (folder / PROFILE_NAME).write_text(tomlkit.dumps(to_table(profile)), encoding="utf-8")


def take_bytes(visual: Any, *, mean: Sequence[float], std: Sequence[float]) -> None:
    """Make a tower take patches of bytes, (count, 1176), and normalise them itself.

    Bytes are a fourth of the data that workers and devices receive. They are exact in every type to which a model casts
    its pixels, including bfloat16. Scale and shift, (byte / 255 - mean) / std, are no buffers of the module, so that
    casting the model does not round them.
    """
    m, s = (torch.tensor(values, dtype=torch.float64).repeat_interleave(2 * 14 * 14) for values in (mean, std))
    scale, shift = (1 / (255 * s)).float(), (-m / s).float()

    def normalise(pixels: Tensor) -> Tensor:
        return torch.addcmul(shift.to(pixels.device), pixels.float(), scale.to(pixels.device))

    visual.normalised = normalise
    visual.patch_embed.register_forward_pre_hook(lambda _, given: (normalise(given[0]), *given[1:]))


def _require_positions(_: Any, __: Any, given: dict[str, Any]) -> None:
    """Raise an error if there are no M-RoPE positions: transformers would silently count on one axis."""
    positions = given.get("position_ids")
    if positions is None or positions.ndim != 3 or positions.shape[0] not in (3, 4):
        raise AssertionError("the text model got no positions for t, y and x: pass position_ids of (3, rows, n)")
