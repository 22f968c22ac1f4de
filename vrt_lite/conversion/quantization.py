"""llama.cpp's rule for the type of each tensor of a quantised language model, and ours for a projector.

A file type such as q4_k_m is a mix: some tensors get more bits (src/llama-quant.cpp, llama_tensor_get_type_impl), and
a row that is not whole blocks gets a larger type (tensor_type_fallback). The order of tensors and of fields is the
quantiser's as well, so that the file has the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from gguf import GGML_QUANT_SIZES, GGML_QUANT_VERSION, GGUFValue, GGUFValueType, LlamaFileType

from vrt_lite.conversion.gguf_writer import GgufFile, Target, Type
from vrt_lite.conversion.weights import read_weights
from vrt_lite.errors import ModelError

_BLOCK = re.compile(r"blk\.(\d+)\.")
_FEED_FORWARD = "clip.vision.feed_forward_length"


class _Rule(msgspec.Struct, frozen=True):
    """Which parts of which file types have another type than the main one, and in which layers."""

    files: tuple[str, ...]
    parts: tuple[str, ...]
    type: str
    where: str = "always"


class _Rules(msgspec.Struct, frozen=True):
    larger: Mapping[str, str]
    parts: tuple[_Rule, ...]


@cache
def _rules() -> _Rules:
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Rules)


def file_type(name: str) -> LlamaFileType:
    """Return llama.cpp's number for a file in a type, the text model's or the projector's."""
    whole = {"f32": "ALL_F32", "q4_k": "MOSTLY_Q4_K_S", "q5_k": "MOSTLY_Q5_K_S"}
    return LlamaFileType[whole.get(name, f"MOSTLY_{name.upper()}")]


def storage_type(name: str, shape: tuple[int, ...], wanted: Type) -> Type:
    """Return the type in which a tensor is stored where `wanted` is the file's, or the one that a rule names."""
    if len(shape) == 1 or ".position_embd." in name:
        return Type.F32  # norms and biases
    if ".patch_embd.weight" in name:
        return Type.F16 if wanted is Type.F16 else Type.F32  # the convolution kernels know only these
    # A row must be whole blocks, as 3420 in the 7B's vision tower is not.
    choices = (wanted, Type[_rules().larger.get(wanted.name, wanted.name)])
    return next((choice for choice in choices if not shape[-1] % block_size(choice)), Type.F16)


@dataclass(frozen=True)
class _Model:
    """What a tensor's type depends on besides its name and its row. `group` is query heads for each key-value head."""

    layers: int
    group: int
    tied: bool
    with_importance: bool

    def type_of(self, target: Target, kind: str) -> Type:
        """Return the type in which a tensor is stored in a file of this type."""
        main, part = Type[re.sub("_[SML]$", "", kind.upper())], target.name.split(".")[-2:][0]
        if part == "output" or (part == "token_embd" and self.tied):
            wanted = Type.Q8_0 if main is Type.Q8_0 or target.shape[-1] % block_size(main) else Type.Q6_K
        else:
            holds = self._list_conditions(_layer(target.name))
            found = (r for r in _rules().parts if kind in r.files and part in r.parts and holds[r.where])
            wanted = next((Type[rule.type] for rule in found), main)
        return storage_type(target.name, target.shape, wanted)

    def _list_conditions(self, layer: int) -> dict[str, bool]:
        eighth = self.layers // 8
        early = layer < eighth
        return {
            "always": True,
            "early": early,
            "early with importance": early and self.with_importance,
            "early without importance": early and not self.with_importance,
            "important": early or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2,
            "first two": layer < 2,
            "first four": layer < 4,
            "first sixteenth": layer < self.layers // 16,
            "grouped": self.group >= 4,
        }


