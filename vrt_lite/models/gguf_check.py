"""Checks that a GGUF holds what the engine needs of a judge: tensors, their shapes and types, and numbers.

The engine trusts a file. A tensor that is missing or of another shape, or a number of another type, ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import Gguf, Tensor

BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    **{0: (1, 4), 1: (1, 2), 30: (1, 2)},  # F32, F16, BF16
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34)},  # Q4_0 to Q8_0
    **{10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)},  # Q2_K to Q6_K
    **{16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82)},  # IQ
    **{23: (256, 136), 29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36)},  # IQ, TQ, MXFP4, NVFP4
}
"""Of each type of weights, by ggml's number: how many values a block has, and how many bytes."""
_F32, _F16 = 0, 1
_MOST: Final = 2**20
"""The largest width, and the most heads, that are believed."""
_MOST_LAYERS: Final = 512
_PATCH: Final = 14
_UNUSED = ("expert_count", "expert_used_count", "expert_group_count", "nextn_predict_layers", "embedding_length_out")
_UNUSED_ATTENTION = ("causal", "sliding_window", "key_length_swa", "value_length_swa", "max_alibi_bias")
_UNUSED_CLIP = (
    *("vision.feature_layer", "vision.image_grid_pinpoints", "vision.mm_patch_merge_type", "minicpmv_version"),
    "minicpmv_query_num",
)

Shapes = dict[str, tuple[int, ...]]


def check_text(path: Path, gguf: Gguf) -> None:
    """Check a text model. Raises ModelError, which names the file and the reason."""
    _check(path, gguf, _check_text, "qwen2vl.")


def check_projector(path: Path, gguf: Gguf) -> None:
    """Check a projector. Raises ModelError, which names the file and the reason."""
    _check(path, gguf, _check_projector, "clip.")


def _check(path: Path, gguf: Gguf, check: Callable[[_Numbers, Mapping[str, Tensor]], None], prefix: str) -> None:
    try:
        check(_Numbers(gguf, prefix), {tensor.name: tensor for tensor in gguf.tensors})
    except ValueError as error:
        raise ModelError(f"{path} cannot be a judge: {error}. Copy, download or convert it again.") from error


def _check_text(numbers: _Numbers, tensors: Mapping[str, Tensor]) -> None:
    width, layers = numbers.whole("embedding_length"), numbers.whole("block_count", most=_MOST_LAYERS)
    heads = numbers.divisor("attention.head_count", width)
    kv_heads = numbers.divisor("attention.head_count_kv", heads, default=heads)
    size = width // heads
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if numbers.whole(name, default=size) != size:
            raise ValueError(f"{numbers.key(name)} is not {size}, the width of a head")
    numbers.whole("context_length", most=2**30)
    numbers.epsilon("attention.layer_norm_rms_epsilon")
    for name in ("rope.freq_base", "rope.scaling.factor"):
        numbers.real(name, default=1.0)
    numbers.one_of("rope.scaling.type", ("none", "linear", "yarn", "longrope"), default="none")
    numbers.refuse((*_UNUSED, *(f"attention.{name}" for name in _UNUSED_ATTENTION), "pooling_type"))
    sections = numbers.reals("rope.dimension_sections", "int32", 4)
    if min(sections) < 0 or 2 * sum(sections) != size:
        raise ValueError(f"{numbers.key('rope.dimension_sections')} is {sections}; their sum must be {size // 2}")
    vocabulary = _check_tokenizer(numbers.gguf)
    needed = _text_shapes(tensors, width, layers, kv_heads * size, numbers.whole("feed_forward_length"), vocabulary)
    _check_tensors(tensors, needed, optional=("output.weight", "output.bias"))


def _check_tokenizer(gguf: Gguf) -> int:
    """Check what the engine reads without a look at its type; returns the number of tokens."""
    tokenizer = _Numbers(gguf, "tokenizer.ggml.")
    tokenizer.one_of("model", ("gpt2",))
    tokenizer.one_of("pre", ("qwen2",))
    vocabulary = tokenizer.length("tokens", "string")
    if (distinct := gguf.distinct[tokenizer.key("tokens")]) < vocabulary:
        raise ValueError(f"{tokenizer.key('tokens')} has {vocabulary} tokens, and only {distinct} different ones")
    tokenizer.length("merges", "string")
    for name, kind in (("token_type", "int32"), ("scores", "float32")):
        if tokenizer.key(name) in gguf.types and (count := tokenizer.length(name, kind)) != vocabulary:
            raise ValueError(f"{tokenizer.key(name)} has {count} items for {vocabulary} tokens")
    return vocabulary


