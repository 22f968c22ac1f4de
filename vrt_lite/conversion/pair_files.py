"""Describes the two files that a checkpoint becomes, in any type: all but the weights.

Bytes are equal to what llama.cpp's convert_hf_to_gguf.py and its quantiser (as shipped in llama-cpp-python 0.3.36)
write: same tensors, order, shapes, types and data, and the same metadata, save these, each on purpose:

- `vrt_lite.tokens_per_second`, `vrt_lite.vision.min_pixels`, `.max_pixels` are added to the text file:
  the position clock and the pixel bounds are in the checkpoint and have no GGUF key.
- `vrt_lite.head.weight` is added where a checkpoint has heads (rm_head.weight), and their tokens are user-defined.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType, GGUFWriter, Metadata, size_label

from vrt_lite.conversion import text_tensors, tokenizer_fields
from vrt_lite.conversion.checkpoint import ONLY_SHARD, Checkpoint, Section
from vrt_lite.conversion.families import expected_shapes, family_of
from vrt_lite.conversion.gguf_writer import VERSION, GgufField, GgufFile, Target, fields_of, resolve, type_field
from vrt_lite.conversion.projector import quantize_projector
from vrt_lite.conversion.quantization_types import quantize_file
from vrt_lite.conversion.reward_state import REWARD_TOKENS, find_head, head_fields
from vrt_lite.conversion.tower_parts import ARCHITECTURE
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import Gguf, Tensor

_BYTE_TOKENS = 256


@dataclass(frozen=True)
class PairTypes:
    """The types of both files. With `exported` q8_0 is what llama.cpp's converter writes, else its quantiser."""

    text: str
    projector: str
    exported: bool = False

    def plain(self, kind: str) -> str:
        """Return the type in which a file is described before it is quantised, if it is."""
        return kind if kind in PLAIN_TYPES or (self.exported and kind == "q8_0") else "f32"


def describe_files(
    checkpoint: Checkpoint,
    types: PairTypes,
    *,
    given: Mapping[str, Any] | None = None,
    importance: Mapping[str, np.ndarray] | None = None,
) -> list[GgufFile]:
    """Describe the text model's file and the projector's. `given` is metadata that wins over the model card."""
    logging.getLogger("gguf").setLevel(logging.CRITICAL)  # it logs its guesses; what matters here is raised
    head = find_head(checkpoint)

    def add_documents(kind: str, file: GgufFile, section: Section) -> GgufFile:
        fields = [*_authorship(checkpoint, kind, file.targets, given or {}), *file.fields]
        if kind == "model":
            # A head's token is in the run of text that has the caption, where control tokens are not recognised.
            plain = REWARD_TOKENS if head else ()
            fields += tokenizer_fields.fields(checkpoint.folder, section, plain=plain)
            fields += (*text_tensors.vrt_lite_fields(checkpoint), *head_fields(head))
        return replace(file, fields=fields)

    files = _describe(checkpoint.config, checkpoint.tensors, types, checkpoint.preprocessor)
    return [_quantize(add_documents(*described), types, importance) for described in files]


def describe_pair(
    config: Mapping[str, Any], *, text_type: str, projector_type: str, with_importance: bool = False
) -> tuple[Gguf, Gguf]:
    """Describe the text model and the projector of a checkpoint from its config.json alone.

    Returns what `read_gguf` would give for the two files that a conversion leads to: tensors, sizes, and the metadata
    numbers that follow from config.json. Tokens, names and authorship are left out. The number of merges is the most
    that the vocabulary allows. Raises ModelError for a config that cannot be exported.
    """
    whole, types = Section("config.json", config), PairTypes(text_type, projector_type)
    files = _describe(whole, dict.fromkeys(expected_shapes(whole), ONLY_SHARD), types, None)
    text, projector = (_quantize(file, types, {} if with_importance else None) for _, file, _ in files)
    rows = text_tensors.vocabulary_size(family_of(whole).text.config(whole))
    vocabulary = {
        "tokenizer.ggml.tokens": rows,
        "tokenizer.ggml.token_type": rows,
        "tokenizer.ggml.merges": max(rows - _BYTE_TOKENS, 0),
    }
    return _header(text, vocabulary), _header(projector, {})


def _describe(
    whole: Section, listed: Mapping[str, str], types: PairTypes, preprocessor: Section | None
) -> Iterator[tuple[str, GgufFile, Section]]:
    """Yield the kind of each file, the file in the type before a quantiser's, and its keys of config.json."""
    family = family_of(whole)
    for kind, half, wanted in (("model", family.text, types.text), ("mmproj", family.vision, types.projector)):
        section, plain = half.config(whole), types.plain(wanted)
        targets = resolve(half.placements(section), listed, plain)
        fields = [*half.fields(section, preprocessor), type_field(plain), *half.late_fields(section), VERSION]
        if kind == "mmproj":  # whose type comes first
            fields.sort(key=lambda field: field.key != "general.file_type")
        yield kind, GgufFile("", half.architecture, fields, targets), section


def _quantize(file: GgufFile, types: PairTypes, importance: Mapping[str, np.ndarray] | None) -> GgufFile:
    """Describe the file in the type that is wanted."""
    is_projector = file.architecture == ARCHITECTURE
    wanted = types.projector if is_projector else types.text
    if types.plain(wanted) == wanted:
        return file
    return quantize_projector(file, wanted) if is_projector else quantize_file(file, wanted, importance=importance)


def _header(file: GgufFile, lengths: dict[str, int]) -> Gguf:
    values = {field.key: field.value for field in file.fields if isinstance(field.value, str | int | float)}
    arrays = {field.key: len(field.value) for field in file.fields if field.kind is GGUFValueType.ARRAY}
    step = GGUF_DEFAULT_ALIGNMENT
    return Gguf(
        {"general.architecture": file.architecture, **values},
        arrays | lengths,
        tuple(Tensor(t.name, t.shape[::-1], int(t.type), -(-t.size // step) * step) for t in file.targets),
    )


def _authorship(
    checkpoint: Checkpoint, kind: str, targets: Sequence[Target], given: Mapping[str, Any]
) -> list[GgufField]:
    """Read name, licence, authors and so on from the model card with the package gguf, like llama.cpp."""
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
    metadata = replace(metadata, **sampling, **given)

    def write(writer: GGUFWriter) -> None:
        writer.add_type(kind)
        metadata.set_gguf_meta_model(writer)

    return fields_of(write)
