"""Maps the language model of Qwen2-VL and Qwen2.5-VL to GGUF: stored tensors to GGUF tensors, the config to fields.

Names and order of the fields are those of llama.cpp's conversion/qwenvl.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from gguf import GGUFValueType

from vrt_lite.conversion.checkpoint import Checkpoint, Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement
from vrt_lite.errors import ModelError

ARCHITECTURE = "qwen2vl"
MOST_TOKENS = 2**22


def config(whole: Section) -> Section:
    """Return the language model's keys of config.json, which are in `text_config` or beside `vision_config`."""
    found = whole.section("text_config").over(whole)
    found.require(hidden_act="silu", use_sliding_window=False)
    # The outer key counts, as in transformers.
    outer = {key: value for key, value in whole.values.items() if key == "tie_word_embeddings"}
    return Section(whole.where, outer).over(found)


def is_tied(text: Section) -> bool:
    """Whether the output shares the embedding's weights."""
    return text.values.get("tie_word_embeddings") is True


def vocabulary_size(text: Section) -> int:
    """Return the number of tokens: rows of the embedding. It is limited, because each gets a text."""
    return text.integer("vocab_size", below=MOST_TOKENS)


def placements(text: Section) -> Iterator[Placement]:
    """Return every tensor that the language model must have; a tied output is not stored twice."""
    width, ff = text.integer("hidden_size"), text.integer("intermediate_size")
    kv = _head(text) * text.integer("num_key_value_heads")
    yield from outer_placements(text)
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


def outer_placements(text: Section) -> Iterator[Placement]:
    """Return the tensors outside the layers."""
    width, rows = text.integer("hidden_size"), vocabulary_size(text)
    yield Placement("model.embed_tokens.weight", (rows, width), "token_embd.weight")
    yield Placement("model.norm.weight", (width,), "output_norm.weight")
    if not is_tied(text):
        yield Placement("lm_head.weight", (rows, width), "output.weight")


def fields(text: Section, _: Section | None = None) -> Iterator[GgufField]:
    """Return the architecture's fields."""
    return shared_fields(text, ARCHITECTURE, head=_head(text))


def shared_fields(text: Section, architecture: str, *, head: int) -> Iterator[GgufField]:
    """Return the fields that every architecture here has; `head` is the width of a head."""
    rope = text.section("rope_parameters").over(text.section("rope_scaling"))
    if (kind := rope.values.get("rope_type", rope.values.get("type", "default"))) not in ("default", "mrope"):
        raise ModelError(f"{text.where}: rope type is {kind!r:.20}, only 'default' and 'mrope' can be exported")
    for key, source in (
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
    ):
        yield GgufField(f"{architecture}.{key}", text.integer(source), GGUFValueType.UINT32)
    match rope.values.get("mrope_section"):
        case [int(t), int(y), int(x)] if min(t, y, x) >= 0 and 2 * (t + y + x) == head:
            yield GgufField(f"{architecture}.rope.dimension_sections", [t, y, x, 0], GGUFValueType.ARRAY)
        case _:
            raise rope.value_error("mrope_section", f"three counts, half of the head's {head} in sum")
    theta = rope.over(text).real("rope_theta")
    yield GgufField(f"{architecture}.rope.freq_base", theta, GGUFValueType.FLOAT32)
    epsilon = text.real("rms_norm_eps")
    yield GgufField(f"{architecture}.attention.layer_norm_rms_epsilon", epsilon, GGUFValueType.FLOAT32)


def _head(text: Section) -> int:
    return text.integer("hidden_size") // text.integer("num_attention_heads")


def vrt_lite_fields(checkpoint: Checkpoint) -> Iterator[GgufField]:
    """Return fields that a profile needs and GGUF does not define. mtmd does not show the projector's metadata."""
    vision, pixels = checkpoint.config.section("vision_config"), checkpoint.preprocessor
    if "tokens_per_second" in vision.values:
        clock = vision.real("tokens_per_second")
        yield GgufField("vrt_lite.tokens_per_second", clock, GGUFValueType.FLOAT32)
    # transformers 5 writes the bounds as edges of `size`, although they are still numbers of pixels.
    for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        place, key = (pixels, old) if pixels.values.get(old) else (pixels.section("size"), new)
        if key in place.values:
            yield GgufField(f"vrt_lite.vision.{old}", place.integer(key), GGUFValueType.UINT32)
