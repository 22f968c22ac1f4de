"""Models to train: a new small one, or any Qwen2.5-VL checkpoint; how they are loaded, watched and saved.

A saved folder is whole: `python -m convert export`, transformers and `vrt-lite` read it. Knows transformers' classes;
refuses to know data and losses.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.utils import logging

from convert.source import locate
from train.cases import Cases
from train.policy.tokenizer import CONTROL, END, IMAGE, PAD, TOKENIZER_FILE, VIDEO, Tokenizer, learn
from train.policy.vision import batch_frames, take_bytes
from train.recipe import Recipe, Shape
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.judge import opening
from vrt_lite.profile import PROFILE_NAME, Profile
from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.tags import FORMAT

SMALL = 100_000_000
"""Parameters up to which a model is small: its tower is batched, its files are kept under 16 MB."""
SHARD_BYTES = 15_000_000
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


def new(recipe: Recipe, folder: Path, cases: Cases) -> Path:
    """Write a new model's checkpoint, its vocabulary learnt from what the cases have a judge read and write.

    The folder itself, which is there when it is whole, whatever was killed before and whichever process was first; for
    a recipe with a `source`, that checkpoint's own folder. UsageError if something else is in the folder.
    """
    if recipe.model.source:
        return locate(recipe.model.source).folder
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: a new model needs a folder of its own.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True) as place:
        part = Path(place) / folder.name
        _write_new(recipe, part, cases)
        try:
            part.replace(folder)
        except OSError:
            # Another process of the same run was first, with the same model.
            if not (folder / "config.json").is_file():
                raise
    return folder


def load(recipe: Recipe, folder_or_id: Path | str, *, trainable: bool) -> tuple[Any, Tokenizer]:
    """A model and its tokenizer, from a folder or the hub, on the CPU.

    Weights keep the type that they are stored in, or are float32 where the recipe says so or there is no GPU: a small
    model's are, and its arithmetic is autocast. A folder of a PEFT adapter brings its base. Raises ModelError.
    """
    folder = locate(str(folder_or_id)).folder
    base = _base(folder)
    stored = recipe.model.precision == "bfloat16" and torch.cuda.is_available()
    _quieten()
    try:
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            base, dtype="auto" if stored else torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"transformers cannot load {base}: {str(error).splitlines()[0]}") from error
    colours = json.loads((base / "preprocessor_config.json").read_text("utf-8"))
    take_bytes(model.model.visual, mean=colours["image_mean"], std=colours["image_std"])
    if small(model):
        batch_frames(model.model.visual)
    model.model.language_model.register_forward_pre_hook(_demand_positions, with_kwargs=True)
    if not trainable:
        model.requires_grad_(False)
    if base != folder or (trainable and recipe.model.lora_rank):
        model = _with_adapter(model, recipe, folder if base != folder else None, trainable=trainable)
    return model.train(trainable), Tokenizer(base / TOKENIZER_FILE)


def save(
    model: Any, documents: Path, out: Path, *, profile: Profile | None = None, weights: dict[str, Any] | None = None
) -> None:
    """Write a checkpoint: `documents` is a folder whose tokenizer and so on go with it, its profile if none is given.

    A small model's weights lie in shards under 16 MB, as its largest tensor allows. `weights` stand for the model's
    own where they are spread over processes.
    """
    out.mkdir(parents=True, exist_ok=True)
    limit = {"max_shard_size": SHARD_BYTES} if small(model) else {}
    model.save_pretrained(out, state_dict=weights, **limit)
    for name in _DOCUMENTS:
        if (documents / name).is_file() and documents != out:
            shutil.copyfile(documents / name, out / name)
    if profile:
        (out / PROFILE_NAME).write_text(profile_text(profile), encoding="utf-8")


def small(model: Any) -> bool:
    """Whether a model is small enough for what pays only then."""
    return sum(parameter.numel() for parameter in model.parameters()) <= SMALL


def corpus(profile: Profile, cases: Cases) -> Iterator[str]:
    """What a judge of these cases reads and writes."""
    yield from FORMAT
    for index in range(min(len(cases), CORPUS_CASES)):
        case = cases[index]
        for message in opening(case.pair, profile):
            yield "".join(part.text for part in message.parts if isinstance(part, Text))
        yield from case.script


def profile_text(profile: Profile) -> str:
    """A profile as the TOML that `vrt_lite.profile.load_profile` reads, every value in it."""
    plain = {name: getattr(profile, name) for name in profile.__dataclass_fields__}
    clock, dimensions = plain.pop("clock"), plain.pop("dimensions")
    lines = list(_assigned(plain.items()))
    lines += ["", "[clock]", *_assigned((name, getattr(clock, name)) for name in clock.__dataclass_fields__)]
    for key, words in dimensions.items():
        lines += ["", f"[dimensions.{key}]", *_assigned((("name", words.name), ("explain", words.explain)))]
    return "\n".join(lines) + "\n"


def _assigned(values: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Lines of TOML; a JSON string or number is one of TOML as well."""
    return (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values)


