"""Describes the two files that a checkpoint becomes, in any type: all but the weights.

Bytes are equal to what llama.cpp's convert_hf_to_gguf.py and its quantiser (as shipped in llama-cpp-python 0.3.36)
write: same tensors, order, shapes, types and data, and the same metadata, save these, each on purpose:

- `vrt_lite.tokens_per_second`, `vrt_lite.vision.min_pixels`, `.max_pixels` are added to the text file:
  the position clock and the pixel bounds are in the checkpoint and have no GGUF key.
- `general.license` and `general.source.url` may be set from the command line.
- `tokenizer.ggml.pre` comes from comparing the split pattern, not from hashing a tokenised test text.
- Only bos, eos and pad ids, and one chat template; the family has no other.
- `lm_head` of a tied checkpoint is not written: no reader of the checkpoint uses it.
- `general.sampling.penalty_repeat`: written only from the gguf release on that reads it; vrt-lite does not.
- Refused here and written there: infinite and NaN weights or such as overflow the type, rope scaling
  (yarn and so on), a vision tower that differs in what llama.cpp has built in.
- Accepted here only: vision tensors under `model.visual.`, as newer trainers save them.
- A projector of QUANTIZED_PROJECTOR_TYPES is padded to whole blocks (`projector`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType, Metadata, size_label

from vrt_lite.conversion import text_tensors, tokenizer_fields
from vrt_lite.conversion.checkpoint import Checkpoint, Section
from vrt_lite.conversion.families import Half, expected_shapes, family_of
from vrt_lite.conversion.gguf_writer import VERSION, GgufField, GgufFile, Target, resolve, type_field
from vrt_lite.conversion.projector import quantize_projector
from vrt_lite.conversion.quantization_types import quantize_file
from vrt_lite.conversion.shards import StoredTensor
from vrt_lite.conversion.tower_parts import PREFIX
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import Gguf, Tensor

_BYTE_TOKENS = 256
Importance = Mapping[str, np.ndarray]


def text_file(
    checkpoint: Checkpoint, kind: str, given: Mapping[str, Any], *, importance: Importance | None, exported: bool
) -> GgufFile:
    """Describe the text model's file. `given` is metadata that wins over the model card.

    With `exported` q8_0 is what llama.cpp's converter writes, else what its quantiser makes of F32.
    """
    half = family_of(checkpoint.config).text
    text = half.config(checkpoint.config)
    own = (*tokenizer_fields.fields(checkpoint.folder, text), *text_tensors.vrt_lite_fields(checkpoint))
    elsewhere = (PREFIX, "lm_head.") if text_tensors.is_tied(text) else PREFIX
    tensors = {name: stored for name, stored in checkpoint.tensors.items() if not name.startswith(elsewhere)}
    plain = kind if exported and kind == "q8_0" else _plain(kind)
    file = _text(half, text, tensors, plain, own)
    file = replace(file, authored=("model", _metadata(checkpoint, file.targets, given)))
    return file if plain == kind else quantize_file(file, kind, importance=importance)


def projector_file(checkpoint: Checkpoint, kind: str, given: Mapping[str, Any], *, exported: bool) -> GgufFile:
    """Describe the projector's file, with options as for `text_file`."""
    half = family_of(checkpoint.config).vision
    vision = half.config(checkpoint.config)
    tensors = {n: stored for n, stored in checkpoint.tensors.items() if n.startswith(PREFIX)}
    plain = kind if exported and kind == "q8_0" else _plain(kind)
    file = _vision(half, vision, tensors, plain, checkpoint.preprocessor)
    file = replace(file, authored=("mmproj", _metadata(checkpoint, file.targets, given)))
    return file if plain == kind else quantize_projector(file, kind)


