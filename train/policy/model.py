"""Creates, loads and saves models to train: a new small model, or any Qwen2.5-VL checkpoint.

A saved folder is complete: `python -m convert export`, transformers and `vrt-lite` read it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomlkit
import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.utils import logging

from convert.source import locate
from train.policy.batched_tower import batch_frames, take_bytes
from train.policy.policy_tokenizer import CONTROL, END, IMAGE, PAD, TOKENIZER_FILE, VIDEO, PolicyTokenizer, learn
from train.policy.weight_types import SMALL, choose_weight_type
from train.recipe import NewModelShape, TrainingRecipe
from train.training_cases import Cases
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.judge import opening
from vrt_lite.profile import PROFILE_NAME, Profile, to_table
from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.tags import FORMAT

CORPUS_CASES = 3_000
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_DOCUMENTS = (
    *(TOKENIZER_FILE, "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"),
    *("chat_template.jinja", "chat_template.json", PROFILE_NAME),
)
_ADAPTED = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
ADAPTER = "adapter_config.json"
_CHAT = """{% for m in messages %}<|im_start|>{{ m['role'] }}
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{% if c['type']=='video' %}\
<|vision_start|><|video_pad|><|vision_end|>{% elif c['type']=='image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def create_checkpoint(recipe: TrainingRecipe, folder: Path, cases: Cases) -> Path:
    """Write a new model's checkpoint. Its vocabulary is learnt from the texts of the cases.

    Returns the folder, which appears only when it is complete, also after a kill and with several processes. For a
    recipe with a `source` it is that checkpoint's folder. Raises UsageError for a folder with other contents.
    """
    if recipe.model.source:
        return locate(recipe.model.source).folder
    return create_folder(folder, lambda part: _write_new(recipe, part, cases))


def create_folder(folder: Path, write: Callable[[Path], None]) -> Path:
    """Create a new model's folder. `write` gets another path, which is renamed to `folder` when it is complete.

    Raises UsageError for a folder with other contents.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: a new model needs an empty folder.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True) as place:
        part = Path(place) / folder.name
        part.mkdir()
        write(part)
        try:
            part.replace(folder)
        except OSError:
            # Another process of the same run was first, with the same model.
            if not (folder / "config.json").is_file():
                raise
    return folder


def load(recipe: TrainingRecipe, folder_or_id: Path | str, *, trainable: bool) -> tuple[Any, PolicyTokenizer]:
    """Load a model and its tokenizer, from a folder or the hub, to the CPU.

    Weights have the type that `choose_weight_type` chooses. For a PEFT adapter's folder the base model is loaded as
    well. Raises ModelError.
    """
    folder = locate(str(folder_or_id)).folder
    base = _base(folder)
    adapted = base != folder or (trainable and recipe.model.lora_rank > 0)
    kind = choose_weight_type(recipe, base, learned=trainable and not adapted, gpu=torch.cuda.is_available())
    _silence_transformers()
    try:
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            base, dtype=kind, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"transformers cannot load {base}: {str(error).splitlines()[0]}") from error
    colours = json.loads((base / "preprocessor_config.json").read_text("utf-8"))
    take_bytes(model.model.visual, mean=colours["image_mean"], std=colours["image_std"])
    if is_small(model):
        batch_frames(model.model.visual)
    model.model.language_model.register_forward_pre_hook(_require_positions, with_kwargs=True)
    if not trainable:
        model.requires_grad_(False)
    if adapted:
        model = _with_adapter(model, recipe, folder if base != folder else None, trainable=trainable)
    return model.train(trainable), PolicyTokenizer(base / TOKENIZER_FILE)


def save(
    model: Any, documents: Path, out: Path, *, profile: Profile | None = None, weights: dict[str, Any] | None = None
) -> None:
    """Write a checkpoint. The tokenizer and the other documents are copied from the folder `documents`.

    So is the profile, unless one is given. `weights` replace the model's own weights where these are spread over
    processes.
    """
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out, state_dict=weights)
    for name in _DOCUMENTS:
        if (documents / name).is_file() and documents != out:
            shutil.copyfile(documents / name, out / name)
    if profile:
        (out / PROFILE_NAME).write_text(profile_text(profile), encoding="utf-8")


def is_small(model: Any) -> bool:
    """Whether a model has at most `SMALL` parameters."""
    return sum(parameter.numel() for parameter in model.parameters()) <= SMALL


def corpus(profile: Profile, cases: Cases) -> Iterator[str]:
    """Yield the texts that a judge of these cases reads and writes."""
    yield from FORMAT
    for index in range(min(len(cases), CORPUS_CASES)):
        case = cases[index]
        for message in opening(case.pair, profile):
            yield "".join(part.text for part in message.parts if isinstance(part, Text))
        yield from case.script


def profile_text(profile: Profile) -> str:
    """Write all values of a profile as the TOML that `vrt_lite.profile.load_profile` reads."""
    return tomlkit.dumps(to_table(profile))


def _silence_transformers() -> None:
    """Turn off progress bars, and the warning about a padding token: the configuration has none on purpose."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _require_positions(_: Any, __: Any, given: dict[str, Any]) -> None:
    """Raise an error if there are no M-RoPE positions: transformers would silently count on one axis."""
    positions = given.get("position_ids")
    if positions is None or positions.ndim != 3 or positions.shape[0] not in (3, 4):
        raise AssertionError("the text model got no positions for t, y and x: pass position_ids of (3, rows, n)")


def _base(folder: Path) -> Path:
    """Return the folder of a PEFT adapter's base model, or the folder itself if it has no adapter."""
    if not (folder / ADAPTER).is_file():
        return folder
    return locate(json.loads((folder / ADAPTER).read_text("utf-8"))["base_model_name_or_path"]).folder


def _with_adapter(model: Any, recipe: TrainingRecipe, adapter: Path | None, *, trainable: bool) -> Any:
    """Add low-rank weights to the text model: new ones, or those of an adapter's folder."""
    import peft  # noqa: PLC0415 - only for a recipe with an adapter

    if adapter:
        return peft.PeftModel.from_pretrained(model, str(adapter), is_trainable=trainable)
    rank = recipe.model.lora_rank
    torch.manual_seed(recipe.model.seed)
    return peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_ADAPTED))


