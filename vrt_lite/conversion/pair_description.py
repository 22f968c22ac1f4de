"""Describes the GGUF pair that a checkpoint's config.json leads to, before anything else of the checkpoint is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType

from vrt_lite.conversion import text_tensors, vision_tensors
from vrt_lite.conversion.checkpoint import Section, check_model_type
from vrt_lite.conversion.gguf_writer import FILE_TYPES, GgufField, GgufFile, Placement, resolve, type_field
from vrt_lite.conversion.projector import quantize_projector
from vrt_lite.conversion.quantization_types import quantize_file
from vrt_lite.conversion.shards import StoredTensor
from vrt_lite.conversion.type_names import QUANTIZED_PROJECTOR_TYPES
from vrt_lite.models.gguf import Gguf, Tensor

_BYTE_TOKENS = 256


def describe_pair(
    config: Mapping[str, Any], *, text_type: str, projector_type: str, with_importance: bool = False
) -> tuple[Gguf, Gguf]:
    """Describe the text model and the projector of a checkpoint from its config.json alone.

    Returns what `read_gguf` would give for the two files that `plan_pair` leads to: tensors, sizes, and the metadata
    numbers that follow from config.json. Tokens, names and authorship are left out. The number of merges is the most
    that the vocabulary allows. Raises ModelError for a config that cannot be exported.
    """
    whole = Section("config.json", config)
    check_model_type(whole)
    text, vision = text_tensors.config(whole), vision_tensors.config(whole)
    placements = text_tensors.placements(text, tied=text_tensors.is_tied(whole))
    if text_type in FILE_TYPES and text_type != "q8_0":
        text_file = _file(text_tensors.ARCHITECTURE, placements, text_tensors.fields(text), text_type)
    else:
        exact = _file(text_tensors.ARCHITECTURE, placements, text_tensors.fields(text), "f32")
        text_file = quantize_file(exact, Path(), text_type, importance={} if with_importance else None)
    placements = vision_tensors.placements(vision)
    quantized = projector_type in QUANTIZED_PROJECTOR_TYPES
    plain = "f32" if quantized else projector_type
    projector = _file(vision_tensors.ARCHITECTURE, placements, vision_tensors.sizes(vision), plain)
    if quantized:
        projector = quantize_projector(projector, projector_type)
    rows = text_tensors.vocabulary_size(text)
    vocabulary = {
        "tokenizer.ggml.tokens": rows,
        "tokenizer.ggml.token_type": rows,
        "tokenizer.ggml.merges": max(rows - _BYTE_TOKENS, 0),
    }
    return _header(text_file, vocabulary), _header(projector, {})


def expected_tensors(whole: Section) -> dict[str, StoredTensor]:
    """Return every tensor that this config.json describes, by its published name, as if it were stored in F32."""
    text = text_tensors.placements(text_tensors.config(whole), tied=text_tensors.is_tied(whole))
    vision = vision_tensors.placements(vision_tensors.config(whole))
    return _stored((*text, *vision))


def _stored(placements: Iterable[Placement]) -> dict[str, StoredTensor]:
    return {place.source: StoredTensor(Path(), "F32", place.shape, 0) for place in placements}


def _file(architecture: str, placements: Iterable[Placement], fields: Iterable[GgufField], file_type: str) -> GgufFile:
    placements = list(placements)
    targets = resolve(placements, _stored(placements), Path("config.json"), file_type)
    return GgufFile(Path(), architecture, None, [type_field(file_type), *fields], targets)


def _header(file: GgufFile, lengths: dict[str, int]) -> Gguf:
    values = {field.key: field.value for field in file.fields if isinstance(field.value, str | int | float)}
    arrays = {field.key: len(field.value) for field in file.fields if field.kind is GGUFValueType.ARRAY}
    step = GGUF_DEFAULT_ALIGNMENT
    return Gguf(
        {"general.architecture": file.architecture, **values},
        arrays | lengths,
        tuple(Tensor(t.name, t.shape[::-1], int(t.type), -(-t.size // step) * step) for t in file.targets),
    )