def describe_pair(
    config: Mapping[str, Any], *, text_type: str, projector_type: str, with_importance: bool = False
) -> tuple[Gguf, Gguf]:
    """Describe the text model and the projector of a checkpoint from its config.json alone.

    Returns what `read_gguf` would give for the two files that a conversion leads to: tensors, sizes, and the metadata
    numbers that follow from config.json. Tokens, names and authorship are left out. The number of merges is the most
    that the vocabulary allows. Raises ModelError for a config that cannot be exported.
    """
    whole = Section("config.json", config)
    family = family_of(whole)
    words, vision = family.text.config(whole), family.vision.config(whole)
    stored = {name: StoredTensor(Path(), "", shape, 0) for name, shape in expected_shapes(whole).items()}
    towers = {name: tensor for name, tensor in stored.items() if name.startswith(PREFIX)}
    text = _text(family.text, words, {n: t for n, t in stored.items() if n not in towers}, _plain(text_type), ())
    if text_type not in PLAIN_TYPES:
        text = quantize_file(text, text_type, importance={} if with_importance else None)
    projector = _vision(family.vision, vision, towers, _plain(projector_type), None)
    if projector_type not in PLAIN_TYPES:
        projector = quantize_projector(projector, projector_type)
    rows = text_tensors.vocabulary_size(words)
    vocabulary = {
        "tokenizer.ggml.tokens": rows,
        "tokenizer.ggml.token_type": rows,
        "tokenizer.ggml.merges": max(rows - _BYTE_TOKENS, 0),
    }
    return _header(text, vocabulary), _header(projector, {})


def _plain(kind: str) -> str:
    """Return the type in which a file is described before it is quantised, if it is."""
    return kind if kind in PLAIN_TYPES else "f32"


def _text(
    half: Half, text: Section, tensors: Mapping[str, StoredTensor], plain: str, own: Iterable[GgufField]
) -> GgufFile:
    targets = resolve(half.placements(text), tensors, text.where, plain)
    fields = [*half.fields(text, None), type_field(plain), *half.late_fields(text), VERSION, *own]
    return GgufFile("", half.architecture, None, fields, targets)


def _vision(
    half: Half, vision: Section, tensors: Mapping[str, StoredTensor], plain: str, preprocessor: Section | None
) -> GgufFile:
    targets = resolve(half.placements(vision), tensors, vision.where, plain)
    fields = [type_field(plain), *half.fields(vision, preprocessor), VERSION]
    return GgufFile("", half.architecture, None, fields, targets)


def _header(file: GgufFile, lengths: dict[str, int]) -> Gguf:
    values = {field.key: field.value for field in file.fields if isinstance(field.value, str | int | float)}
    arrays = {field.key: len(field.value) for field in file.fields if field.kind is GGUFValueType.ARRAY}
    step = GGUF_DEFAULT_ALIGNMENT
    return Gguf(
        {"general.architecture": file.architecture, **values},
        arrays | lengths,
        tuple(Tensor(t.name, t.shape[::-1], int(t.type), -(-t.size // step) * step) for t in file.targets),
    )


def _metadata(checkpoint: Checkpoint, targets: Sequence[Target], given: Mapping[str, Any]) -> Metadata:
    """Read name, licence, authors and so on from the model card with the package gguf, like llama.cpp."""
    logging.getLogger("gguf").setLevel(logging.CRITICAL)  # it logs its guesses; what matters here is raised
    count, folder = sum(math.prod(target.shape) for target in targets), checkpoint.folder
    try:
        sampling = {k: v for k, v in vars(Metadata.load(None, folder)).items() if k.startswith("sampling_")}
        card, config = Metadata.load_model_card(folder), Metadata.load_hf_parameters(folder)
        guess = cast("Any", Metadata).apply_metadata_heuristic
        metadata: Metadata = guess(Metadata(), card, config, Path(checkpoint.name), count)
    except Exception as error:  # third-party heuristics over text that anyone may have typed
        raise ModelError(f"{folder}: README.md's header or generation_config.json: {error}") from error
    metadata.name = metadata.name or checkpoint.name
    metadata.size_label = metadata.size_label or size_label(count, count, 0, 0)
    return replace(metadata, **sampling, **given)
