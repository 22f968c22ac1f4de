"""Reads a GGUF that is not quantised, to write it in another type: its fields, and where its weights are."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFValueType

from vrt_lite.conversion.gguf_writer import FILE_TYPES, PLAIN, GgufField, GgufFile, Target, storage_type
from vrt_lite.conversion.shards import StoredTensor
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import parts_of, read_header

# What the writer adds, what says that a file is a part, and where tensors begin, which here is llama.cpp's default.
_NOT_COPIED = ("GGUF.", "general.architecture", "split.", "general.alignment")


def read_source(path: Path, plain: str) -> GgufFile:
    """Describe a GGUF, all its parts as one, as a file in a type of PLAIN_TYPES.

    Raises ModelError for one that is broken or quantised already.
    """
    architecture = str(read_header(path).get("general.architecture"))
    fields, targets = list[GgufField](), list[Target]()
    for part in parts_of(path):
        try:
            reader = GGUFReader(part)
        except (ValueError, IndexError, OSError) as error:
            raise ModelError(f"{part} is not a whole GGUF file: {error}. Convert or copy it again") from error
        fields = fields or _fields(reader, plain)
        for tensor in reader.tensors:
            if tensor.tensor_type not in PLAIN:
                raise ModelError(
                    f"{part}: {tensor.name:.80} is {tensor.tensor_type.name} already: start from f16 or more"
                )
            shape = tuple(int(n) for n in reversed(tensor.shape))
            stored = StoredTensor(part, tensor.tensor_type.name, shape, tensor.data_offset)
            kind = storage_type(tensor.name, shape, FILE_TYPES[plain][0])
            targets.append(Target(tensor.name, shape, kind, stored, (), source=tensor.name))
    return GgufFile("", architecture, None, fields, targets)


def _fields(reader: GGUFReader, plain: str) -> list[GgufField]:
    fields: list[GgufField] = []
    for key, field in reader.fields.items():
        if not key.startswith(_NOT_COPIED):
            value = FILE_TYPES[plain][1] if key == "general.file_type" else field.contents()
            item = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            fields.append(GgufField(key, value, field.types[0], item))
    return fields
