"""Maps Qwen3-VL's vision tower to GGUF: a table of positions, qkv as one layer, and mergers behind some of its blocks.

Names and order of the fields are those of llama.cpp's conversion/qwen3vl.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import cast

from gguf import GGUFValueType

from vrt_lite.conversion import qwen3_text
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement
from vrt_lite.conversion.tower_parts import depth, kind_fields, linear, norm, patch_convolution, sizes


def config(whole: Section) -> Section:
    """Return the tower's keys of config.json. A value that llama.cpp has built in is refused if it is another."""
    vision, text_width = whole.section("vision_config"), qwen3_text.config(whole).integer("hidden_size")
    vision.require(hidden_act="gelu_pytorch_tanh", in_channels=3, spatial_merge_size=2)
    vision.require(temporal_patch_size=2, out_hidden_size=text_width)
    return vision


def deep_blocks(vision: Section) -> list[int]:
    """Return the blocks whose outputs go, through a merger each, to the first layers of the text model."""
    match vision.values.get("deepstack_visual_indexes"):
        case [*found] if all(type(i) is int for i in found):
            blocks = cast("list[int]", found)
            if blocks == sorted(set(blocks)) and all(0 <= i < depth(vision) for i in blocks):
                return blocks
        case _:
            pass
    raise vision.value_error("deepstack_visual_indexes", "blocks in rising order")


def placements(vision: Section) -> Iterator[Placement]:
    """Return every tensor that the tower must have."""
    width, ff = vision.integer("hidden_size"), vision.integer("intermediate_size")
    merged, out = 4 * width, vision.integer("out_hidden_size")
    table = (vision.integer("num_position_embeddings"), width)
    yield from patch_convolution(vision, width)
    yield Placement("visual.patch_embed.proj.bias", (width,), "v.patch_embd.bias")
    yield Placement("visual.pos_embed.weight", table, "v.position_embd.weight")
    yield from norm("visual.merger.norm", width, "v.post_ln")
    yield from linear("visual.merger.linear_fc1", merged, merged, "mm.0")
    yield from linear("visual.merger.linear_fc2", out, merged, "mm.2")
    for i in range(depth(vision)):
        source, target = f"visual.blocks.{i}", f"v.blk.{i}"
        yield from norm(f"{source}.norm1", width, f"{target}.ln1")
        yield from norm(f"{source}.norm2", width, f"{target}.ln2")
        yield from linear(f"{source}.attn.qkv", 3 * width, width, f"{target}.attn_qkv")
        yield from linear(f"{source}.attn.proj", width, width, f"{target}.attn_out")
        yield from linear(f"{source}.mlp.linear_fc1", ff, width, f"{target}.ffn_up")
        yield from linear(f"{source}.mlp.linear_fc2", width, ff, f"{target}.ffn_down")
    for i, block in enumerate(deep_blocks(vision)):
        source, target = f"visual.deepstack_merger_list.{i}", f"v.deepstack.{block}"
        yield from norm(f"{source}.norm", merged, f"{target}.norm")
        yield from linear(f"{source}.linear_fc1", merged, merged, f"{target}.fc1")
        yield from linear(f"{source}.linear_fc2", out, merged, f"{target}.fc2")


def fields(vision: Section, preprocessor: Section | None) -> Iterator[GgufField]:
    """Return the projector's fields; without a preprocessor only the tower's sizes."""
    yield from sizes(
        vision,
        {
            "projection_dim": vision.integer("out_hidden_size"),
            "image_size": isqrt(vision.integer("num_position_embeddings")) * vision.integer("patch_size"),
            "embedding_length": vision.integer("hidden_size"),
            "feed_forward_length": vision.integer("intermediate_size"),
        },
    )
    if preprocessor:
        deep = [block in deep_blocks(vision) for block in range(depth(vision))]
        yield from kind_fields(
            preprocessor,
            "qwen3vl_merger",
            GgufField("clip.use_gelu", True, GGUFValueType.BOOL),
            GgufField("clip.vision.spatial_merge_size", 2, GGUFValueType.UINT32),
        )
        yield GgufField("clip.vision.is_deepstack_layers", deep, GGUFValueType.ARRAY)
