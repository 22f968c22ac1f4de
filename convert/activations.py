"""Reads the inputs of each weight of a text model from the engine while it evaluates.

llama.cpp names the nodes of its graph and the weights (src/models/qwen2vl.cpp, src/llama-graph.cpp). By these names
this module finds the node that is the input of a weight, and reads it with ggml's exported functions. A weight whose
input has no known name is an error; it is never left out.
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
# With tied weights, the output uses the embedding's weights.
_OUTSIDE = {"output.weight": "result_norm", "token_embd.weight": "result_norm"}
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one weight: the sum of squares of each column, float64, over `rows` rows."""

    squares: NDArray[np.float64]
    rows: int

    def __add__(self, other: Inputs) -> Inputs:
        return Inputs(self.squares + other.squares, self.rows + other.rows)


def node_of(weight: str) -> str:
    """Return the graph node that is the input of `weight`. Raises ModelError for a weight of another architecture."""
    match weight.split("."):
        case ["blk", layer, part, "weight"] if part in _IN_BLOCK:
            return f"{_IN_BLOCK[part]}-{layer}"
        case _ if weight in _OUTSIDE:
            return _OUTSIDE[weight]
        case _:
            raise ModelError(f"what enters the weight {weight:.80} is not known: it is none of a Qwen2.5-VL text model")


class Watch:
    """Sums up the inputs of weights, given by name with their columns, in every context that has its `callback`.

    It must live as long as such a context. It changes no result. Every evaluated row counts. The last layer and the
    output get only the rows that give logits.
    """

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._columns = {node_of(weight).encode(): count for weight, count in columns.items()}
        self._weights = {weight: node_of(weight).encode() for weight in columns}
        self._ggml = _library()
        self._sums: dict[bytes, Inputs] = {}
        self._failure: BaseException | None = None
        self.callback = llama.ggml_backend_sched_eval_callback(self._on_node)

    def take(self) -> dict[str, Inputs]:
        """Return the sums since the last call, by weight. Raises the first exception of the callback."""
        sums, self._sums = self._sums, {}
        failure, self._failure = self._failure, None
        if failure:
            raise failure
        return {weight: sums[node] for weight, node in self._weights.items() if node in sums}

    def _on_node(self, node: int, ask: bool, _: object) -> bool:
        """Return with `ask`, before a node is computed, if its input is needed. Without `ask`, add it to the sums."""
        try:
            name = self._ggml.ggml_get_name(node)
            if not ask and (read := self._read(node, name)):
                self._sums[name] = self._sums[name] + read if name in self._sums else read
            return name in self._columns
        except BaseException as error:  # an exception cannot pass through the engine
            self._failure = self._failure or error
            return not ask

    def _read(self, node: int, name: bytes) -> Inputs | None:
        size, columns = self._ggml.ggml_nbytes(node), self._columns[name]
        if not size:  # the last layer gets only rows that give logits, and frames give none
            return None
        if size != _FLOAT_BYTES * self._ggml.ggml_nelements(node) or size % (_FLOAT_BYTES * columns):
            raise ModelError(f"the engine's node {name.decode()} is not of F32 rows of {columns}: another engine?")
        rows = np.empty((size // (_FLOAT_BYTES * columns), columns), np.float32)
        self._ggml.ggml_backend_tensor_get(node, rows.ctypes.data, 0, size)
        return Inputs(np.einsum("ij,ij->j", rows, rows, dtype=np.float64), len(rows))


def _library() -> Any:
    """Load the engine's ggml functions. They are in their own library, which some systems do not find by themselves."""
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
