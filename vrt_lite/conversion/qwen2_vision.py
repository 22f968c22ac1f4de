"""Maps Qwen2-VL's vision tower to GGUF: as that of Qwen2.5-VL, but with layer norms, without a gate, and no windows."""

from __future__ import annotations

from collections.abc import Iterator

from vrt_lite.conversion import text_tensors
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement
from vrt_lite.conversion.tower_parts import depth, kind_fields, linear, norm, patch_convolution, sizes, split_qkv


def config(whole: Section) -> Section:
    """Return the tower's keys of config.json. A value that llama.cpp has built in is refused if it is another."""
    vision, text_width = whole.section("vision_config"), text_tensors.config(whole).integer("hidden_size")
    vision.require(hidden_act="quick_gelu", in_channels=3, in_chans=3, spatial_merge_size=2)
    vision.require(temporal_patch_size=2, hidden_size=text_width)
    return vision


def placements(vision: Section) -> Iterator[Placement]:
    """Return every tensor that the tower must have."""
    width = vision.integer("embed_dim")
    ff = vision.integer("mlp_ratio", below=64) * width
    yield from patch_convolution(vision, width)
    yield from norm("visual.merger.ln_q", width, "v.post_ln")
    yield from linear("visual.merger.mlp.0", 4 * width, 4 * width, "mm.0")
    yield from linear("visual.merger.mlp.2", vision.integer("hidden_size"), 4 * width, "mm.2")
    for i in range(depth(vision)):
        source, target = f"visual.blocks.{i}", f"v.blk.{i}"
        yield from norm(f"{source}.norm1", width, f"{target}.ln1")
        yield from norm(f"{source}.norm2", width, f"{target}.ln2")
        yield from split_qkv(f"{source}.attn.qkv", width, f"{target}.attn")
        yield from linear(f"{source}.attn.proj", width, width, f"{target}.attn_out")
        yield from linear(f"{source}.mlp.fc1", ff, width, f"{target}.ffn_up")
        yield from linear(f"{source}.mlp.fc2", width, ff, f"{target}.ffn_down")


def fields(vision: Section, preprocessor: Section | None) -> Iterator[GgufField]:
    """Return the projector's fields; without a preprocessor only the tower's sizes."""
    out = vision.integer("hidden_size")
    # llama.cpp's converter writes the text's width as that of the feed-forward part; the engine does not read it.
    own = {"projection_dim": out, "feed_forward_length": out, "embedding_length": vision.integer("embed_dim")}
    yield from sizes(vision, own)
    if preprocessor:
        yield from kind_fields(preprocessor, "qwen2vl_merger")