def _quieten() -> None:
    """No progress bars, and no word of what is meant: a padding token of which the configuration says nothing."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _demand_positions(_: Any, __: Any, given: dict[str, Any]) -> None:
    """Refuse to read without M-RoPE: transformers, given neither positions nor kinds, counts on one axis alone."""
    positions = given.get("position_ids")
    if positions is None or positions.ndim != 3 or positions.shape[0] not in (3, 4):
        raise AssertionError("the text model was given no positions for t, y and x: pass position_ids of (3, rows, n)")


def _base(folder: Path) -> Path:
    """The folder that a PEFT adapter adapts, or the folder itself."""
    if not (folder / ADAPTER).is_file():
        return folder
    return locate(json.loads((folder / ADAPTER).read_text("utf-8"))["base_model_name_or_path"]).folder


def _with_adapter(model: Any, recipe: Recipe, adapter: Path | None, *, trainable: bool) -> Any:
    """The model with low-rank weights beside those of its text: new ones, or those of a folder."""
    import peft  # noqa: PLC0415 - only for those who ask for it

    if adapter:
        return peft.PeftModel.from_pretrained(model, str(adapter), is_trainable=trainable)
    rank = recipe.model.lora_rank
    torch.manual_seed(recipe.model.seed)
    return peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_ADAPTED))


def _write_new(recipe: Recipe, folder: Path, cases: Cases) -> None:
    _quieten()
    folder.mkdir()
    rows = recipe.model.shape.vocabulary
    tokenizer = learn(corpus(recipe.profile, cases), folder / TOKENIZER_FILE, rows=rows)
    _write_documents(folder, recipe.profile)
    torch.manual_seed(recipe.model.seed)
    model = Qwen2_5_VLForConditionalGeneration(_config(recipe.model.shape, tokenizer))
    _spread(model, recipe.model.shape)
    save(model, folder, folder)


def _spread(model: Any, shape: Shape) -> None:
    """Draw weights that hand on what they are given at its size: normal, deviation 1 / sqrt(inputs).

    transformers' 0.02 suits a width of some thousands; in a small tower a picture would fade away. What ends a branch
    is smaller by the root of the number of branches, as in GPT-2.
    """
    for name, module in model.named_modules():
        if getattr(module, "weight", None) is not None and module.weight.ndim > 1:
            depth = shape.tower_depth if ".visual." in name else shape.layers
            branches = 2 * depth if name.endswith(("o_proj", "attn.proj", "down_proj")) else 1
            torch.nn.init.normal_(module.weight, std=(module.weight[0].numel() * branches) ** -0.5)


def _write_documents(folder: Path, profile: Profile) -> None:
    """All files of a new checkpoint but weights, configuration and vocabulary."""
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


def _config(shape: Shape, tokenizer: Tokenizer) -> Qwen2_5_VLConfig:
    """The configuration of a new model, in the layout of transformers 5."""
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
