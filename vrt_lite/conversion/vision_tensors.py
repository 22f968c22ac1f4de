"""Maps the vision tower and its merger to GGUF: stored tensors to GGUF tensors, the config to `clip` fields.

Names and order of the fields are those of llama.cpp's conversion/qwenvl.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from gguf import GGUFValueType

from vrt_lite.conversion import text_tensors
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement

ARCHITECTURE = "clip"
# transformers builds every norm of this tower with 1e-6, whatever config.json says about the text's.
NORM_EPSILON = 1e-6
# mtmd asks for an image size that this architecture, of any size, has no use for: upstream's default.
IMAGE_SIZE = 560


def config(whole: Section) -> Section:
    """Return the tower's keys of config.json.

    llama.cpp has some values built in. So other values would be wrong without a message, and are refused.
    """
    vision, text_width = whole.section("vision_config"), text_tensors.config(whole).integer("hidden_size")
    vision.require(hidden_act="silu", in_channels=3, in_chans=3, spatial_merge_size=2)
    vision.require(temporal_patch_size=2, window_size=112, out_hidden_size=text_width)
    return vision


def placements(vision: Section) -> Iterator[Placement]:
    """Return every tensor that the tower must have: qkv as three tensors, the 3-d patch convolution as two 2-d ones."""
    width, ff = vision.integer("hidden_size"), vision.integer("intermediate_size")
    merged, out = 4 * width, vision.integer("out_hidden_size")
    patch = (width, 3, 2, vision.integer("patch_size"), vision.integer("patch_size"))
    for frame, name in enumerate(("v.patch_embd.weight", "v.patch_embd.weight.1")):
        yield Placement("visual.patch_embed.proj.weight", patch, name, (slice(None), slice(None), frame))
    yield Placement("visual.merger.ln_q.weight", (width,), "v.post_ln.weight")
    yield Placement("visual.merger.mlp.0.weight", (merged, merged), "mm.0.weight")
    yield Placement("visual.merger.mlp.0.bias", (merged,), "mm.0.bias")
    yield Placement("visual.merger.mlp.2.weight", (out, merged), "mm.2.weight")
    yield Placement("visual.merger.mlp.2.bias", (out,), "mm.2.bias")
    for i in range(vision.integer("depth", below=1024)):
        source, target = f"visual.blocks.{i}", f"v.blk.{i}"
        yield Placement(f"{source}.norm1.weight", (width,), f"{target}.ln1.weight")
        yield Placement(f"{source}.norm2.weight", (width,), f"{target}.ln2.weight")
        for end, shape in (("weight", (3 * width, width)), ("bias", (3 * width,))):
            for j, part in enumerate("qkv"):
                rows = slice(j * width, (j + 1) * width)
                yield Placement(f"{source}.attn.qkv.{end}", shape, f"{target}.attn_{part}.{end}", (rows,))
        for old, new, rows, columns in (
            ("attn.proj", "attn_out", width, width),
            ("mlp.gate_proj", "ffn_gate", ff, width),
            ("mlp.up_proj", "ffn_up", ff, width),
            ("mlp.down_proj", "ffn_down", width, ff),
        ):
            yield Placement(f"{source}.{old}.weight", (rows, columns), f"{target}.{new}.weight")
            yield Placement(f"{source}.{old}.bias", (rows,), f"{target}.{new}.bias")


def fields(vision: Section, preprocessor: Section | None) -> Iterator[GgufField]:
    """Return the projector's fields; without a preprocessor only the tower's sizes."""
    yield GgufField("clip.has_vision_encoder", True, GGUFValueType.BOOL)
    yield GgufField("clip.vision.projection_dim", vision.integer("out_hidden_size"), GGUFValueType.UINT32)
    yield GgufField("clip.vision.image_size", IMAGE_SIZE, GGUFValueType.UINT32)
    for key, source in (
        ("patch_size", "patch_size"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("block_count", "depth"),
        ("attention.head_count", "num_heads"),
    ):
        yield GgufField(f"clip.vision.{key}", vision.integer(source), GGUFValueType.UINT32)
    if preprocessor is None:
        return
    for key in ("image_mean", "image_std"):
        match preprocessor.values.get(key):
            case [float(), float(), float()] as colours if all(0 < value <= 1 for value in colours):
                yield GgufField(f"clip.vision.{key}", colours, GGUFValueType.ARRAY)
            case _:
                raise preprocessor.value_error(key, "three numbers up to 1, one a colour")
    yield GgufField("clip.projector_type", "qwen2.5vl_merger", GGUFValueType.STRING)
    yield GgufField("clip.use_silu", True, GGUFValueType.BOOL)
    yield GgufField("clip.vision.n_wa_pattern", _window_pattern(vision), GGUFValueType.UINT32)
    yield GgufField("clip.vision.attention.layer_norm_epsilon", NORM_EPSILON, GGUFValueType.FLOAT32)


def _window_pattern(vision: Section) -> int:
    """Return n, if every n-th block attends to the whole image: GGUF has one number for this."""
    depth = vision.integer("depth", below=1024)
    match vision.values.get("fullatt_block_indexes"):
        case [int(first), *_] as full if first >= 1 and full == list(range(first, depth, first + 1)):
            return first + 1
        case _:
            pass
    raise vision.value_error("fullatt_block_indexes", f"every n-th of {depth} blocks")
