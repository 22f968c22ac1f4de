"""Reads a GGUF that is not quantised, to write it in another type, and the importance matrix with which to do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValue, GGUFValueType, ReaderField

from vrt_lite.conversion.gguf_writer import LARGEST, GgufFile, Placement, Target, Type, file_type, storage_type
from vrt_lite.conversion.shards import StoredTensor, reading
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import parts_of, read_header

# What the writer adds, what says that a file is a part, and where tensors begin, which here is llama.cpp's default.
_NOT_COPIED = ("GGUF.", "split.", "general.alignment")


def read_source(path: Path, plain: str) -> GgufFile:
    """Describe a GGUF, all its parts as one, as a file in a type of PLAIN_TYPES.

    Raises ModelError for one that is broken or quantised already.
    """
    read_header(path)  # all parts are there, and whole
    first, *_ = parts = parts_of(path)
    found = {key: _copy(field) for key, field in _open(first).fields.items() if not key.startswith(_NOT_COPIED)}
    if "general.file_type" in found:
        found["general.file_type"] = GGUFValue(file_type(plain), GGUFValueType.UINT32)
    targets: list[Target] = []
    for part in parts:
        for name, stored in read_gguf_table(part).items():
            kind = storage_type(name, stored.shape, Type[plain.upper()])
            targets.append(Target(Placement(name, stored.shape, name), part.name, stored.shape, kind))
    return GgufFile(path.name, found, targets)


def read_gguf_table(path: Path) -> dict[str, StoredTensor]:
    """Return where a file has its weights. Raises ModelError for a file that is broken or quantised."""
    table: dict[str, StoredTensor] = {}
    for tensor in _open(path).tensors:
        if tensor.tensor_type not in LARGEST:
            raise ModelError(f"{path}: {tensor.name:.80} is {tensor.tensor_type.name} already: start from f16 or more")
        shape = tuple(int(n) for n in reversed(tensor.shape))
        table[tensor.name] = StoredTensor(path, tensor.tensor_type.name, shape, tensor.data_offset)
    return table


def read_importance(path: Path) -> dict[str, np.ndarray]:
    """Return the mean squared input of each column by weight, from a file of `calibrate` or llama-imatrix.

    Raises ModelError.
    """
    if read_header(path).get("general.type") != "imatrix":
        raise ModelError(f"{path} is no importance matrix: give the GGUF that llama-imatrix writes")
    found = {tensor.name: np.array(tensor.data, np.float32).ravel() for tensor in _open(path).tensors}
    means: dict[str, np.ndarray] = {}
    for name, sums in found.items():
        weight, dot, kind = name.rpartition(".")
        if dot and kind == "in_sum2":
            counts = found.get(f"{weight}.counts", np.zeros(1, np.float32))
            # As in llama-quantize, all columns are equal for a weight that calibration never evaluated.
            mean = sums / counts if counts.size == 1 and counts > 0 else np.ones_like(sums)
            if counts.size != 1 or not np.isfinite(mean).all():
                raise ModelError(f"{path}: {name:.80} has values that are no numbers, or of experts: calibrate again")
            means[weight] = mean
    return means


def _open(path: Path) -> GGUFReader:
    with reading(path):
        return GGUFReader(path)


def _copy(field: ReaderField) -> GGUFValue:
    return GGUFValue(field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
