"""Maps Qwen2.5-VL's vision tower and its merger to GGUF: stored tensors to GGUF tensors, the config to `clip` fields.

Names and order of the fields are those of llama.cpp's conversion/qwenvl.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from gguf import GGUFValueType

from vrt_lite.conversion import text_tensors
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement
from vrt_lite.conversion.tower_parts import depth, kind_fields, linear, patch_convolution, sizes, split_qkv


def config(whole: Section) -> Section:
    """Return the tower's keys of config.json.

    llama.cpp has some values built in. So other values would be wrong without a message, and are refused.
    """
    vision, text_width = whole.section("vision_config"), text_tensors.config(whole).integer("hidden_size")
    vision.require(hidden_act="silu", in_channels=3, in_chans=3, spatial_merge_size=2)
    vision.require(temporal_patch_size=2, window_size=112, out_hidden_size=text_width)
    return vision


def placements(vision: Section) -> Iterator[Placement]:
    """Return every tensor that the tower must have."""
    width, ff = vision.integer("hidden_size"), vision.integer("intermediate_size")
    yield from patch_convolution(vision, width)
    yield Placement("visual.merger.ln_q.weight", (width,), "v.post_ln.weight")
    yield from linear("visual.merger.mlp.0", 4 * width, 4 * width, "mm.0")
    yield from linear("visual.merger.mlp.2", vision.integer("out_hidden_size"), 4 * width, "mm.2")
    for i in range(depth(vision)):
        source, target = f"visual.blocks.{i}", f"v.blk.{i}"
        yield Placement(f"{source}.norm1.weight", (width,), f"{target}.ln1.weight")
        yield Placement(f"{source}.norm2.weight", (width,), f"{target}.ln2.weight")
        yield from split_qkv(f"{source}.attn.qkv", width, f"{target}.attn")
        yield from linear(f"{source}.attn.proj", width, width, f"{target}.attn_out")
        yield from linear(f"{source}.mlp.gate_proj", ff, width, f"{target}.ffn_gate")
        yield from linear(f"{source}.mlp.up_proj", ff, width, f"{target}.ffn_up")
        yield from linear(f"{source}.mlp.down_proj", width, ff, f"{target}.ffn_down")


def fields(vision: Section, preprocessor: Section | None) -> Iterator[GgufField]:
    """Return the projector's fields; without a preprocessor only the tower's sizes."""
    yield from sizes(
        vision,
        {
            "projection_dim": vision.integer("out_hidden_size"),
            "embedding_length": vision.integer("hidden_size"),
            "feed_forward_length": vision.integer("intermediate_size"),
        },
    )
    if preprocessor:
        yield from kind_fields(
            preprocessor,
            "qwen2.5vl_merger",
            GgufField("clip.use_silu", True, GGUFValueType.BOOL),
            GgufField("clip.vision.n_wa_pattern", _window_pattern(vision), GGUFValueType.UINT32),
        )


def _window_pattern(vision: Section) -> int:
    """Return n, if every n-th block attends to the whole image: GGUF has one number for this."""
    blocks = depth(vision)
    match vision.values.get("fullatt_block_indexes"):
        case [int(first), *_] as full if first >= 1 and full == list(range(first, blocks, first + 1)):
            return first + 1
        case _:
            pass
    raise vision.value_error("fullatt_block_indexes", f"every n-th of {blocks} blocks")
