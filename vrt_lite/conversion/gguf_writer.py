"""The parts of a GGUF file: the bytes before the weights, and each tensor in its storage type.

The caller says where tensors go and which fields to write. Memory holds some blocks of rows, never a whole tensor.
"""

from __future__ import annotations

import math
import os
import struct
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    GGML_QUANT_VERSION,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFValueType,
    GGUFWriter,
    LlamaFileType,
    Metadata,
)
from gguf.quants import quant_shape_to_byte_shape, quantize

from vrt_lite.conversion.engine_rows import quantize_rows
from vrt_lite.conversion.shards import StoredTensor
from vrt_lite.errors import ModelError

Type = GGMLQuantizationType
FILE_TYPES = {
    "f32": (Type.F32, LlamaFileType.ALL_F32),
    "f16": (Type.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (Type.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
PLAIN = (Type.F32, Type.F16, Type.BF16)
# The largest magnitude each type holds: past it, infinity would be written without a word. The other types are blocks
# with scales in F16.
LARGEST = {Type.F32: 3.4028e38, Type.F16: 65504.0, Type.BF16: 3.3895e38, Type.Q8_0: 127 * 65504.0}
MOST_ELEMENTS = 2**40  # of a tensor
MOST_THREADS = 8
SLICE_ELEMENTS = 1 << 18  # 1 MiB in float32, so that a slice and its temporaries stay small


@dataclass(frozen=True)
class GgufField:
    """One metadata entry; an array's element type follows from its first element unless `item` names it."""

    key: str
    value: Any
    kind: GGUFValueType
    item: GGUFValueType | None = None


def type_field(file_type: str) -> GgufField:
    """Return the field with the number of a type in FILE_TYPES."""
    return GgufField("general.file_type", FILE_TYPES[file_type][1], GGUFValueType.UINT32)


VERSION = GgufField("general.quantization_version", GGML_QUANT_VERSION, GGUFValueType.UINT32)


@dataclass(frozen=True)
class Placement:
    """Where a checkpoint tensor goes: `part` is the NumPy index that takes this piece of it."""

    source: str
    shape: tuple[int, ...]
    name: str
    part: tuple[slice | int, ...] = ()


@dataclass(frozen=True)
class Target:
    """One tensor of the output file; shape as NumPy orders it, GGUF reverses it.

    `stored` with the name `source` holds its weights. `importance` weighs its columns when it is quantised.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    stored: StoredTensor
    part: tuple[slice | int, ...]
    source: str
    importance: np.ndarray | None = None

    @property
    def byte_shape(self) -> tuple[int, ...]:
        """The shape as bytes: the last axis counts bytes of a row."""
        return quant_shape_to_byte_shape(self.shape, self.type)

    @property
    def size(self) -> int:
        """Bytes in the file, without padding."""
        return math.prod(self.byte_shape)


@dataclass(frozen=True)
class GgufFile:
    """All of one GGUF file except the weights. `authored`, the file's kind and authorship, precedes the fields."""

    name: str
    architecture: str
    authored: tuple[str, Metadata] | None
    fields: Sequence[GgufField]
    targets: Sequence[Target]


def resolve(
    placements: Iterable[Placement], tensors: Mapping[str, StoredTensor], where: str, file_type: str
) -> list[Target]:
    """Match the tensors that config.json, which is `where`, requires with those of the checkpoint, in its order.

    Raises ModelError if they differ.
    """
    expected: dict[str, list[Placement]] = defaultdict(list)
    for placement in placements:
        expected[placement.source].append(placement)
    if missing := [name for name in expected if name not in tensors]:
        raise ModelError(f"{where}: {len(missing)} tensors are missing, first {missing[0]}: download again")
    targets: list[Target] = []
    for name, stored in tensors.items():
        if name not in expected:
            raise ModelError(f"{stored.path}: tensor {name:.80} is none that config.json describes")
        for place in expected[name]:
            if math.prod(place.shape) > MOST_ELEMENTS:
                raise ModelError(f"{where}: {name} is to have the shape {place.shape}, which no model has")
            if stored.shape != place.shape:
                raise ModelError(f"{stored.path}: {name} is {stored.shape}, config.json says {place.shape}")
            shape = np.broadcast_to(np.False_, stored.shape)[place.part].shape
            kind = storage_type(place.name, shape, FILE_TYPES[file_type][0])
            targets.append(Target(place.name, shape, kind, stored, place.part, source=name))
    return targets


def storage_type(name: str, shape: tuple[int, ...], requested: GGMLQuantizationType) -> GGMLQuantizationType:
    """Return a tensor's type by the rules of llama.cpp's converter (conversion/base.py)."""
    if len(shape) == 1:
        return Type.F32  # norms and biases
    if ".position_embd." in name:
        return Type.F32
    if ".patch_embd.weight" in name:
        return Type.F16 if requested is Type.F16 else Type.F32  # the convolution kernels know only these
    if requested is Type.Q8_0 and shape[-1] % 32:
        return Type.F16  # a row must be whole blocks, as 3420 in the 7B's vision tower is not
    return requested


def header_bytes(file: GgufFile) -> bytes:
    """Return all that precedes the weights. Raises ModelError for a value that GGUF cannot hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header.gguf"
        writer = GGUFWriter(path, file.architecture)
        try:
            for t in file.targets:
                writer.add_tensor_info(t.name, t.byte_shape, np.dtype(np.uint8), t.size, raw_dtype=t.type)
            if file.authored:
                kind, metadata = file.authored
                writer.add_type(kind)
                metadata.set_gguf_meta_model(writer)
            for field in file.fields:
                writer.add_key_value(field.key, field.value, field.kind, field.item)
            writer.write_header_to_file()
            try:
                writer.write_kv_data_to_file()
            except (AttributeError, TypeError, ValueError, struct.error) as error:
                # The author of a model card may write any type: `version: 1.0` is a number.
                raise ModelError(f"README.md or a JSON file has a value of the wrong type: {error}") from error
            writer.write_ti_data_to_file()
        finally:
            writer.close()
        header = path.read_bytes()
    return header + bytes(-len(header) % GGUF_DEFAULT_ALIGNMENT)


def encoded_blocks(target: Target) -> Iterator[np.ndarray]:
    """Yield a tensor's bytes in its storage type, some rows at a time, converted on all cores.

    Raises ModelError on a value that the type cannot hold.
    """
    # NumPy and the engine release the interpreter's lock.
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[np.ndarray]] = deque()
        try:
            for rows in _row_slices(target.shape):
                waiting.append(pool.submit(_convert, target, rows))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _convert(target: Target, rows: slice) -> np.ndarray:
    values = target.stored.values(target.part, rows)
    largest, most = float(np.abs(values).max()), LARGEST.get(target.type, LARGEST[Type.F16])
    if not largest <= most:  # written so that NaN fails too
        raise ModelError(
            f"{target.stored.path}: a value of {target.name} is {largest}, {target.type.name} holds"
            f" up to {most:.6g}: choose another type"
        )
    if target.type in PLAIN:
        return np.ascontiguousarray(quantize(values, target.type)).view(np.uint8)
    return quantize_rows(values, target.type, importance=target.importance)


def _row_slices(shape: tuple[int, ...]) -> Iterator[slice]:
    if len(shape) == 1:
        yield slice(0, None)  # one row, its bytes lie on the only axis
        return
    step = max(1, SLICE_ELEMENTS // math.prod(shape[1:]))
    for start in range(0, shape[0], step):
        yield slice(start, start + step)
