"""Writes a Qwen2.5-VL checkpoint of a published shape with random weights: for cost, never for answers.

There are the shapes of the 3B and the 7B, and a tiny one for tests. Weights are streamed: memory holds one block of
random numbers, whatever the size. The tokenizer has tokens for bytes, the words of `bench.reply_texts` and the control
tokens; the other rows of the vocabulary have no text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench import reply_texts

_BLOCK = 2**23
SHARD_BYTES = 4 * 2**30
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_CONTROL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
_ADDED = ("<tool_call>", "</tool_call>")


@dataclass(frozen=True, slots=True)
class Tower:
    """The vision tower's shape; every `full_every`-th block attends to the whole picture."""

    depth: int
    width: int
    feed_forward: int
    heads: int
    full_every: int = 8


@dataclass(frozen=True, slots=True)
class CheckpointShape:
    """The text model's shape, and its vision tower's."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    rows: int
    tied: bool
    tower: Tower = Tower(32, 1280, 3420, 16)


SHAPES = {
    "3b": CheckpointShape(36, 2048, 16, 2, 11_008, 151_936, tied=True),
    "7b": CheckpointShape(28, 3584, 28, 4, 18_944, 152_064, tied=False),
    # Not a published model: it has all parts, and a judgement takes seconds.
    "tiny": CheckpointShape(9, 256, 2, 1, 512, 2048, tied=False, tower=Tower(2, 160, 320, 2, full_every=2)),
}


def cut(shape: CheckpointShape, *, layers: int | None = None, vision_layers: int | None = None) -> CheckpointShape:
    """Return the shape with fewer layers. Raises ValueError for a tower without a block of full attention."""
    tower = shape.tower
    if vision_layers is not None:
        if vision_layers % tower.full_every:
            raise ValueError(f"vision layers are {vision_layers}, needs to be a multiple of {tower.full_every}")
        tower = replace(tower, depth=vision_layers)
    return replace(shape, layers=layers or shape.layers, tower=tower)


def write(folder: Path, shape: CheckpointShape, *, shard_bytes: int = SHARD_BYTES) -> int:
    """Write a checkpoint of this shape to `folder` (BF16, shards of 4 GB). Returns the bytes of its tensors.

    config.json is written last, so a folder that has it is whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[list[tuple[str, tuple[int, ...]]]] = [[]]
    held = total = 0
    for tensor in tensors(shape):
        size = 2 * math.prod(tensor[1])
        if held and held + size > shard_bytes:
            shards.append([])
            held = 0
        shards[-1].append(tensor)
        held += size
        total += size
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for file, held_by in zip(names, shards, strict=True):
        _write_shard(folder / file, held_by)
    weight_map = {tensor: file for file, held_by in zip(names, shards, strict=True) for tensor, _ in held_by}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    write_documents(folder, shape)
    return total


def write_documents(folder: Path, shape: CheckpointShape) -> None:
    """Write all files of a checkpoint except the weights."""
    documents = {
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False},
        "preprocessor_config.json": {
            "min_pixels": 3136,
            "max_pixels": 12_845_056,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
        "config.json": _config(shape),
    }
    for file, document in documents.items():
        (folder / file).write_text(json.dumps(document), encoding="utf-8")


def size_bytes(shape: CheckpointShape) -> int:
    """Return the bytes of the tensors of a checkpoint, in BF16."""
    return sum(2 * math.prod(dimensions) for _, dimensions in tensors(shape))


def tensors(shape: CheckpointShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of every tensor of a checkpoint."""
    w, kv = shape.width, shape.width // shape.heads * shape.kv_heads
    yield "model.embed_tokens.weight", (shape.rows, w)
    for i in range(shape.layers):
        block = f"model.layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{block}.{norm}.weight", (w,)
        for part, rows in (("q", w), ("k", kv), ("v", kv)):
            yield f"{block}.self_attn.{part}_proj.weight", (rows, w)
            yield f"{block}.self_attn.{part}_proj.bias", (rows,)
        yield f"{block}.self_attn.o_proj.weight", (w, w)
        for part in ("gate", "up"):
            yield f"{block}.mlp.{part}_proj.weight", (shape.feed_forward, w)
        yield f"{block}.mlp.down_proj.weight", (w, shape.feed_forward)
    yield "model.norm.weight", (w,)
    if not shape.tied:
        yield "lm_head.weight", (shape.rows, w)
    yield from _vision_tensors(shape.tower, w)


def _vision_tensors(tower: Tower, out: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    w, feed = tower.width, tower.feed_forward
    yield "visual.patch_embed.proj.weight", (w, 3, 2, 14, 14)
    for i in range(tower.depth):
        block = f"visual.blocks.{i}"
        for norm in ("norm1", "norm2"):
            yield f"{block}.{norm}.weight", (w,)
        parts = (("attn.qkv", 3 * w, w), ("attn.proj", w, w), ("mlp.gate_proj", feed, w), ("mlp.up_proj", feed, w))
        for part, rows, columns in (*parts, ("mlp.down_proj", w, feed)):
            yield f"{block}.{part}.weight", (rows, columns)
            yield f"{block}.{part}.bias", (rows,)
    yield "visual.merger.ln_q.weight", (w,)
    for part, rows in (("0", 4 * w), ("2", out)):
        yield f"visual.merger.mlp.{part}.weight", (rows, 4 * w)
        yield f"visual.merger.mlp.{part}.bias", (rows,)


def _write_shard(path: Path, tensors: list[tuple[str, tuple[int, ...]]]) -> None:
    header: dict[str, object] = {}
    at = 0
    for name, shape in tensors:
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    head = json.dumps(header).encode()
    # The same block of numbers is repeated: the cost does not depend on the values.
    noise = np.random.default_rng(0).standard_normal(_BLOCK).astype(np.float32) * 0.02
    block = (noise.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        while at:
            part = min(at, len(block))
            file.write(block[:part])
            at -= part


def _config(shape: CheckpointShape) -> dict[str, object]:
    tower, first, head = shape.tower, _first_added(), shape.width // shape.heads
    ids = {name: first + i for i, name in enumerate((*_CONTROL, *_ADDED))}
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": 128_000,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [head // 8, head * 3 // 16, head * 3 // 16]},
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": shape.rows,
        "vision_config": {
            "depth": tower.depth,
            "hidden_act": "silu",
            "hidden_size": tower.width,
            "intermediate_size": tower.feed_forward,
            "num_heads": tower.heads,
            "in_chans": 3,
            "out_hidden_size": shape.width,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": list(range(tower.full_every - 1, tower.depth, tower.full_every)),
            "tokens_per_second": 2,
            "temporal_patch_size": 2,
        },
    }


def _first_added() -> int:
    """Return the id of the first control token, which follows the bytes and the learnt words."""
    return 256 + len(reply_texts.merges())


def _tokenizer() -> dict[str, object]:
    """Build a tokenizer with the published spelling of bytes, the learnt merges, and the control tokens."""
    first, merges = _first_added(), reply_texts.merges()
    added = [
        {"id": first + i, "content": name, "special": name in _CONTROL, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for i, name in enumerate((*_CONTROL, *_ADDED))
    ]
    split = {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    vocabulary = {reply_texts.SPELLING[byte]: byte for byte in range(256)}
    vocabulary |= {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [f"{left} {right}" for left, right in merges]}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        "model": model,
    }
