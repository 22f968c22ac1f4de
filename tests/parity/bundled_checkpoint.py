"""The bundled GGUF pair turned back into a checkpoint folder: a judge that judges, for the reference to load.

The placements of `convert` read backwards, weights widened to F32: what the Q8_0 file holds is then exact. NumPy and
gguf alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "convert"))

import synthetic_checkpoint as synthetic

from vrt_lite.conversion.families import list_targets, read_halves
from vrt_lite.conversion.gguf_writer import Target
from vrt_lite.conversion.weights import JsonObject

CONTROL, USER_DEFINED = 3, 4


def make(folder: Path, pair: tuple[Path, Path]) -> None:
    """Write the folder of a text GGUF and its projector, in the new layout."""
    folder.mkdir(parents=True)
    words, tower = (gguf.GGUFReader(path) for path in pair)
    texts, shown = _text_config(words), _vision_config(tower)
    tied = "output.weight" not in {tensor.name for tensor in words.tensors}
    texts["tie_word_embeddings"] = tied
    outer: dict[str, Any] = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
    outer["tie_word_embeddings"] = tied
    config = outer | {"text_config": texts, "vision_config": shown}
    weights: dict[str, NDArray[np.float32]] = {}
    for half, reader in zip(read_halves(JsonObject("GGUF", config)), (words, tower), strict=True):
        weights |= _weights(reader, list_targets(half))
    synthetic.write_safetensors(folder / "model.safetensors", weights, "F32")
    synthetic.write_json(folder / "config.json", config)
    synthetic.write_json(folder / "tokenizer.json", _tokenizer(words))
    colours = {key: _value(tower, f"clip.vision.{key}") for key in ("image_mean", "image_std")}
    synthetic.write_json(folder / "preprocessor_config.json", colours)


def _value(reader: gguf.GGUFReader, key: str) -> Any:
    return reader.fields[key].contents()


def _text_config(reader: gguf.GGUFReader) -> dict[str, Any]:
    keys = {
        "num_hidden_layers": "block_count",
        "max_position_embeddings": "context_length",
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    }
    found = {ours: _value(reader, f"qwen2vl.{theirs}") for ours, theirs in keys.items()}
    sections = _value(reader, "qwen2vl.rope.dimension_sections")[:3]
    theta = _value(reader, "qwen2vl.rope.freq_base")
    rope = {"rope_type": "default", "mrope_section": sections, "rope_theta": theta}
    rows = len(_value(reader, "tokenizer.ggml.tokens"))
    return found | {"vocab_size": rows, "rope_parameters": rope, "hidden_act": "silu", "use_sliding_window": False}


def _vision_config(reader: gguf.GGUFReader) -> dict[str, Any]:
    keys = {
        "depth": "block_count",
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_heads": "attention.head_count",
        "out_hidden_size": "projection_dim",
        "patch_size": "patch_size",
    }
    found = {ours: _value(reader, f"clip.vision.{theirs}") for ours, theirs in keys.items()}
    every = _value(reader, "clip.vision.n_wa_pattern")
    found["fullatt_block_indexes"] = list(range(every - 1, found["depth"], every))
    built_in = {"spatial_merge_size": 2, "temporal_patch_size": 2, "tokens_per_second": 2, "window_size": 112}
    return found | built_in | {"hidden_act": "silu", "in_channels": 3}


def _weights(reader: gguf.GGUFReader, placements: Iterable[Target]) -> dict[str, NDArray[np.float32]]:
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    found: dict[str, NDArray[np.float32]] = {}
    for placement in placements:
        tensor = tensors[placement.name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        whole = found.setdefault(placement.source, np.empty(placement.source_shape, np.float32))
        part = whole[placement.part]
        part[...] = values.reshape(part.shape)
    return found


def _tokenizer(reader: gguf.GGUFReader) -> dict[str, Any]:
    tokens, kinds = (_value(reader, f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    found = synthetic.tokenizer("new")
    found["added_tokens"] = [
        {"id": i, "content": word, "special": kind == CONTROL, **flags}
        for i, (word, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    ]
    found["model"]["vocab"] = {word: i for i, (word, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == 1}
    found["model"]["merges"] = [merge.split(" ") for merge in _value(reader, "tokenizer.ggml.merges")]
    return found
