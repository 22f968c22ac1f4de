"""Writes tiny checkpoint folders of Qwen2-VL, with or without a head, and of Qwen3-VL, with random weights. No torch.

The weights have unit gain, so that every part matters and no part blows rounding up. They are the same everywhere. The
vocabulary has the control tokens of the published ones. Qwen3-VL's heads are wider than width / heads, and three of its
vision blocks feed the text model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import synthetic_checkpoint as synthetic
from numpy.typing import NDArray

WIDTH, FEED_FORWARD, HEADS, KV_HEADS, LAYERS, HEAD = 128, 192, 4, 2, 4, 64
VISION_WIDTH, VISION_FEED_FORWARD, VISION_HEADS, DEPTH, TABLE = 96, 160, 3, 6, 64
DEEP = [1, 3, 4]
CONTROL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
REWARDS = ("<|VQ_reward|>", "<|MQ_reward|>", "<|TA_reward|>")
FIRST_ADDED = synthetic.FIRST_ADDED
ROWS = FIRST_ADDED + len(CONTROL) + len(REWARDS)
Weights = dict[str, NDArray[np.float32]]
Shape = tuple[int, ...]


def make(folder: Path, family: str, *, dtype: str = "F32", tied: bool = True, layout: str = "old") -> Weights:
    """Write the folder of a `family`, one of "qwen2_vl" and "qwen3_vl"; returns its weights by published name."""
    weights = random_weights(family, tied=tied)
    make_without_weights(folder, family, tied=tied, layout=layout)
    words = {name: synthetic.stored(values, dtype) for name, values in weights.items()}
    synthetic.write_safetensors(folder / "model.safetensors", words, dtype)
    return weights


def make_without_weights(folder: Path, family: str, *, tied: bool = True, layout: str = "old") -> None:
    """Write the small files of a folder."""
    folder.mkdir(parents=True)
    config = (_qwen2_config if family == "qwen2_vl" else _qwen3_config)(tied=tied)
    synthetic.write_json(folder / "config.json", config)
    tokenizer = synthetic.tokenizer("new")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] = [
        {"id": FIRST_ADDED + i, "content": word, "special": True, **flags} for i, word in enumerate(CONTROL)
    ]
    synthetic.write_json(folder / "tokenizer.json", tokenizer)
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    synthetic.write_json(folder / "tokenizer_config.json", settings)
    pixels = synthetic.preprocessor(layout)
    if family == "qwen3_vl":
        pixels |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "patch_size": 16}
    synthetic.write_json(folder / "preprocessor_config.json", pixels)


def random_weights(family: str, *, tied: bool = True) -> Weights:
    """The weights by published name."""
    shapes = _qwen2_shapes() if family == "qwen2_vl" else _qwen3_shapes()
    found = {name: unit_gain(name, shape) for name, shape in shapes}
    if not tied:
        found["lm_head.weight"] = unit_gain("lm_head.weight", (ROWS, WIDTH))
    return found


def unit_gain(name: str, shape: Shape) -> NDArray[np.float32]:
    """Uniform values of unit gain, norms around 1, small biases."""
    drawn = synthetic.random_weights(f"family {name}", shape)
    if len(shape) == 1:
        is_norm = name.endswith(".weight")
        return np.float32(1) + drawn / 4 if is_norm else drawn / 4
    if "embed_tokens" in name or "pos_embed" in name:
        return drawn
    return (drawn * np.float32(np.sqrt(3 / np.prod(shape[1:])))).astype(np.float32)


def _text(*, tied: bool) -> dict[str, Any]:
    return {
        "bos_token_id": FIRST_ADDED,
        "eos_token_id": FIRST_ADDED + 2,
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "intermediate_size": FEED_FORWARD,
        "max_position_embeddings": 8192,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": tied,
        "vocab_size": ROWS,
    }


def _qwen2_config(*, tied: bool) -> dict[str, Any]:
    vision = {
        "depth": DEPTH,
        "embed_dim": VISION_WIDTH,
        "hidden_size": WIDTH,
        "in_chans": 3,
        "mlp_ratio": 4,
        "num_heads": VISION_HEADS,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "spatial_patch_size": 14,
        "temporal_patch_size": 2,
    }
    return _text(tied=tied) | {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "rope_theta": 1_000_000.0,
        "use_sliding_window": False,
        "vision_config": vision,
    }


def _qwen3_config(*, tied: bool) -> dict[str, Any]:
    rope = {"mrope_interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default"}
    text = _text(tied=tied) | {
        "attention_bias": False,
        "head_dim": HEAD,
        "model_type": "qwen3_vl_text",
        "rope_scaling": rope,
        "rope_theta": 5_000_000,
    }
    vision = {
        "deepstack_visual_indexes": DEEP,
        "depth": DEPTH,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": VISION_WIDTH,
        "in_channels": 3,
        "intermediate_size": VISION_FEED_FORWARD,
        "model_type": "qwen3_vl",
        "num_heads": VISION_HEADS,
        "num_position_embeddings": TABLE,
        "out_hidden_size": WIDTH,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "image_token_id": FIRST_ADDED + CONTROL.index("<|image_pad|>"),
        "model_type": "qwen3_vl",
        "text_config": text,
        "tie_word_embeddings": tied,
        "video_token_id": FIRST_ADDED + CONTROL.index("<|video_pad|>"),
        "vision_config": vision,
        "vision_end_token_id": FIRST_ADDED + CONTROL.index("<|vision_end|>"),
        "vision_start_token_id": FIRST_ADDED + CONTROL.index("<|vision_start|>"),
    }


def _linear(name: str, rows: int, columns: int) -> list[tuple[str, Shape]]:
    return [(f"{name}.weight", (rows, columns)), (f"{name}.bias", (rows,))]


def _norm(name: str, width: int) -> list[tuple[str, Shape]]:
    return [(f"{name}.weight", (width,)), (f"{name}.bias", (width,))]


def _qwen2_shapes() -> Iterator[tuple[str, Shape]]:
    kv, wide, merged = WIDTH // HEADS * KV_HEADS, VISION_WIDTH, 4 * VISION_WIDTH
    yield "model.embed_tokens.weight", (ROWS, WIDTH)
    yield "model.norm.weight", (WIDTH,)
    for i in range(LAYERS):
        block = f"model.layers.{i}"
        for part, n in (("q", WIDTH), ("k", kv), ("v", kv)):
            yield from _linear(f"{block}.self_attn.{part}_proj", n, WIDTH)
        yield f"{block}.self_attn.o_proj.weight", (WIDTH, WIDTH)
        yield from _feed_forward(block)
    yield "visual.patch_embed.proj.weight", (wide, 3, 2, 14, 14)
    yield from _norm("visual.merger.ln_q", wide)
    yield from _linear("visual.merger.mlp.0", merged, merged)
    yield from _linear("visual.merger.mlp.2", WIDTH, merged)
    for i in range(DEPTH):
        block = f"visual.blocks.{i}"
        yield from _norm(f"{block}.norm1", wide)
        yield from _norm(f"{block}.norm2", wide)
        yield from _linear(f"{block}.attn.qkv", 3 * wide, wide)
        yield from _linear(f"{block}.attn.proj", wide, wide)
        yield from _linear(f"{block}.mlp.fc1", 4 * wide, wide)
        yield from _linear(f"{block}.mlp.fc2", wide, 4 * wide)


def _qwen3_shapes() -> Iterator[tuple[str, Shape]]:
    queries, kv, wide, merged = HEADS * HEAD, KV_HEADS * HEAD, VISION_WIDTH, 4 * VISION_WIDTH
    text, tower = "model.language_model", "model.visual"
    yield f"{text}.embed_tokens.weight", (ROWS, WIDTH)
    yield f"{text}.norm.weight", (WIDTH,)
    for i in range(LAYERS):
        block = f"{text}.layers.{i}"
        for part, n in (("q", queries), ("k", kv), ("v", kv)):
            yield f"{block}.self_attn.{part}_proj.weight", (n, WIDTH)
        for part in "qk":
            yield f"{block}.self_attn.{part}_norm.weight", (HEAD,)
        yield f"{block}.self_attn.o_proj.weight", (WIDTH, queries)
        yield from _feed_forward(block)
    yield f"{tower}.patch_embed.proj.weight", (wide, 3, 2, 16, 16)
    yield f"{tower}.patch_embed.proj.bias", (wide,)
    yield f"{tower}.pos_embed.weight", (TABLE, wide)
    for name, width in (("merger", wide), *((f"deepstack_merger_list.{i}", merged) for i in range(len(DEEP)))):
        yield from _norm(f"{tower}.{name}.norm", width)
        yield from _linear(f"{tower}.{name}.linear_fc1", merged, merged)
        yield from _linear(f"{tower}.{name}.linear_fc2", WIDTH, merged)
    for i in range(DEPTH):
        block = f"{tower}.blocks.{i}"
        yield from _norm(f"{block}.norm1", wide)
        yield from _norm(f"{block}.norm2", wide)
        yield from _linear(f"{block}.attn.qkv", 3 * wide, wide)
        yield from _linear(f"{block}.attn.proj", wide, wide)
        yield from _linear(f"{block}.mlp.linear_fc1", VISION_FEED_FORWARD, wide)
        yield from _linear(f"{block}.mlp.linear_fc2", wide, VISION_FEED_FORWARD)


def _feed_forward(block: str) -> Iterator[tuple[str, Shape]]:
    for norm in ("input", "post_attention"):
        yield f"{block}.{norm}_layernorm.weight", (WIDTH,)
    for part in ("gate", "up"):
        yield f"{block}.mlp.{part}_proj.weight", (FEED_FORWARD, WIDTH)
    yield f"{block}.mlp.down_proj.weight", (WIDTH, FEED_FORWARD)
