"""Writes a tiny Qwen2.5-VL checkpoint folder with random weights, without torch.

The weights come from SHAKE-256 over the tensor's name, so they are the same on every machine and in every
NumPy; the golden file in tests/golden rests on that. Both config layouts, three storage types, any number
of shards, tied and untied output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vrt_lite.conversion.families import expected_shapes
from vrt_lite.conversion.weights import JsonObject

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
WIDTH, FEED_FORWARD, HEADS, KV_HEADS, LAYERS, ROWS = 64, 96, 2, 1, 2, 320


@dataclass(frozen=True)
class TextShape:
    """The language model's shape."""

    width: int = WIDTH
    feed_forward: int = FEED_FORWARD
    heads: int = HEADS
    kv_heads: int = KV_HEADS
    layers: int = LAYERS
    rows: int = ROWS


# 80 is no multiple of 32: rows of that length cannot be q8_0, as 3420 in the 7B's tower cannot.
VISION_FEED_FORWARD, DEPTH, PATCH = 80, 4, 14
MERGES = ("h e", "l l", "o w", "he ll", "Ġ w", "t h", "th e", "Ġ the", "i n", "e r", "r e", "Ġ c")
ADDED = (  # in order from the first free id; the second is not marked special and yet is
    ("<|endoftext|>", True),
    ("<|fim_prefix|>", False),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|image_pad|>", True),
    ("<tool_call>", False),
)
FIRST_ADDED = 256 + len(MERGES)


def make(
    folder: Path,
    *,
    layout: str = "new",
    dtype: str = "BF16",
    shards: int = 1,
    tied: bool = True,
    nested_names: bool = False,
    rows: int = ROWS,
    width: int = WIDTH,
    shape: TextShape | None = None,
) -> None:
    """Write the folder."""
    folder.mkdir(parents=True)
    shape = shape or TextShape(rows=rows, width=width)
    values = config(layout, tied=tied, shape=shape)
    weights = {name: stored(random_weights(name, sizes), dtype) for name, sizes in shapes_of(values).items()}
    names = sorted(weights)
    groups = [names[i::shards] for i in range(shards)]
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    files = ["model.safetensors"] if shards == 1 else files
    weight_map = {}
    for file, group in zip(files, groups, strict=True):
        renamed = {nested(name) if nested_names else name: weights[name] for name in group}
        write_safetensors(folder / file, renamed, dtype)
        weight_map |= dict.fromkeys(renamed, file)
    if shards > 1:
        write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    write_json(folder / "config.json", values)
    write_json(folder / "tokenizer.json", tokenizer(layout))
    pad = {"__type": "AddedToken", "content": "<|endoftext|>", "special": True}
    settings = {"eos_token": "<|im_end|>", "pad_token": pad, "bos_token": None}
    write_json(folder / "tokenizer_config.json", settings | {"chat_template": "{{ messages }}"})
    write_json(folder / "preprocessor_config.json", preprocessor(layout))


