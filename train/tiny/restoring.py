"""Makes a checkpoint of a GGUF pair again, so that training can go on from a judge of which only the pair is kept.

The checkpoint has the values that the pair stores: exported in the same types, it gives the same pair again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from gguf import GGUFReader, TokenType
from gguf.quants import dequantize
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from train.model import save, write_profile
from train.policy_tokenizer import END, IMAGE, PAD, START, TOKENIZER_FILE, VIDEO, PolicyTokenizer
from vrt_lite.conversion.families import list_targets, read_halves
from vrt_lite.conversion.gguf_writer import Target
from vrt_lite.conversion.tokenizer_fields import QWEN2_SPLIT
from vrt_lite.conversion.weights import JsonObject, canonical
from vrt_lite.errors import ModelError
from vrt_lite.models import find
from vrt_lite.profile import Profile

CONTROL = (PAD, START, END, "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", IMAGE, VIDEO)
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_CHAT = """{% for m in messages %}<|im_start|>{{ m['role'] }}
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{% if c['type']=='video' %}\
<|vision_start|><|video_pad|><|vision_end|>{% elif c['type']=='image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class NewModelShape:
    """A small model's shape."""

    layers: int = 6
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 768
    rope_section: tuple[int, ...] = (8, 12, 12)
    vocabulary: int = 1024
    tower_depth: int = 6
    tower_width: int = 192
    tower_heads: int = 3
    tower_feed_forward: int = 512
    tower_full: tuple[int, ...] = (1, 3, 5)


def restore(shape: NewModelShape, profile: Profile, pair: str, out: Path) -> Path:
    """Write the checkpoint of a GGUF pair (a folder, or a model's name) that has this shape. Returns `out`.

    Raises ModelError for a pair that is not there, broken, or of another shape.
    """
    files = find(pair)
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _write(shape, profile, files.text, files.projector, part)
    return part.replace(out)


def _write(shape: NewModelShape, profile: Profile, text: Path, projector: Path, folder: Path) -> None:
    reader = GGUFReader(text)
    _write_vocabulary(reader, folder / TOKENIZER_FILE)
    write_documents(folder, profile)
    model = new_model(shape, PolicyTokenizer(folder / TOKENIZER_FILE))
    stored = {
        t.name: torch.tensor(dequantize(t.data, t.tensor_type))
        for t in (*reader.tensors, *GGUFReader(projector).tensors)
    }
    config = JsonObject("config.json", json.loads(model.config.to_json_string()))
    pieces: dict[str, list[Target]] = {}
    for half in read_halves(config):
        for piece in list_targets(half):
            pieces.setdefault(piece.source, []).append(piece)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            for piece in pieces[canonical(name)]:
                _fill(weight, piece, stored, text)
    save(model, folder, folder)


def _fill(weight: Any, piece: Target, stored: Tensors, path: Path) -> None:
    """Copy a stored tensor to its part of a weight."""
    part = weight[piece.part] if piece.part else weight
    found = stored.get(piece.name)
    if found is None or found.shape != part.shape:
        shape = "missing" if found is None else tuple(found.shape)
        raise ModelError(f"{path}: {piece.name} is {shape}, the recipe's shape needs {tuple(part.shape)}.")
    part.copy_(found)


def _write_vocabulary(reader: GGUFReader, path: Path) -> None:
    """Write the tokenizer.json of a text model's file."""
    tokens, types, merges = (
        reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")
    )
    vocabulary = {
        token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind == TokenType.NORMAL
    }
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED)
    added = {token: kind == TokenType.CONTROL for token, kind in zip(tokens, types, strict=True) if kind in kinds}
    write_tokenizer(vocabulary, merges, added, path)


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
    write_profile(profile, folder)


def new_model(shape: NewModelShape, tokenizer: PolicyTokenizer) -> Any:
    """Create a model of this shape, with transformers' own random weights."""
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


def write_tokenizer(
    vocabulary: Mapping[str, int], merges: Iterable[str], added: Mapping[str, bool], path: Path
) -> None:
    """Write a tokenizer.json of the same kind from its parts.

    `merges` are pairs of tokens with a space between them. `added` are the tokens outside the vocabulary, in the order
    of their ids, and whether each is a control token.
    """
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    written = empty_tokenizer(models.BPE(dict(vocabulary), pairs))
    for name, special in added.items():
        token = AddedToken(name, special=special, normalized=False)
        (written.add_special_tokens if special else written.add_tokens)([token])
    path.write_text(written.to_str(), encoding="utf-8")


def empty_tokenizer(model: models.Model) -> tokenizers.Tokenizer:
    """Create a tokenizer of Qwen2's kind around its vocabulary."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
