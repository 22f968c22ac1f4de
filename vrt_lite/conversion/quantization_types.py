"""llama.cpp's rule for the type of each tensor of a quantised language model.

A file type such as q4_k_m is a mix: some tensors get more bits (src/llama-quant.cpp, llama_tensor_get_type_impl), and
a row that is not whole blocks gets a larger type (tensor_type_fallback). The order of tensors and of fields is the
quantiser's as well, so that the file has the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUFValueType, LlamaFileType

from vrt_lite.conversion.gguf_writer import VERSION, GgufField, GgufFile, Target, Type
from vrt_lite.errors import ModelError

_FOR_ODD_ROWS = {
    Type.IQ4_XS: Type.IQ4_NL,
    Type.Q2_K: Type.Q4_0,
    Type.Q3_K: Type.Q4_0,
    Type.Q4_K: Type.Q5_0,
    Type.Q5_K: Type.Q5_1,
    Type.Q6_K: Type.Q8_0,
}
_BLOCK = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class TypeMix:
    """What a tensor's type depends on besides its name and its row. `group` is query heads for each key-value head."""

    file_type: str
    layers: int
    group: int
    tied: bool
    with_importance: bool

    def type_of(self, name: str, shape: tuple[int, ...]) -> Type:
        """Return the type in which a tensor is stored; `shape` as NumPy orders it."""
        if len(shape) == 1:
            return Type.F32  # norms and biases
        main = Type[re.sub("_[SML]$", "", self.file_type.upper())]
        part = name.rpartition(".")[0].rpartition(".")[2]
        if part == "output" or (part == "token_embd" and self.tied):
            wanted = Type.Q8_0 if main is Type.Q8_0 or shape[-1] % block_size(main) else Type.Q6_K
        else:
            wanted = self._of_part(part, _layer(name)) or main
        return fit_row(wanted, shape[-1])

    def _of_part(self, part: str, layer: int) -> Type | None:
        """Return the type that this part of this layer has in place of the main type, or None."""
        eighth = self.layers // 8
        early, important = layer < eighth, layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2
        match self.file_type, part:
            case "q4_k_m" | "q5_k_m", "attn_v" | "ffn_down" if early or important:
                return Type.Q6_K
            case "q3_k_l", "attn_v" | "ffn_down" | "attn_output":
                return Type.Q5_K
            case "q3_k_m", "attn_v" | "ffn_down" if layer < (2 if part == "attn_v" else self.layers // 16):
                return Type.Q5_K
            case "q3_k_m", "attn_v" | "ffn_down" | "attn_output":
                return Type.Q4_K
            case "q2_k", "attn_v" if self.group >= 4:
                return Type.Q4_K
            case "q2_k", "attn_v" | "ffn_down" | "attn_output":
                return Type.Q3_K
            case "q4_k_s", "attn_v" | "ffn_down" if layer < (4 if part == "attn_v" else eighth):
                return Type.Q5_K
            case "iq4_nl" | "iq4_xs", "attn_v" if self.group >= 4:
                return Type.Q5_K
            case "iq4_nl" | "iq4_xs", "ffn_down" if early and not self.with_importance:
                return Type.Q5_K
            case "q4_0" | "q5_0", "ffn_down" if early and self.with_importance:
                return Type.Q4_1 if self.file_type == "q4_0" else Type.Q5_1
            case _:
                return None


def quantize_file(file: GgufFile, file_type: str, *, importance: Mapping[str, np.ndarray] | None = None) -> GgufFile:
    """Describe what llama.cpp's quantiser makes of a language model's file that is not quantised.

    `importance` weighs the columns of the tensors that it names. Raises ModelError if it is of another model.
    """
    numbers = {field.key: field.value for field in file.fields}
    keys = (f"{file.architecture}.{key}" for key in ("block_count", "attention.head_count", "attention.head_count_kv"))
    layers, heads, kv_heads = (numbers.get(key) for key in keys)
    if not (isinstance(layers, int) and isinstance(heads, int) and isinstance(kv_heads, int) and kv_heads):
        raise ModelError(f"{file.name or 'the file'} does not say how many layers and heads it has: convert it again")
    mix = TypeMix(
        file_type,
        layers=layers,
        group=heads // kv_heads,
        tied=all(target.name != "output.weight" for target in file.targets),
        with_importance=importance is not None,
    )
    targets = [
        replace(t, type=mix.type_of(t.name, t.shape), importance=_weights_of(t, importance or {})) for t in file.targets
    ]
    # The quantiser sets these two anew, so they come last.
    number = LlamaFileType[f"MOSTLY_{file_type.upper()}"]
    last = [VERSION, GgufField("general.file_type", number, GGUFValueType.UINT32)]
    fields = [field for field in file.fields if field.key not in {field.key for field in last}]
    # In the order of llama.cpp's loader: tensors outside the layers, then each layer; by name in each.
    targets.sort(key=lambda target: (_layer(target.name), target.name.encode()))
    return replace(file, fields=[*fields, *last], targets=targets)


def fit_row(kind: Type, columns: int) -> Type:
    """Return the type, or the next larger one of which a row is whole blocks."""
    choices = (kind, _FOR_ODD_ROWS.get(kind, kind))
    return next((choice for choice in choices if not columns % block_size(choice)), Type.F16)


def block_size(kind: Type) -> int:
    """Return how many values of a row are stored together."""
    return GGML_QUANT_SIZES[kind][0]


def _weights_of(target: Target, importance: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return the weights of a tensor's columns. As in the quantiser, those of an embedding may have another size."""
    weights = importance.get(target.name)
    if weights is None or weights.size == target.shape[-1]:
        return weights
    if target.name == "token_embd.weight":
        return None
    raise ModelError(
        f"the importance matrix has {weights.size} columns for {target.name}, which has {target.shape[-1]}:"
        " calibrate with this model"
    )


def _layer(name: str) -> int:
    found = _BLOCK.match(name)
    return int(found[1]) if found else -1
