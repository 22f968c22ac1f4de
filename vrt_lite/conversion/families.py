"""The kinds of checkpoints that can be converted: how each becomes the two files of a pair.

Another kind is a module for its text model, one for its vision tower, and an entry in FAMILIES.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vrt_lite.conversion import qwen2_vision, qwen3_text, qwen3_vision, text_tensors, vision_tensors
from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import GgufField, Placement
from vrt_lite.errors import ModelError

MOST_ELEMENTS = 2**40  # of a tensor


@dataclass(frozen=True)
class Half:
    """One file of a pair. `architecture` is GGUF's word for it.

    `config` takes from config.json what the file needs, checked. The others take that: `placements` names every tensor
    of the checkpoint and where it goes, `fields` is the metadata of the architecture. Without a
    preprocessor_config.json these are the fields that follow from config.json alone. `late_fields` stand behind the
    file's type.
    """

    architecture: str
    config: Callable[[Section], Section]
    placements: Callable[[Section], Iterable[Placement]]
    fields: Callable[[Section, Section | None], Iterable[GgufField]]
    late_fields: Callable[[Section], Iterable[GgufField]] = lambda _: ()


@dataclass(frozen=True)
class Family:
    """What the checkpoints of one `model_type` become."""

    text: Half
    vision: Half


_QWEN2_TOWER = Half("clip", qwen2_vision.config, qwen2_vision.placements, qwen2_vision.fields)
_QWEN25_TOWER = Half("clip", vision_tensors.config, vision_tensors.placements, vision_tensors.fields)
_QWEN3_TEXT = Half("qwen3vl", qwen3_text.config, qwen3_text.placements, qwen3_text.fields, qwen3_text.late_fields)
_QWEN3_TOWER = Half("clip", qwen3_vision.config, qwen3_vision.placements, qwen3_vision.fields)
_QWEN2_TEXT = Half("qwen2vl", text_tensors.config, text_tensors.placements, text_tensors.fields)


FAMILIES = {
    "qwen2_vl": Family(_QWEN2_TEXT, _QWEN2_TOWER),
    "qwen2_5_vl": Family(_QWEN2_TEXT, _QWEN25_TOWER),
    "qwen3_vl": Family(_QWEN3_TEXT, _QWEN3_TOWER),
}
"""By `model_type` of config.json."""


def family_of(whole: Section) -> Family:
    """Return the family of a config.json. Raises ModelError for one that cannot be converted."""
    family = FAMILIES.get(str(whole.values.get("model_type")))
    if family is None:
        raise whole.value_error("model_type", f"{' or '.join(map(repr, FAMILIES))}; no other can be exported")
    return family


def expected_shapes(whole: Section) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that this config.json describes, by its published name."""
    family = family_of(whole)
    halves = (half.placements(half.config(whole)) for half in (family.text, family.vision))
    shapes = {place.source: place.shape for places in halves for place in places}
    for name, shape in shapes.items():
        if math.prod(shape) > MOST_ELEMENTS:
            raise ModelError(f"{whole.where}: {name} is to have the shape {shape}, which no model has")
    return shapes
