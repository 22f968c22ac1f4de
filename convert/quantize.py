"""The verb `quantize`: smaller files beside a pair that is not quantised yet, through the writer of `export`."""

from __future__ import annotations

import re
from pathlib import Path

from gguf import GGUFReader, GGUFValue, GGUFValueType, ReaderField

from convert.source import find_exact
from vrt_lite.conversion.convert_folder import PairPlan, write_planned
from vrt_lite.conversion.gguf_writer import GgufFile, Target, Type, seal
from vrt_lite.conversion.quantization import (
    file_type,
    quantize_projector,
    quantize_text,
    read_importance,
    storage_type,
)
from vrt_lite.conversion.type_names import PLAIN_TYPES
from vrt_lite.conversion.weights import read_weights, reading
from vrt_lite.errors import UsageError
from vrt_lite.models.gguf import parts_of, read_gguf, whole_name
from vrt_lite.models.hub import Transfer, Unseen

# What the writer adds, what says that a file is a part, and where tensors begin, which here is llama.cpp's default.
_NOT_COPIED = ("GGUF.", "split.", "general.alignment")
TYPE_IN_NAME = re.compile(r"-(F32|F16|BF16)$", re.IGNORECASE)


def quantize_pair(
    source: Path,
    *,
    text_type: str | None = None,
    projector_type: str | None = None,
    imatrix: Path | None = None,
    progress: Transfer | None = None,
) -> list[Path]:
    """Write NAME-TYPE.gguf, mmproj-NAME-TYPE.gguf or both beside their sources, replacing files of those names.

    `source` is a folder, or a text or projector GGUF if a folder holds several that qualify. Raises ModelError
    for a source that cannot be used, UsageError for a full disk.
    """
    if not (text_type or projector_type):
        raise UsageError("nothing to do: give --type, --projector-type or both")
    if imatrix and not text_type:
        raise UsageError("--imatrix is for the text model: give --type")
    files = list[GgufFile]()
    if text_type:
        text = find_exact(source, "text model")
        importance = read_importance(imatrix) if imatrix else None
        with reading(text):
            file = quantize_text(read_source(text, "f32"), text_type, importance=importance)
        files.append(seal(_name_for(text, text_type), file))
    if projector_type:
        projector = find_exact(source, "projector")
        plain = projector_type in PLAIN_TYPES
        file = read_source(projector, projector_type if plain else "f32")
        file = file if plain else quantize_projector(file, projector_type)
        files.append(seal(_name_for(projector, projector_type), file))
    folder = source if source.is_dir() else source.parent
    return write_planned(PairPlan(tuple(files)), folder, folder, progress or Unseen())


def read_source(path: Path, plain: str) -> GgufFile:
    """Describe a GGUF, all its parts as one, as a file in a type of PLAIN_TYPES.

    Raises ModelError for one that is broken or quantised already.
    """
    read_gguf(path)  # all parts are there, and whole
    first, *_ = parts = parts_of(path)
    with reading(first):
        fields = GGUFReader(first).fields
    found = {key: _copy(field) for key, field in fields.items() if not key.startswith(_NOT_COPIED)}
    if "general.file_type" in found:
        found["general.file_type"] = GGUFValue(file_type(plain), GGUFValueType.UINT32)
    kind = Type[plain.upper()]
    targets = [
        Target(*(name, stored.shape, name, stored.shape), shard=part.name, type=storage_type(name, stored.shape, kind))
        for part in parts
        for name, stored in read_weights(part).items()
    ]
    return GgufFile(found, targets)


def _copy(field: ReaderField) -> GGUFValue:
    return GGUFValue(field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)


def _name_for(source: Path, file_type: str) -> str:
    name = f"{TYPE_IN_NAME.sub('', whole_name(source.stem))}-{file_type.upper()}.gguf"
    if name == source.name:
        raise UsageError(f"{source} is {file_type} already")
    return name
