"""What the vision towers of all families have in common: their tensors and fields, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gguf import GGUFValueType

from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement

ARCHITECTURE: Final = "clip"
# transformers builds every norm of these towers with 1e-6, whatever config.json says about the text's.
NORM_EPSILON: Final = 1e-6
# mtmd asks for an image size that towers without a table of positions have no use for: upstream's default.
IMAGE_SIZE: Final = 560


def linear(source: str, rows: int, columns: int, target: str, *part: slice) -> Iterator[Placement]:
    """Return where the weight of a linear layer goes and where its bias does; a `part` is some of its rows."""
    yield Placement(f"{source}.weight", (rows, columns), f"{target}.weight", part)
    yield Placement(f"{source}.bias", (rows,), f"{target}.bias", part)


def norm(source: str, width: int, target: str) -> Iterator[Placement]:
    """Return where both halves of a layer norm go."""
    for end in ("weight", "bias"):
        yield Placement(f"{source}.{end}", (width,), f"{target}.{end}")


def split_qkv(source: str, width: int, target: str) -> Iterator[Placement]:
    """Return where queries, keys and values go, which the checkpoint has as one layer and GGUF as three."""
    for i, part in enumerate("qkv"):
        yield from linear(source, 3 * width, width, f"{target}_{part}", slice(i * width, (i + 1) * width))


def patch_convolution(vision: Section, width: int) -> Iterator[Placement]:
    """Return where the 3-d convolution goes: it becomes two 2-d ones, one for each frame of a pair."""
    shape = (width, 3, 2, vision.integer("patch_size"), vision.integer("patch_size"))
    for frame, name in enumerate(("v.patch_embd.weight", "v.patch_embd.weight.1")):
        yield Placement("visual.patch_embed.proj.weight", shape, name, (slice(None), slice(None), frame))


def depth(vision: Section) -> int:
    """Return the number of blocks."""
    return vision.integer("depth", below=1024)


def sizes(vision: Section, own: Mapping[str, int]) -> Iterator[GgufField]:
    """Return the fields with the tower's sizes, as far as config.json has them; `own` has the others."""
    yield GgufField("clip.has_vision_encoder", True, GGUFValueType.BOOL)
    found = {
        "image_size": IMAGE_SIZE,
        "patch_size": vision.integer("patch_size"),
        "block_count": depth(vision),
        "attention.head_count": vision.integer("num_heads"),
        **own,
    }
    for key in (
        *("projection_dim", "image_size", "patch_size", "embedding_length", "feed_forward_length", "block_count"),
        "attention.head_count",
    ):
        yield GgufField(f"{ARCHITECTURE}.vision.{key}", found[key], GGUFValueType.UINT32)


def kind_fields(preprocessor: Section, kind: str, *more: GgufField) -> Iterator[GgufField]:
    """Return the fields that follow the sizes: the colours, the kind of projector, `more`, and the norms' epsilon."""
    for key in ("image_mean", "image_std"):
        match preprocessor.values.get(key):
            case [float(), float(), float()] as colours if all(0 < value <= 1 for value in colours):
                yield GgufField(f"{ARCHITECTURE}.vision.{key}", colours, GGUFValueType.ARRAY)
            case _:
                raise preprocessor.value_error(key, "three numbers up to 1, one a colour")
    yield GgufField("clip.projector_type", kind, GGUFValueType.STRING)
    yield from more
    yield GgufField("clip.vision.attention.layer_norm_epsilon", NORM_EPSILON, GGUFValueType.FLOAT32)
