"""Checks that a GGUF holds what the engine needs of a judge: tensors, their shapes and types, and numbers.

The engine trusts a file. A tensor that is missing or of another shape, or a number of another type, ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import Gguf, Header, Tensor

BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    **{0: (1, 4), 1: (1, 2), 30: (1, 2)},  # F32, F16, BF16
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34)},  # Q4_0 to Q8_0
    **{10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)},  # Q2_K to Q6_K
    **{16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82)},  # IQ
    **{23: (256, 136), 29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36)},  # IQ, TQ, MXFP4, NVFP4
}
"""Of each type of weights, by ggml's number: how many values a block has, and how many bytes."""
_F32, _F16 = 0, 1
_KINDS: Final = {"v.patch_embd.weight": {_F32: "F32", _F16: "F16"}, "v.position_embd.": {_F32: "F32"}}
"""The types that the engine can use of tensors whose names begin so."""
_MOST: Final = 2**20
"""The largest width, and the most heads, that are believed."""
_MOST_LAYERS: Final = 512
_UNUSED = ("expert_count", "expert_used_count", "expert_group_count", "nextn_predict_layers", "embedding_length_out")
_UNUSED_ATTENTION = ("causal", "sliding_window", "key_length_swa", "value_length_swa", "max_alibi_bias")
_UNUSED_CLIP = (
    *("vision.feature_layer", "vision.image_grid_pinpoints", "vision.mm_patch_merge_type", "minicpmv_version"),
    "minicpmv_query_num",
)

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Tower:
    """What the kinds of vision towers differ in. `deep` ones have a table of positions, and mergers behind blocks."""

    patch: int = 14
    windows: bool = False
    gate: bool = False
    norm_bias: bool = True
    deep: bool = False


_TOWERS: Final = {
    "qwen2vl_merger": _Tower(),
    "qwen2.5vl_merger": _Tower(windows=True, gate=True, norm_bias=False),
    "qwen3vl_merger": _Tower(patch=16, deep=True),
}
PROJECTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "qwen2vl": ("qwen2vl_merger", "qwen2.5vl_merger"),
    "qwen3vl": ("qwen3vl_merger",),
}
"""The kinds of projectors that a text model of each architecture has."""


def check_text(path: Path, gguf: Gguf) -> None:
    """Check a text model. Raises ModelError, which names the file and the reason."""
    _check(path, gguf, _check_text, f"{gguf.values['general.architecture']}.")


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
    normed = numbers.key("") == "qwen3vl."  # queries and keys are, and a head has a width of its own
    heads = numbers.whole("attention.head_count") if normed else numbers.divisor("attention.head_count", width)
    kv_heads = numbers.divisor("attention.head_count_kv", heads, default=heads)
    size = numbers.whole("attention.key_length", default=width // heads)
    size = size if normed else width // heads
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
    numbers.whole("n_deepstack_layers", default=0, least=0, most=layers)
    vocabulary, inner = _check_tokenizer(numbers.gguf), numbers.whole("feed_forward_length")
    needed = _text_shapes(tensors, width, layers, heads * size, kv_heads * size, inner, vocabulary)
    if normed:
        needed = {name: shape for name, shape in needed.items() if not name.endswith(".bias")}
        needed |= {f"blk.{i}.attn_{part}_norm.weight": (size,) for i in range(layers) for part in "qk"}
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
    tensors: Collection[str], width: int, layers: int, q_width: int, kv_width: int, inner: int, vocabulary: int
) -> Shapes:
    """The tensors of a text model with their shapes, those included that it may lack."""
    shapes: Shapes = {"token_embd.weight": (width, vocabulary), "output_norm.weight": (width,)}
    shapes |= {"output.weight": (width, vocabulary), "output.bias": (vocabulary,)}
    for layer in (f"blk.{i}" for i in range(layers)):
        widths = {"attn_q": q_width, "attn_k": kv_width, "attn_v": kv_width}
        if f"{layer}.attn_qkv.weight" in tensors:  # written so on request
            widths = {"attn_qkv": q_width + 2 * kv_width}
        for name, out in widths.items():
            shapes |= {f"{layer}.{name}.weight": (width, out), f"{layer}.{name}.bias": (out,)}
        shapes |= {f"{layer}.attn_output.weight": (q_width, width), f"{layer}.ffn_down.weight": (inner, width)}
        shapes |= {f"{layer}.{name}.weight": (width, inner) for name in ("ffn_gate", "ffn_up")}
        shapes |= {f"{layer}.{name}.weight": (width,) for name in ("attn_norm", "ffn_norm")}
    return shapes