def read_importance(path: Path) -> dict[str, np.ndarray]:
    """Return the mean squared input of each column by weight, from a file of `calibrate` or llama-imatrix.

    Raises ModelError.
    """
    table, means = read_weights(path), dict[str, np.ndarray]()
    for name in table:
        weight, _, kind = name.rpartition(".")
        if kind == "in_sum2":
            sums, counts = (table[f"{weight}.{kind}"] for kind in ("in_sum2", "counts"))
            [count], sums = counts.rows(0, counts.shape[0]).ravel(), sums.rows(0, sums.shape[0]).ravel()
            # As in llama-quantize, all columns are equal for a weight that calibration never evaluated.
            means[weight] = sums / count if count > 0 else np.ones_like(sums)
            if not np.isfinite(means[weight]).all():
                raise ModelError(f"{path}: {name:.80} has values that are no numbers: calibrate again")
    if not means:
        raise ModelError(f"{path} is no importance matrix: give the GGUF that llama-imatrix writes")
    return means


def quantize_text(file: GgufFile, kind: str, *, importance: Mapping[str, np.ndarray] | None = None) -> GgufFile:
    """Describe what llama.cpp's quantiser makes of a language model's file that is not quantised.

    `importance` weighs the columns of the tensors that it names. Raises ModelError if it is of another model.
    """
    architecture = file.fields["general.architecture"].value
    keys = (f"{architecture}.{key}" for key in ("block_count", "attention.head_count", "attention.head_count_kv"))
    layers, heads, kv_heads = (int(file.fields[key].value) for key in keys)
    tied = all(target.name != "output.weight" for target in file.targets)
    model = _Model(layers, heads // kv_heads, tied, with_importance=importance is not None)
    targets = [
        replace(t, type=model.type_of(t, kind), importance=_weights_of(t, importance or {})) for t in file.targets
    ]
    # In the order of llama.cpp's loader: tensors outside the layers, then each layer; by name in each.
    targets.sort(key=lambda target: (_layer(target.name), target.name.encode()))
    # The quantiser sets these two anew, so they come last.
    last = {"general.quantization_version": GGML_QUANT_VERSION, "general.file_type": file_type(kind)}
    fields = {key: value for key, value in file.fields.items() if key not in last}
    return replace(file, fields=fields | {key: _uint32(value) for key, value in last.items()}, targets=targets)


def quantize_projector(file: GgufFile, kind: str) -> GgufFile:
    """Describe a quantised projector, from its description in F32. `kind` is one of QUANTIZED_PROJECTOR_TYPES.

    The published feed-forward width of 3420 is no multiple of a block: 32 values for Q8_0, 256 for the K types. There
    llama.cpp's converter leaves half of the weights in F16. Here the width is padded with zeros, which change no value:
    silu(0)·0 times a weight is added. At the 7B's shape in Q8_0 the file is 130 MB smaller and a frame pair 12 %
    faster. Other rows that are no whole blocks get a larger type.
    """
    block = block_size(Type[kind.upper()])
    width = next((target.shape[0] for target in file.targets if target.name == "v.blk.0.ffn_up.weight"), 0)
    padded = -(-width // block) * block
    fields = dict(file.fields) | {"general.file_type": _uint32(file_type(kind))}
    found = fields.get(_FEED_FORWARD)
    if found and found.value == width:  # a Qwen2-VL projector has another number there
        fields[_FEED_FORWARD] = _uint32(padded)
    return replace(file, fields=fields, targets=[_pad(target, Type[kind.upper()], padded) for target in file.targets])


def _pad(target: Target, kind: Type, padded: int) -> Target:
    """Describe a projector's tensor in a type, with this feed-forward width."""
    shape, (*_, part, end) = target.shape, target.name.split(".")
    if part in ("ffn_gate", "ffn_up"):
        shape = (padded, *shape[1:])
    elif part == "ffn_down" and end == "weight":
        shape = (shape[0], padded)
    return replace(target, shape=shape, type=storage_type(target.name, shape, kind))


def block_size(kind: Type) -> int:
    """Return how many values of a row are stored together."""
    return GGML_QUANT_SIZES[kind][0]


def _uint32(value: int) -> GGUFValue:
    return GGUFValue(value, GGUFValueType.UINT32)


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
