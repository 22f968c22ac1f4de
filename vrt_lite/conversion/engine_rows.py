"""Quantises rows with the engine's own code: `ggml_quantize_chunk` of the library that llama-cpp-python installs.

Only this function is called. The engine itself is not loaded, and ctypes releases the interpreter's lock, so rows are
quantised on all cores.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quant_shape_to_byte_shape

from vrt_lite.errors import ModelError

_FILES = {"win32": "ggml-base.dll", "darwin": "libggml-base.dylib"}


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
    folder = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(spec.origin).parent / "lib")
    library = ctypes.CDLL(str(folder / _FILES.get(sys.platform, "libggml-base.so")))
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, size, size, size, pointer]
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_validate_row_data.argtypes = [ctypes.c_int, pointer, ctypes.c_size_t]
    library.ggml_validate_row_data.restype = ctypes.c_bool
    return library