def _check_projector(numbers: _Numbers, tensors: Mapping[str, Tensor]) -> None:
    tower = _TOWERS[str(projector_kind(numbers.gguf.values))]
    width = _check_tower(numbers, tower)
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
    inner, out = up.dimensions[0] if up and up.dimensions else 0, numbers.whole("vision.projection_dim")
    needed = _projector_shapes(tower, width, layers, inner, out)
    needed |= _deep_shapes(tensors, width, out) if tower.deep else {}
    if extra := sorted(tensors.keys() - needed):
        raise ValueError(f"it has the tensor {extra[0][:80]!r}, which no projector of its kind has")
    _check_tensors(tensors, needed)
    for name, kinds in ((n, _KINDS[part]) for n in needed for part in _KINDS if n.startswith(part)):
        if tensors[name].kind not in kinds:
            needs = " or ".join(kinds.values())
            raise ValueError(f"the tensor {name} is of type {tensors[name].kind}; {needs} is needed")


def _check_tower(numbers: _Numbers, tower: _Tower) -> int:
    """Check the numbers of the vision tower; returns its width."""
    width = numbers.whole("vision.embedding_length")
    heads = numbers.divisor("vision.attention.head_count", width)
    size = width // heads
    if size % 4:
        raise ValueError(f"its heads have a width of {size}; it must be a multiple of 4")
    for name, only, default in (
        *(("attention.head_count_kv", heads, heads), ("attention.head_dim", size, size)),
        *(("spatial_merge_size", 2, 2), ("patch_size", tower.patch, None)),
    ):
        if (number := numbers.whole(f"vision.{name}", default=default)) != only:
            raise ValueError(f"{numbers.key(f'vision.{name}')} is {number}; it must be {only}")
    numbers.whole("vision.image_size")
    if tower.windows:  # with 1 no layer has a window, and the engine ends at its unused mask
        numbers.whole("vision.n_wa_pattern", least=2)
    else:
        numbers.refuse(("vision.n_wa_pattern",))
    numbers.whole("vision.feed_forward_length", least=0)  # some writers leave 0 there, and it is not used
    numbers.epsilon("vision.attention.layer_norm_epsilon")
    return width


def projector_kind(values: Header) -> object:
    """What a projector's metadata says that it is."""
    return values.get("clip.projector_type", values.get("clip.vision.projector_type"))


def _deep_shapes(tensors: Mapping[str, Tensor], width: int, out: int) -> Shapes:
    """The tensors that a tower with a table of positions has besides, with their shapes."""
    table = tensors["v.position_embd.weight"].dimensions[-1:] if "v.position_embd.weight" in tensors else (0,)
    if math.isqrt(sum(table)) ** 2 != sum(table):
        raise ValueError(f"its table of positions has {sum(table)} rows, which are no square")
    shapes: Shapes = {"v.position_embd.weight": (width, *table), "v.patch_embd.bias": (width,)}
    for merger in (name.removesuffix(".fc1.weight") for name in deep_mergers(tensors)):
        shapes |= {f"{merger}.norm.{end}": (4 * width,) for end in ("weight", "bias")}
        shapes |= {f"{merger}.fc1.weight": (4 * width, 4 * width), f"{merger}.fc1.bias": (4 * width,)}
        shapes |= {f"{merger}.fc2.weight": (4 * width, out), f"{merger}.fc2.bias": (out,)}
    return shapes


def deep_mergers(names: Iterable[str]) -> list[str]:
    """Of the names of a projector's tensors, one for each block that feeds a layer of the text model."""
    return [name for name in names if name.startswith("v.deepstack.") and name.endswith(".fc1.weight")]


def _projector_shapes(tower: _Tower, width: int, layers: int, inner: int, out: int) -> Shapes:
    """The tensors of a projector with their shapes."""
    shapes: Shapes = {f"v.patch_embd.weight{end}": (tower.patch, tower.patch, 3, width) for end in ("", ".1")}
    shapes |= {"mm.0.weight": (4 * width, 4 * width), "mm.0.bias": (4 * width,)}
    shapes |= {"mm.2.weight": (4 * width, out), "mm.2.bias": (out,)}
    norm_ends = ("weight", "bias") if tower.norm_bias else ("weight",)
    shapes |= {f"v.post_ln.{end}": (width,) for end in norm_ends}
    sides = (
        {"attn_qkv": (width, 3 * width)} if tower.deep else dict.fromkeys(("attn_q", "attn_k", "attn_v"), (width,) * 2)
    )
    sides |= {"attn_out": (width, width), "ffn_up": (width, inner), "ffn_down": (inner, width)}
    sides |= {"ffn_gate": (width, inner)} if tower.gate else {}
    for layer in (f"v.blk.{i}" for i in range(layers)):
        shapes |= {f"{layer}.{name}.{end}": (width,) for name in ("ln1", "ln2") for end in norm_ends}
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
            raise ValueError(f"it has {found[0]}, which no judge has")
