"""What enters each weight of a text model, read from the engine while it works.

Knows which node of llama.cpp's graph is the input of which weight, by the names that it gives both
(src/models/qwen2vl.cpp, src/llama-graph.cpp), and reads nodes by ggml's exported functions. Refuses to know how
ggml lays out its structures, and what is evaluated. A weight whose input has no known name is refused, never left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from llama_cpp import _ctypes_extensions, _ggml
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.engine import llama
from vrt_lite.errors import ModelError

_IN_BLOCK = {
    "attn_q": "attn_norm",
    "attn_k": "attn_norm",
    "attn_v": "attn_norm",
    "attn_output": "kqv_out",
    "ffn_gate": "ffn_norm",
    "ffn_up": "ffn_norm",
    "ffn_down": "ffn_swiglu",
}
# Of tied weights the output takes the embedding's.
_OUTSIDE = {"output.weight": "result_norm", "token_embd.weight": "result_norm"}
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Inputs:
    """What entered one weight: the sum of squares of each column, float64, over `rows` rows."""

    squares: NDArray[np.float64]
    rows: int

    def __add__(self, other: Inputs) -> Inputs:
        return Inputs(self.squares + other.squares, self.rows + other.rows)


def node_of(weight: str) -> str:
    """The graph's name for the input of `weight`; ModelError if it is none of this architecture's."""
    match weight.split("."):
        case ["blk", layer, part, "weight"] if part in _IN_BLOCK:
            return f"{_IN_BLOCK[part]}-{layer}"
        case _ if weight in _OUTSIDE:
            return _OUTSIDE[weight]
        case _:
            raise ModelError(f"what enters the weight {weight:.80} is not known: it is none of a Qwen2.5-VL text model")


class Watch:
    """Sums up what enters weights, given by name with their columns, in every context that has its `callback`.

    Must live as long as such a context does. Changes nothing that is computed, only where the engine pauses. Counts
    every row that is evaluated: the last layer works only on those that give logits, as the output does.
    """

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._columns = {node_of(weight).encode(): count for weight, count in columns.items()}
        self._weights = {weight: node_of(weight).encode() for weight in columns}
        self._ggml = _library()
        self._sums: dict[bytes, Inputs] = {}
        self._failure: BaseException | None = None
        self.callback = llama.ggml_backend_sched_eval_callback(self._on_node)

    def take(self) -> dict[str, Inputs]:
        """The sums since the last call, of weights that anything entered; raises what the callback met with."""
        sums, self._sums = self._sums, {}
        failure, self._failure = self._failure, None
        if failure:
            raise failure
        return {weight: sums[node] for weight, node in self._weights.items() if node in sums}

    def _on_node(self, node: int, ask: bool, _: object) -> bool:
        """Asked, before a node is computed, whether it is of interest; told when it has been."""
        try:
            name = self._ggml.ggml_get_name(node)
            if not ask and (read := self._read(node, name)):
                self._sums[name] = self._sums[name] + read if name in self._sums else read
            return name in self._columns
        except BaseException as error:  # none can cross the engine
            self._failure = self._failure or error
            return not ask

    def _read(self, node: int, name: bytes) -> Inputs | None:
        size, columns = self._ggml.ggml_nbytes(node), self._columns[name]
        if not size:  # the last layer works only on rows that give logits, and a frame's give none
            return None
        if size != _FLOAT_BYTES * self._ggml.ggml_nelements(node) or size % (_FLOAT_BYTES * columns):
            raise ModelError(f"the engine's node {name.decode()} is not of F32 rows of {columns}: another engine?")
        rows = np.empty((size // (_FLOAT_BYTES * columns), columns), np.float32)
        self._ggml.ggml_backend_tensor_get(node, rows.ctypes.data, 0, size)
        return Inputs(np.einsum("ij,ij->j", rows, rows, dtype=np.float64), len(rows))


def _library() -> Any:
    """The engine's ggml functions. They are in a library of their own, which not every system finds through another."""
    library = _ctypes_extensions.load_shared_library("ggml-base", _ggml.libggml_base_path)
    for name, result, *arguments in (
        ("ggml_get_name", ctypes.c_char_p),
        ("ggml_nbytes", ctypes.c_size_t),
        ("ggml_nelements", ctypes.c_int64),
        ("ggml_backend_tensor_get", None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t),
    ):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.c_void_p, *arguments], result
    return library