def _text_shapes(
    tensors: Collection[str], width: int, layers: int, kv_width: int, inner: int, vocabulary: int
) -> Shapes:
    """The tensors of a text model with their shapes, those included that it may lack."""
    shapes: Shapes = {"token_embd.weight": (width, vocabulary), "output_norm.weight": (width,)}
    shapes |= {"output.weight": (width, vocabulary), "output.bias": (vocabulary,)}
    for layer in (f"blk.{i}" for i in range(layers)):
        widths = {"attn_q": width, "attn_k": kv_width, "attn_v": kv_width}
        if f"{layer}.attn_qkv.weight" in tensors:  # written so on request
            widths = {"attn_qkv": width + 2 * kv_width}
        for name, out in widths.items():
            shapes |= {f"{layer}.{name}.weight": (width, out), f"{layer}.{name}.bias": (out,)}
        shapes |= {f"{layer}.attn_output.weight": (width, width), f"{layer}.ffn_down.weight": (inner, width)}
        shapes |= {f"{layer}.{name}.weight": (width, inner) for name in ("ffn_gate", "ffn_up")}
        shapes |= {f"{layer}.{name}.weight": (width,) for name in ("attn_norm", "ffn_norm")}
    return shapes


def _check_projector(numbers: _Numbers, tensors: Mapping[str, Tensor]) -> None:
    width = numbers.whole("vision.embedding_length")
    heads = numbers.divisor("vision.attention.head_count", width)
    size = width // heads
    if size % 4:
        raise ValueError(f"its heads have a width of {size}; it must be a multiple of 4")
    for name, only in (("attention.head_count_kv", heads), ("attention.head_dim", size), ("spatial_merge_size", 2)):
        if (number := numbers.whole(f"vision.{name}", default=only)) != only:
            raise ValueError(f"{numbers.key(f'vision.{name}')} is {number}; it must be {only}")
    if (patch := numbers.whole("vision.patch_size")) != _PATCH:
        raise ValueError(f"{numbers.key('vision.patch_size')} is {patch}; it must be {_PATCH}")
    numbers.whole("vision.image_size")
    numbers.whole(
        "vision.n_wa_pattern", least=2
    )  # with 1 no layer has a window, and the engine ends at its unused mask
    numbers.whole("vision.feed_forward_length", least=0)  # some writers leave 0 there, and it is not used
    numbers.epsilon("vision.attention.layer_norm_epsilon")
    numbers.reals("vision.image_mean", "float32", 3)
    if min(numbers.reals("vision.image_std", "float32", 3)) <= 0:
        raise ValueError(f"{numbers.key('vision.image_std')} must be above 0")
    for name, only in (("has_vision_encoder", True), ("has_audio_encoder", False), ("has_gen_audio_encoder", False)):
        if numbers.flag(name) != only:
            raise ValueError(f"{numbers.key(name)} must be {str(only).lower()}")
    for name in ("use_silu", "use_gelu"):
        numbers.flag(name)
    for name in ("name", "description"):
        _Numbers(numbers.gguf, "general.").has_type(name, "string")
    numbers.refuse(_UNUSED_CLIP)
    layers = numbers.whole("vision.block_count", most=_MOST_LAYERS)
    up = tensors.get("v.blk.0.ffn_up.bias")
    inner = up.dimensions[0] if up and up.dimensions else 0
    needed = _projector_shapes(width, layers, inner, numbers.whole("vision.projection_dim"))
    if extra := sorted(tensors.keys() - needed):
        raise ValueError(f"it has the tensor {extra[0][:80]!r}, which no Qwen2.5-VL projector has")
    _check_tensors(tensors, needed)
    for name in needed:
        if name.startswith("v.patch_embd") and tensors[name].kind not in (_F32, _F16):
            raise ValueError(f"the tensor {name} is of type {tensors[name].kind}; F32 or F16 is needed")


def _projector_shapes(width: int, layers: int, inner: int, out: int) -> Shapes:
    """The tensors of a projector with their shapes."""
    shapes: Shapes = {f"v.patch_embd.weight{end}": (_PATCH, _PATCH, 3, width) for end in ("", ".1")}
    shapes |= {"v.post_ln.weight": (width,), "mm.0.weight": (4 * width, 4 * width), "mm.0.bias": (4 * width,)}
    shapes |= {"mm.2.weight": (4 * width, out), "mm.2.bias": (out,)}
    sides = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), (width, width))
    sides |= {"ffn_gate": (width, inner), "ffn_up": (width, inner), "ffn_down": (inner, width)}
    for layer in (f"v.blk.{i}" for i in range(layers)):
        shapes |= {f"{layer}.{name}.weight": (width,) for name in ("ln1", "ln2")}
        for name, shape in sides.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[1:]}
    return shapes


