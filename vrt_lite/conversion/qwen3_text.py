"""Maps Qwen3-VL's language model to GGUF: norms of queries and keys, no biases, and heads of a width of their own.

Names and order of the fields are those of llama.cpp's conversion/qwen3vl.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from gguf import GGUFValueType

from vrt_lite.conversion import text_tensors
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement

ARCHITECTURE = "qwen3vl"
_DEEP = "deepstack_visual_indexes"


def config(whole: Section) -> Section:
    """Return the language model's keys of config.json, and the vision tower's that says how many layers it feeds."""
    text = text_tensors.config(whole)
    text.require(attention_bias=False)
    deep = {_DEEP: whole.section("vision_config").values.get(_DEEP)}
    return Section(whole.where, deep).over(text)


def placements(text: Section) -> Iterator[Placement]:
    """Return every tensor that the language model must have; a tied output is not stored twice."""
    width, head = text.integer("hidden_size"), text.integer("head_dim")
    queries, kv = (head * text.integer(f"num_{kind}_heads") for kind in ("attention", "key_value"))
    ff = text.integer("intermediate_size")
    yield from text_tensors.outer_placements(text)
    for i in range(text.integer("num_hidden_layers", below=1024)):
        for source, shape, name in (
            ("input_layernorm", (width,), "attn_norm"),
            ("self_attn.q_proj", (queries, width), "attn_q"),
            ("self_attn.q_norm", (head,), "attn_q_norm"),
            ("self_attn.k_proj", (kv, width), "attn_k"),
            ("self_attn.k_norm", (head,), "attn_k_norm"),
            ("self_attn.v_proj", (kv, width), "attn_v"),
            ("self_attn.o_proj", (width, queries), "attn_output"),
            ("post_attention_layernorm", (width,), "ffn_norm"),
            ("mlp.gate_proj", (ff, width), "ffn_gate"),
            ("mlp.up_proj", (ff, width), "ffn_up"),
            ("mlp.down_proj", (width, ff), "ffn_down"),
        ):
            yield Placement(f"model.layers.{i}.{source}.weight", shape, f"blk.{i}.{name}.weight")


def fields(text: Section, _: Section | None = None) -> Iterator[GgufField]:
    """Return the architecture's fields."""
    head = text.integer("head_dim")
    yield from text_tensors.shared_fields(text, ARCHITECTURE, head=head)
    for kind in ("key", "value"):
        yield GgufField(f"{ARCHITECTURE}.attention.{kind}_length", head, GGUFValueType.UINT32)


def late_fields(text: Section) -> Iterator[GgufField]:
    """Return the field that llama.cpp's converter writes after the file's type."""
    deep = text.values.get(_DEEP)
    count = len(cast("list[object]", deep)) if isinstance(deep, list) else 0
    yield GgufField(f"{ARCHITECTURE}.n_deepstack_layers", count, GGUFValueType.UINT32)
