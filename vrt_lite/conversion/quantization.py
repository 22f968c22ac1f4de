"""llama.cpp's rule for the type of each tensor of a quantised language model, and ours for a projector.

A file type such as q4_k_m is a mix: some tensors get more bits (src/llama-quant.cpp, llama_tensor_get_type_impl), and
a row that is not whole blocks gets a larger type (tensor_type_fallback). The order of tensors and of fields is the
quantiser's as well, so that the file has the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGML_QUANT_VERSION, GGUFValue, GGUFValueType, GGUFWriter, LlamaFileType

from vrt_lite.conversion.gguf_writer import GgufFile, Target, Type
from vrt_lite.conversion.weights import read_rules, read_weights
from vrt_lite.errors import ModelError

_FEED_FORWARD = "clip.vision.feed_forward_length"


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
    choices = (wanted, Type[read_rules("quantization")["larger"].get(wanted.name, wanted.name)])
    return next((choice for choice in choices if not shape[-1] % block_size(choice)), Type.F16)


def read_importance(path: Path) -> dict[str, np.ndarray]:
    """Return the mean squared input of each column by weight, from a file of `calibrate` or llama-imatrix.

    Raises ModelError.
    """
    table, means = read_weights(path), dict[str, np.ndarray]()
    for name in table:
        weight, _, kind = name.rpartition(".")
        if kind == "in_sum2":
            sums, [count] = (table[f"{weight}.{part}"].rows().ravel() for part in (kind, "counts"))
            # As in llama-quantize, all columns are equal for a weight that calibration never evaluated.
            means[weight] = sums / count if count > 0 else np.ones_like(sums)
            if not np.isfinite(means[weight]).all():
                raise ModelError(f"{path}: {name:.80} has values that are no numbers: calibrate again")
    if not means:
        raise ModelError(f"{path} is no importance matrix: give the GGUF that llama-imatrix writes")
    return means


def quantize_text(file: GgufFile, kind: str, *, importance: Mapping[str, np.ndarray] | None) -> GgufFile:
    """Describe what llama.cpp's quantiser makes of a language model's file that is not quantised.

    `importance` weighs the columns of the tensors that it names. Raises ModelError if it is of another model.
    """
    architecture = file.fields["general.architecture"].value
    keys = ("block_count", "attention.head_count", "attention.head_count_kv")
    layers, heads, kv_heads = (int(file.fields[f"{architecture}.{key}"].value) for key in keys)
    tied = all(target.name != "output.weight" for target in file.targets)
    main = Type[re.sub("_[SML]$", "", kind.upper())]
    rules = [rule for rule in read_rules("quantization")["parts"] if kind in rule["files"]]
    targets = list[Target]()
    # In the order of llama.cpp's loader: tensors outside the layers, then each layer; by name in each.
    for target in sorted(file.targets, key=lambda target: (_layer(target.name), target.name.encode())):
        part = target.name.split(".")[-2:][0]
        if part == "output" or (part == "token_embd" and tied):
            wanted = Type.Q8_0 if main is Type.Q8_0 or target.shape[-1] % block_size(main) else Type.Q6_K
        else:
            holds = _list_conditions(_layer(target.name), layers, heads // kv_heads, importance is not None)
            named = (rule for rule in rules if part in rule["parts"])
            wanted = next((Type[rule["type"]] for rule in named if holds[rule.get("where", "always")]), main)
        weights = (importance or {}).get(target.name)
        if weights is not None and weights.size != target.shape[-1]:
            if part != "token_embd":
                raise ModelError(
                    f"the importance matrix has {weights.size} columns for {target.name}, which has "
                    f"{target.shape[-1]}: calibrate with this model"
                )
            weights = None  # as in the quantiser: those of an embedding may have another size
        stored = storage_type(target.name, target.shape, wanted)
        targets.append(replace(target, type=stored, importance=weights))
    # The quantiser sets these two anew, so they come last.
    last = {"general.quantization_version": GGML_QUANT_VERSION, "general.file_type": file_type(kind)}
    fields = {key: value for key, value in file.fields.items() if key not in last}
    return GgufFile(fields | {key: _uint32(value) for key, value in last.items()}, targets)


def _list_conditions(layer: int, layers: int, group: int, with_importance: bool) -> dict[str, bool]:
    """Return what holds for a layer. `group` is how many query heads share a key-value head."""
    eighth = layers // 8
    early = layer < eighth
    return {
        "always": True,
        "early": early,
        "early with importance": early and with_importance,
        "early without importance": early and not with_importance,
        "important": early or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2,
        "first two": layer < 2,
        "first four": layer < 4,
        "first sixteenth": layer < layers // 16,
        "grouped": group >= 4,
    }


def quantize_projector(file: GgufFile, kind: str) -> GgufFile:
    """Describe a quantised projector, from its description in F32. `kind` is one of QUANTIZED_PROJECTOR_TYPES.

    The published feed-forward width of 3420 is no multiple of a block: 32 values for Q8_0, 256 for the K types. There
    llama.cpp's converter leaves half of the weights in F16. Here the width is padded with zeros, which change no value:
    silu(0)·0 times a weight is added. At the 7B's shape in Q8_0 the file is 130 MB smaller and a frame pair 12 %
    faster. Other rows that are no whole blocks get a larger type.
    """
    wanted = Type[kind.upper()]
    block = block_size(wanted)
    targets = list[Target]()
    for target in file.targets:
        shape = target.shape
        if ".ffn_gate." in target.name or ".ffn_up." in target.name:
            shape = (GGUFWriter.ggml_pad(shape[0], block), *shape[1:])
        elif target.name.endswith(".ffn_down.weight"):
            shape = (shape[0], GGUFWriter.ggml_pad(shape[1], block))
        targets.append(replace(target, shape=shape, type=storage_type(target.name, shape, wanted)))
    fields = dict(file.fields) | {"general.file_type": _uint32(file_type(kind))}
    if width := fields.get(_FEED_FORWARD):
        fields[_FEED_FORWARD] = _uint32(GGUFWriter.ggml_pad(width.value, block))
    return GgufFile(fields, targets)


def block_size(kind: Type) -> int:
    """Return how many values of a row are stored together."""
    return GGML_QUANT_SIZES[kind][0]


def _uint32(value: int) -> GGUFValue:
    return GGUFValue(value, GGUFValueType.UINT32)


def _layer(name: str) -> int:
    return int(name.split(".")[1]) if name.startswith("blk.") else -1
