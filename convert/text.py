"""The language model: stored tensor to GGUF tensor, config to `qwen2vl` fields. Pure mappings.

Names and order of fields as llama.cpp's conversion/qwenvl.py writes them. Refuses to know bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gguf import GGUFValueType

from convert.checkpoint import Checkpoint, Section
from convert.write import Field, Placement
from vrt_lite.errors import ModelError

ARCHITECTURE = "qwen2vl"


def config(checkpoint: Checkpoint) -> Section:
    """The language model's keys, wherever they lie: in `text_config`, or beside `vision_config`."""
    found = checkpoint.config.section("text_config").over(checkpoint.config)
    found.demand(hidden_act="silu", use_sliding_window=False)
    return found


def is_tied(checkpoint: Checkpoint) -> bool:
    """Whether the output is the embedding. The outer key is the one that transformers obeys."""
    outer = checkpoint.config.values
    return outer.get("tie_word_embeddings", config(checkpoint).values.get("tie_word_embeddings")) is True


def placements(text: Section, *, tied: bool) -> Iterator[Placement]:
    """Every tensor the language model must have; a tied output is not stored twice."""
    width, ff, rows = (
        text.integer("hidden_size"),
        text.integer("intermediate_size"),
        text.integer("vocab_size"),
    )
    kv = width // text.integer("num_attention_heads") * text.integer("num_key_value_heads")
    yield Placement("model.embed_tokens.weight", (rows, width), "token_embd.weight")
    yield Placement("model.norm.weight", (width,), "output_norm.weight")
    if not tied:
        yield Placement("lm_head.weight", (rows, width), "output.weight")
    for i in range(text.integer("num_hidden_layers", below=1024)):
        for source, shape, name in (
            ("input_layernorm.weight", (width,), "attn_norm.weight"),
            ("self_attn.q_proj.weight", (width, width), "attn_q.weight"),
            ("self_attn.q_proj.bias", (width,), "attn_q.bias"),
            ("self_attn.k_proj.weight", (kv, width), "attn_k.weight"),
            ("self_attn.k_proj.bias", (kv,), "attn_k.bias"),
            ("self_attn.v_proj.weight", (kv, width), "attn_v.weight"),
            ("self_attn.v_proj.bias", (kv,), "attn_v.bias"),
            ("self_attn.o_proj.weight", (width, width), "attn_output.weight"),
            ("post_attention_layernorm.weight", (width,), "ffn_norm.weight"),
            ("mlp.gate_proj.weight", (ff, width), "ffn_gate.weight"),
            ("mlp.up_proj.weight", (ff, width), "ffn_up.weight"),
            ("mlp.down_proj.weight", (width, ff), "ffn_down.weight"),
        ):
            yield Placement(f"model.layers.{i}.{source}", shape, f"blk.{i}.{name}")


def fields(text: Section) -> Iterator[Field]:
    """The architecture's fields."""
    rope = text.section("rope_parameters").over(text.section("rope_scaling"))
    if (kind := rope.values.get("rope_type", rope.values.get("type", "default"))) not in ("default", "mrope"):
        raise ModelError(f"{text.where}: rope type is {kind!r:.20}, only 'default' and 'mrope' can be exported")
    for key, value in (
        ("block_count", text.integer("num_hidden_layers")),
        ("context_length", text.integer("max_position_embeddings")),
        ("embedding_length", text.integer("hidden_size")),
        ("feed_forward_length", text.integer("intermediate_size")),
        ("attention.head_count", text.integer("num_attention_heads")),
        ("attention.head_count_kv", text.integer("num_key_value_heads")),
    ):
        yield Field(f"{ARCHITECTURE}.{key}", value, GGUFValueType.UINT32)
    match rope.values.get("mrope_section"):
        case [int(t), int(y), int(x)] if min(t, y, x) >= 0 and 2 * (t + y + x) == _head(text):
            yield Field(f"{ARCHITECTURE}.rope.dimension_sections", [t, y, x, 0], GGUFValueType.ARRAY)
        case _:
            raise rope.unfit("mrope_section", f"three counts, half of the head's {_head(text)} in sum")
    theta = rope.over(text).real("rope_theta")
    yield Field(f"{ARCHITECTURE}.rope.freq_base", theta, GGUFValueType.FLOAT32)
    epsilon = text.real("rms_norm_eps")
    yield Field(f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon", epsilon, GGUFValueType.FLOAT32)


def _head(text: Section) -> int:
    return text.integer("hidden_size") // text.integer("num_attention_heads")


def own_fields(checkpoint: Checkpoint) -> Iterator[Field]:
    """What a profile needs and GGUF has no key for. In the text file: mtmd shows no projector metadata."""
    vision, pixels = checkpoint.config.section("vision_config"), checkpoint.preprocessor
    if "tokens_per_second" in vision.values:
        clock = vision.real("tokens_per_second")
        yield Field("vrt_lite.tokens_per_second", clock, GGUFValueType.FLOAT32)
    # transformers 5 writes the bounds as edges of `size`, though they still count pixels.
    for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        place, key = (pixels, old) if pixels.values.get(old) else (pixels.section("size"), new)
        if key in place.values:
            yield Field(f"vrt_lite.vision.{old}", place.integer(key), GGUFValueType.UINT32)
