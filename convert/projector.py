"""A projector GGUF in another storage type, tensor by tensor; the same bytes as an export in that type.

Knows how to copy fields and to see a GGUF's tensors as stored ones. Refuses to know checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType

from convert.checkpoint import Stored
from convert.vision import ARCHITECTURE
from convert.write import FILE_TYPES, Field, File, Target, storage_type
from vrt_lite.errors import ModelError


def retyped(source: Path, path: Path, file_type: str) -> File:
    """The file to write at `path`. Raises ModelError for a source that is broken or quantised already."""
    try:
        reader = GGUFReader(source)
    except (ValueError, IndexError, OSError) as error:
        raise ModelError(f"{source} is not a whole GGUF file: {error}. Convert or copy it again") from error
    targets = []
    for tensor in reader.tensors:
        if tensor.tensor_type not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16):
            raise ModelError(
                f"{source}: {tensor.name:.80} is {tensor.tensor_type.name} already: start from f16 or more"
            )
        shape = tuple(int(n) for n in reversed(tensor.shape))
        stored = Stored(source, tensor.tensor_type.name, shape, tensor.data_offset)
        kind = storage_type(tensor.name, shape, FILE_TYPES[file_type][0])
        targets.append(Target(tensor.name, shape, kind, stored, ()))
    return File(path, ARCHITECTURE, None, list(_fields(reader, file_type)), targets)


def _fields(reader: GGUFReader, file_type: str) -> list[Field]:
    fields = []
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue  # the writer's own
        value = FILE_TYPES[file_type][1] if key == "general.file_type" else field.contents()
        item = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        fields.append(Field(key, value, field.types[0], item))
    return fields