def _check_tensors(tensors: Mapping[str, Tensor], needed: Shapes, *, optional: Collection[str] = ()) -> None:
    for name, shape in needed.items():
        if name in tensors:
            _check_tensor(tensors[name], shape)
        elif name not in optional:
            raise ValueError(f"it has no tensor {name}")


def _check_tensor(tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Check a tensor's shape, without the dimensions of 1 that may follow it, its type, and its size in the file."""
    dimensions = tensor.dimensions
    if dimensions[: len(shape)] != shape or any(more != 1 for more in dimensions[len(shape) :]):
        raise ValueError(f"the tensor {tensor.name} has the dimensions {_join(dimensions)}, not {_join(shape)}")
    if len(shape) == 1 and tensor.kind != _F32:
        raise ValueError(f"the tensor {tensor.name} is of type {tensor.kind}; F32 is needed")
    if tensor.kind not in BLOCKS:
        raise ValueError(f"the tensor {tensor.name} is of the type {tensor.kind}, which the engine cannot use")
    values, block_bytes = BLOCKS[tensor.kind]
    if shape[0] % values:
        raise ValueError(f"the tensor {tensor.name} has rows of {shape[0]} values in blocks of {values}")
    if (needed := math.prod(shape) // values * block_bytes) > tensor.size:
        raise ValueError(f"the tensor {tensor.name} has {tensor.size} bytes of {needed}")


def _join(dimensions: tuple[int, ...]) -> str:
    return "x".join(map(str, dimensions)) or "none"


class _Numbers:
    """The metadata of one prefix. Each method raises ValueError for a value that is missing, or that is not allowed."""

    def __init__(self, gguf: Gguf, prefix: str) -> None:
        self.gguf = gguf
        self._prefix = prefix

    def key(self, name: str) -> str:
        return self._prefix + name

    def has_type(self, name: str, kind: str, *, required: bool = False) -> bool:
        """Whether it is there; ValueError if it is of another type."""
        if (found := self.gguf.types.get(self.key(name))) is None and not required:
            return False
        if found != kind:
            raise ValueError(f"{self.key(name)} is {f'of type {found}' if found else 'missing'}; {kind} is needed")
        return True

    def whole(self, name: str, *, default: int | None = None, least: int = 1, most: int = _MOST) -> int:
        if not self.has_type(name, "uint32", required=default is None) and default is not None:
            return default
        number = self.gguf.number(self.key(name))
        if not least <= number <= most:
            raise ValueError(f"{self.key(name)} is {number}; it must be {least} to {most}")
        return number

    def divisor(self, name: str, of: int, *, default: int | None = None) -> int:
        number = self.whole(name, default=default)
        if of % number:
            raise ValueError(f"{self.key(name)} is {number}, which does not divide {of}")
        return number

    def real(self, name: str, *, default: float | None = None) -> float:
        if not self.has_type(name, "float32", required=default is None) and default is not None:
            return default
        number = self.gguf.values[self.key(name)]
        if not isinstance(number, float) or not 0 <= number < math.inf:
            raise ValueError(f"{self.key(name)} is {number}; it must be 0 or more")
        return number

    def epsilon(self, name: str) -> None:
        if (number := self.real(name)) > 1:
            raise ValueError(f"{self.key(name)} is {number}; it must be 0 to 1")

    def reals(self, name: str, kind: str, count: int) -> tuple[float, ...]:
        self.has_type(name, f"array of {kind}", required=True)
        numbers = self.gguf.numbers.get(self.key(name), ())
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            raise ValueError(f"{self.key(name)} is {numbers}; it must be {count} numbers")
        return numbers

    def length(self, name: str, kind: str) -> int:
        self.has_type(name, f"array of {kind}", required=True)
        return self.gguf.lengths[self.key(name)]

    def flag(self, name: str) -> bool:
        return self.has_type(name, "bool") and bool(self.gguf.values[self.key(name)])

    def one_of(self, name: str, allowed: Collection[str], *, default: str | None = None) -> None:
        if (
            self.has_type(name, "string", required=default is None)
            and (value := self.gguf.values[self.key(name)]) not in allowed
        ):
            raise ValueError(f"{self.key(name)} is {str(value)[:40]!r}; it must be {' or '.join(allowed)}")

    def refuse(self, names: Collection[str]) -> None:
        if found := [self.key(name) for name in names if self.key(name) in self.gguf.types]:
            raise ValueError(f"it has {found[0]}, which no Qwen2.5-VL model has")