def _write_new(recipe: TrainingRecipe, folder: Path, cases: Cases) -> None:
    rows = recipe.model.shape.vocabulary
    tokenizer = learn(corpus(recipe.profile, cases), folder / TOKENIZER_FILE, rows=rows)
    write_documents(folder, recipe.profile)
    torch.manual_seed(recipe.model.seed)
    model = new_model(recipe.model.shape, tokenizer)
    _initialise(model, recipe.model.shape)
    save(model, folder, folder)


def _initialise(model: Any, shape: NewModelShape) -> None:
    """Draw weights that keep the size of activations: normal, with deviation 1 / sqrt(inputs).

    transformers' 0.02 suits a width of some thousands; in a small tower the activations of a picture would vanish. The
    last weights of a branch are divided by the root of the number of branches, as in GPT-2.
    """
    for name, module in model.named_modules():
        if getattr(module, "weight", None) is not None and module.weight.ndim > 1:
            depth = shape.tower_depth if ".visual." in name else shape.layers
            branches = 2 * depth if name.endswith(("o_proj", "attn.proj", "down_proj")) else 1
            torch.nn.init.normal_(module.weight, std=(module.weight[0].numel() * branches) ** -0.5)


def write_documents(folder: Path, profile: Profile) -> None:
    """Write all files of a new checkpoint except weights, configuration and vocabulary."""
    documents = {
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": END,
            "pad_token": PAD,
            "bos_token": None,
            "add_bos_token": False,
            "model_max_length": 8192,
        },
        "preprocessor_config.json": {
            "min_pixels": profile.min_pixels,
            "max_pixels": profile.max_pixels,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": _MEAN,
            "image_std": _STD,
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor",
        },
    }
    for name, values in documents.items():
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(_CHAT, encoding="utf-8")
    (folder / PROFILE_NAME).write_text(profile_text(profile), encoding="utf-8")


def new_model(shape: NewModelShape, tokenizer: PolicyTokenizer) -> Any:
    """Create a model of this shape, with transformers' own random weights."""
    _silence_transformers()
    return Qwen2_5_VLForConditionalGeneration(_config(shape, tokenizer))


def _config(shape: NewModelShape, tokenizer: PolicyTokenizer) -> Qwen2_5_VLConfig:
    """Build the configuration of a new model, in the layout of transformers 5."""
    ids = {name: tokenizer.id(name) for name in CONTROL}
    text = {
        "bos_token_id": ids[PAD],
        "eos_token_id": ids[END],
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": 8192,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_section": list(shape.rope_section),
            "rope_theta": 10_000.0,
            "rope_type": "default",
            "type": "mrope",
        },
        "sliding_window": None,
        "tie_word_embeddings": True,
        "vocab_size": shape.vocabulary,
    }
    tower = {
        "depth": shape.tower_depth,
        "fullatt_block_indexes": list(shape.tower_full),
        "hidden_size": shape.tower_width,
        "intermediate_size": shape.tower_feed_forward,
        "num_heads": shape.tower_heads,
        "out_hidden_size": shape.width,
        "spatial_patch_size": 14,
        "tokens_per_second": 2,
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=tower,
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
        dtype="float32",
    )
