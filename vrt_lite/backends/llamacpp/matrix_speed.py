"""Measures how fast this machine's processor multiplies matrices of one type, with the engine's own kernels."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Generator
from typing import Any

from vrt_lite.backends.llamacpp.engine import find_function, start_engine

_F32 = 0
_COLUMNS = 4096
_ROWS = 8192
"""One matrix of Q4_K then has 19 MB, more than the caches that are close to a processor."""
_MANY = 128
_REPEATS = 3
_SPARE_BYTES = 2**20


class _Params(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def measure_matrix(kind: int, threads: int) -> tuple[float, float]:
    """Multiply a matrix of one of ggml's types by number, in about a third of a second.

    Returns the weights that are multiplied in a second with one token, and with each of many. AttributeError if the
    engine's library lacks the functions.
    """
    start_engine()
    return _measure(kind, 1, _ROWS, threads), _measure(kind, _MANY, _ROWS // 4, threads)


def _measure(kind: int, tokens: int, rows: int, threads: int) -> float:
    """Weights a second, by the quickest of a few runs."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    row_size = _function("ggml_row_size", ctypes.c_size_t, ctypes.c_int, number)
    new_matrix = _function("ggml_new_tensor_2d", pointer, pointer, ctypes.c_int, number, number)
    multiply = _function("ggml_mul_mat", pointer, pointer, pointer, pointer)
    new_graph = _function("ggml_new_graph", pointer, pointer)
    expand = _function("ggml_build_forward_expand", None, pointer, pointer)
    clear = _function("ggml_set_zero", pointer, pointer)
    compute = _function("ggml_graph_compute_with_ctx", ctypes.c_int, pointer, pointer, ctypes.c_int)
    size = row_size(kind, _COLUMNS) * rows + 4 * tokens * (2 * _COLUMNS + rows) + _SPARE_BYTES
    with _arena(2 * size) as arena:
        weights, values = new_matrix(arena, kind, _COLUMNS, rows), new_matrix(arena, _F32, _COLUMNS, tokens)
        clear(weights)
        clear(values)
        graph = new_graph(arena)
        expand(graph, multiply(arena, weights, values))
        quickest = float("inf")
        for _ in range(_REPEATS):
            began = time.perf_counter()
            compute(arena, graph, threads)
            quickest = min(quickest, time.perf_counter() - began)
    return _COLUMNS * rows * tokens / quickest


@contextlib.contextmanager
def _arena(size: int) -> Generator[int]:
    """Memory for ggml's tensors, freed at the end."""
    begin, end = _function("ggml_init", ctypes.c_void_p, _Params), _function("ggml_free", None, ctypes.c_void_p)
    arena = begin(_Params(size, None, False))
    if not arena:
        raise MemoryError
    try:
        yield arena
    finally:
        end(arena)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of ggml, with its types."""
    function = find_function(name)
    function.restype, function.argtypes = result, list(arguments)
    return function
