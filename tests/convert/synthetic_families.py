"""Writes tiny checkpoint folders of Qwen2-VL, with or without a head, and of Qwen3-VL, with random weights. No torch.

The weights have unit gain, so that every part matters and no part blows rounding up. They are the same everywhere. The
vocabulary has the control tokens of the published ones. Qwen3-VL's heads are wider than width / heads, and three of its
vision blocks feed the text model.
"""

from __future__ import annotations

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
SHAPE = synthetic.TextShape(WIDTH, FEED_FORWARD, HEADS, KV_HEADS, LAYERS, ROWS)
Weights = dict[str, NDArray[np.float32]]
Shape = tuple[int, ...]


def make(folder: Path, family: str, *, dtype: str = "F32", tied: bool = True, layout: str = "old") -> None:
    """Write the folder of a `family`, one of "qwen2_vl" and "qwen3_vl"."""
    make_without_weights(folder, family, tied=tied, layout=layout)
    weights = random_weights(family, tied=tied)
    words = {name: synthetic.stored(values, dtype) for name, values in weights.items()}
    synthetic.write_safetensors(folder / "model.safetensors", words, dtype)


def make_without_weights(folder: Path, family: str, *, tied: bool = True, layout: str = "old") -> None:
    """Write the small files of a folder."""
    folder.mkdir(parents=True)
    synthetic.write_json(folder / "config.json", _config(family, tied=tied))
    synthetic.write_json(folder / "tokenizer.json", synthetic.tokenizer("new", [(word, True) for word in CONTROL]))
    settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    synthetic.write_json(folder / "tokenizer_config.json", settings)
    pixels = synthetic.preprocessor(layout)
    if family == "qwen3_vl":
        pixels |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "patch_size": 16}
    synthetic.write_json(folder / "preprocessor_config.json", pixels)


def random_weights(family: str, *, tied: bool = True) -> Weights:
    """The weights by published name."""
    shapes = synthetic.shapes_of(_config(family, tied=tied))
    published = {name if family == "qwen2_vl" else synthetic.nested(name): shape for name, shape in shapes.items()}
    return {name: unit_gain(name, shape) for name, shape in published.items()}


def unit_gain(name: str, shape: Shape) -> NDArray[np.float32]:
    """Uniform values of unit gain, norms around 1, small biases."""
    drawn = synthetic.random_weights(f"family {name}", shape)
    if len(shape) == 1:
        is_norm = name.endswith(".weight")
        return np.float32(1) + drawn / 4 if is_norm else drawn / 4
    if "embed_tokens" in name or "pos_embed" in name:
        return drawn
    return (drawn * np.float32(np.sqrt(3 / np.prod(shape[1:])))).astype(np.float32)


def _config(family: str, *, tied: bool) -> dict[str, Any]:
    text = synthetic.text_config(SHAPE) | {"max_position_embeddings": 8192, "tie_word_embeddings": tied}
    text |= {"bos_token_id": FIRST_ADDED, "eos_token_id": FIRST_ADDED + 2}
    if family == "qwen2_vl":
        vision = synthetic.tower_config(WIDTH, DEPTH, VISION_HEADS, 14) | {"embed_dim": VISION_WIDTH}
        vision |= {"in_chans": 3, "mlp_ratio": 4, "spatial_patch_size": 14}
        rope: dict[str, Any] = {"type": "mrope", "mrope_section": [4, 6, 6]}
        text |= {"rope_scaling": rope, "rope_theta": 1_000_000.0, "use_sliding_window": False}
        kind = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
        return text | kind | {"vision_config": vision}
    vision = synthetic.tower_config(VISION_WIDTH, DEPTH, VISION_HEADS, 16) | {"model_type": "qwen3_vl"}
    vision |= {"deepstack_visual_indexes": DEEP, "hidden_act": "gelu_pytorch_tanh", "in_channels": 3}
    vision |= {"intermediate_size": VISION_FEED_FORWARD, "num_position_embeddings": TABLE, "out_hidden_size": WIDTH}
    rope = {"mrope_interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default"}
    text |= {"attention_bias": False, "head_dim": HEAD, "model_type": "qwen3_vl_text"}
    text |= {"rope_scaling": rope, "rope_theta": 5_000_000}
    kind = {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": tied}
    words = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    words |= {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    ids = {f"{key}_token_id": FIRST_ADDED + CONTROL.index(word) for key, word in words.items()}
    return kind | ids | {"text_config": text, "vision_config": vision}