def config(layout: str, *, tied: bool, shape: TextShape | None = None) -> dict[str, Any]:
    """config.json as transformers 5 ("new") and transformers 4 ("old") write it."""
    shape = shape or TextShape()
    head = shape.width // shape.heads
    sections = [head // 8, head // 2 - head // 8 - head // 4, head // 4]
    ids = {"bos_token_id": FIRST_ADDED, "eos_token_id": FIRST_ADDED + 3}
    text = text_config(shape) | ids | {"max_position_embeddings": 4096, "use_sliding_window": False}
    vision = tower_config(WIDTH, DEPTH, HEADS, PATCH) | {"out_hidden_size": shape.width, "hidden_act": "silu"}
    vision |= {"fullatt_block_indexes": [1, 3], "intermediate_size": VISION_FEED_FORWARD}
    vision |= {"tokens_per_second": 2, "window_size": 112}
    outer: dict[str, Any] = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
    outer["tie_word_embeddings"] = tied
    if layout == "old":
        rope = {"rope_scaling": {"type": "mrope", "mrope_section": sections}, "rope_theta": 1000000.0}
        return outer | text | rope | {"vision_config": vision | {"in_chans": 3}}
    rope = {"rope_type": "default", "mrope_section": sections, "rope_theta": 1000000.0}
    text |= {"rope_parameters": rope, "model_type": "qwen2_5_vl_text", "tie_word_embeddings": tied}
    kind = {"model_type": "qwen2_5_vl_vision", "in_channels": 3}
    return outer | {"text_config": text, "vision_config": vision | kind}


def text_config(shape: TextShape) -> dict[str, Any]:
    """The keys that the language models of all families have."""
    return {
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-6,
        "vocab_size": shape.rows,
    }


def tower_config(width: int, depth: int, heads: int, patch: int) -> dict[str, Any]:
    """The keys that the vision towers of all families have."""
    sizes = {"hidden_size": width, "depth": depth, "num_heads": heads, "patch_size": patch}
    return sizes | {"spatial_merge_size": 2, "temporal_patch_size": 2}


def tokenizer(layout: str, added: Sequence[tuple[str, bool]] = ADDED) -> dict[str, Any]:
    """tokenizer.json: all bytes, a dozen merges, the added tokens; merges as text in the old layout."""
    words = [*_byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    merges = list(MERGES) if layout == "old" else [merge.split(" ") for merge in MERGES]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": FIRST_ADDED + i, "content": word, "special": special, **flags}
            for i, (word, special) in enumerate(added)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": level if layout == "old" else None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "merges": merges},
    }


def preprocessor(layout: str) -> dict[str, Any]:
    """preprocessor_config.json; the pixel bounds have moved into `size`."""
    bounds = (3136, 12845056)
    pixels: dict[str, Any] = dict(zip(("min_pixels", "max_pixels"), bounds, strict=True))
    if layout == "new":
        pixels = {"size": dict(zip(("shortest_edge", "longest_edge"), bounds, strict=True))}
    colours = {"image_mean": [0.48145466, 0.4578275, 0.40821073]}
    return pixels | colours | {"image_std": [0.26862954, 0.26130258, 0.27577711]}


def shapes_of(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by its oldest name. The golden file of llama.cpp's converter tells if one is wrong."""
    return expected_shapes(JsonObject("config.json", values))


def random_weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values in (-1, 1), the same everywhere; the embedding's last rows nearly 0, as in published ones."""
    count = int(np.prod(shape))
    words = np.frombuffer(hashlib.shake_256(name.encode()).digest(2 * count), "<i2")
    values = (words.astype(np.float32) / 32768).reshape(shape)
    if name == "model.embed_tokens.weight":
        values[-8:] *= np.float32(1e-38)
    return values


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """The words a shard holds; a bfloat16 here is the cut, not rounded, float32."""
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype("<u2")
    return values.astype({"F16": "<f2", "F32": "<f4"}[dtype])


def widen(words: np.ndarray, dtype: str) -> np.ndarray:
    """Bit by bit, by another way than the converter's: zero bytes put below each word."""
    if dtype != "BF16":
        return words.astype(np.float32)
    pairs = np.stack([np.zeros_like(words), words], axis=-1)
    return pairs.view("<f4").reshape(words.shape)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str) -> None:
    """The container: header length, JSON header, data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, words in tensors.items():
        end = offset + words.nbytes
        header[name] = {"dtype": dtype, "shape": list(words.shape), "data_offsets": [offset, end]}
        offset = end
    write_shard(path, json.dumps(header).encode(), b"".join(w.tobytes() for w in tensors.values()))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of an F32 shard, in a memory of their own."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    del header["__metadata__"]
    places = {name: slice(*(start + offset for offset in entry["data_offsets"])) for name, entry in header.items()}
    return {
        name: np.frombuffer(data[place], "<f4").reshape(header[name]["shape"]).copy() for name, place in places.items()
    }


def write_shard(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _byte_letters() -> list[str]:
    """GPT-2's letter for each byte, printable ones first."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def nested(name: str) -> str:
    """As trainers on newer transformers save."""
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)
