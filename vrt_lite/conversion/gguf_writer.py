"""The parts of a GGUF file: the bytes before the weights, and each tensor in its storage type.

The caller says where tensors go and which fields to write. Memory holds some blocks of rows, never a whole tensor. Rows
are quantised with the engine's own `ggml_quantize_chunk`, on all cores. The engine itself is not loaded.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValue, GGUFWriter
from gguf.quants import quant_shape_to_byte_shape

from vrt_lite.conversion.weights import Correction, StoredTensor, reading
from vrt_lite.errors import ModelError

Type = GGMLQuantizationType
# The largest magnitude that each type holds: past it, infinity would be written without a word.
LARGEST = {Type.F32: 3.4028e38, Type.F16: 65504.0, Type.BF16: 3.3895e38}
_LARGEST_IN_BLOCKS = 127 * 65504.0  # Q8_0's; the engine refuses what another one cannot hold
_ENGINE = {"win32": "ggml-base.dll", "darwin": "libggml-base.dylib"}
MOST_THREADS = 8
SLICE_ELEMENTS = 1 << 18  # 1 MiB in float32, so that a slice and its temporaries stay small


@dataclass(frozen=True)
class Target:
    """One tensor of the output file: the NumPy index `part` of a tensor of the source, in that one's file `shard`.

    Shapes are as NumPy orders them, GGUF reverses them. Where the shape is larger than what is placed there, the rest
    is zeros. `importance` weighs its columns when it is quantised.
    """

    source: str
    source_shape: tuple[int, ...]
    name: str
    shape: tuple[int, ...]
    part: tuple[slice | int, ...] = (slice(None),)
    shard: str = ""
    type: GGMLQuantizationType = Type.F32
    correction: Correction | None = None
    importance: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Bytes in the file, without padding."""
        return math.prod(quant_shape_to_byte_shape(self.shape, self.type))


@dataclass(frozen=True)
class GgufFile:
    """All of one GGUF file except the weights: its fields, or all that precedes the weights once it is sealed."""

    fields: Mapping[str, GGUFValue]
    targets: Sequence[Target]
    name: str = ""
    header: bytes = b""


def seal(name: str, file: GgufFile) -> GgufFile:
    """Return a file with its name, and its header in place of the fields, which take more memory.

    Raises ModelError for a value that GGUF cannot hold.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header.gguf"
        with closing(GGUFWriter(path, file.fields["general.architecture"].value)) as writer:
            for t in file.targets:
                writer.add_tensor_info(t.name, t.shape, np.dtype(np.float32), t.size, raw_dtype=t.type)
            writer.kv_data = [dict(file.fields)]
            writer.write_header_to_file()
            # The author of a model card may write any type: `version: 1.0` is a number.
            with reading("a value of README.md or of a JSON file"):
                writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
        header = path.read_bytes()
    return GgufFile({}, file.targets, name, header.ljust(aligned(len(header)), b"\0"))


def aligned(size: int) -> int:
    """Return where the next tensor can begin."""
    return GGUFWriter.ggml_pad(size, GGUF_DEFAULT_ALIGNMENT)


def encoded_blocks(target: Target, stored: StoredTensor) -> Iterator[np.ndarray]:
    """Yield a tensor's bytes in its storage type, some rows at a time, converted on all cores.

    `stored` has its weights. Raises ModelError on a value that the type cannot hold.
    """
    rows, *columns = target.shape
    first, *rest = target.part
    assert isinstance(first, slice)
    begin, end, _ = first.indices(stored.shape[0])
    step = max(1, SLICE_ELEMENTS // math.prod(columns))

    def encode(start: int) -> np.ndarray:
        there = min(begin + start, end), min(begin + start + step, end)
        with reading(stored.path):
            values = stored.rows(*there)
            if target.correction:
                values = values + target.correction.rows(*there)
        values = values[:, *rest] if rest else values
        shape = (min(step, rows - start), *columns)
        if values.shape != shape:
            values = np.pad(values, [(0, wanted - found) for wanted, found in zip(shape, values.shape, strict=True)])
        largest, most = float(np.abs(values).max()), LARGEST.get(target.type, _LARGEST_IN_BLOCKS)
        if not largest <= most:  # written so that NaN fails too
            raise ModelError(
                f"{stored.path}: a value of {target.name} is {largest}, {target.type.name} holds up to {most:.6g}: "
                "choose another type"
            )
        return quantize_rows(values, target.type, importance=target.importance)

    # NumPy and the engine release the interpreter's lock.
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        starts, few = range(0, rows, step), 4 * threads
        for at in range(0, len(starts), few):
            yield from pool.map(encode, starts[at : at + few])


def quantize_rows(
    values: np.ndarray, kind: GGMLQuantizationType, *, importance: np.ndarray | None = None
) -> np.ndarray:
    """Return float32 rows as bytes of a type. `importance` has one weight for each column.

    Raises ModelError for a block that the type cannot hold.
    """
    values = np.ascontiguousarray(values, np.float32)
    out = np.empty(quant_shape_to_byte_shape(values.shape, kind), np.uint8)
    columns = values.shape[-1]
    weights = None if importance is None else importance.ctypes.data
    library = _library()
    library.ggml_quantize_chunk(kind, values.ctypes.data, out.ctypes.data, 0, values.size // columns, columns, weights)
    if not library.ggml_validate_row_data(kind, out.ctypes.data, out.nbytes):
        raise ModelError(f"the engine cannot quantise a block of values to {kind.name}: choose another type")
    return out


@functools.cache
def _library() -> ctypes.CDLL:
    """Load the engine's library of tensor types. Raises OSError if it is not where llama-cpp-python installs it."""
    spec = find_spec("llama_cpp")
    assert spec and spec.origin
    library = ctypes.CDLL(str(Path(spec.origin).with_name("lib") / _ENGINE.get(sys.platform, "libggml-base.so")))
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, size, size, size, pointer]
    library.ggml_validate_row_data.argtypes = [ctypes.c_int, pointer, ctypes.c_size_t]
    library.ggml_validate_row_data.restype = ctypes.c_bool
    return library
