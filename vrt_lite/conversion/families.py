"""The kinds of checkpoints that can be converted: how each becomes the two files of a pair.

The names, sizes and numbers of all of them are in families.toml; another kind is an entry there. Here is what is no
number: rotations, colours, and which blocks differ from the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from gguf import GGUFWriter

from vrt_lite.conversion.checkpoint import Section
from vrt_lite.conversion.gguf_writer import Placement
from vrt_lite.errors import ModelError

_MOST_ELEMENTS = 2**40  # of a tensor
# What there is an object for each of, so that a number that no model has is refused before that.
_BELOW = {"vocab_size": 2**22, "num_hidden_layers": 1024, "depth": 1024}
# transformers builds every norm of these towers with 1e-6, whatever config.json says about the text's.
_TOWER_EPSILON: Final = 1e-6


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a pair, as families.toml has it."""

    prefix: str
    tensors: tuple[str, ...]
    require: Mapping[str, Any]
    sizes: Mapping[str, str]
    numbers: Mapping[str, str]
    more_numbers: Mapping[str, str] = {}
    late_numbers: Mapping[str, str] = {}
    projector: str = ""
    output: str = ""
    flag: str = ""


class _Tables(msgspec.Struct, frozen=True):
    families: dict[str, tuple[str, str]]
    halves: dict[str, _Table]
    tensors: dict[str, dict[str, list[str]]]


@cache
def _tables() -> _Tables:
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Tables)


@dataclass(frozen=True)
class Half:
    """One file of a pair: the text model's or the vision tower's. `config` has its keys of config.json."""

    table: _Table
    config: Section

    @property
    def architecture(self) -> str:
        """GGUF's word for it."""
        return self.table.prefix.partition(".")[0]

    def size(self, word: str) -> int:
        """Return a product of numbers, sizes of the table, and keys of config.json. Raises ModelError."""
        return math.prod(map(self._factor, word.split("*")))

    def _factor(self, word: str) -> int:
        if word in self.table.sizes:
            return self.size(self.table.sizes[word])
        if word in _DERIVED:
            return _DERIVED[word](self.config)
        return int(word) if word.isdigit() else self.config.integer(word, below=_BELOW.get(word, 2**31))


def read_halves(whole: Section) -> tuple[Half, Half]:
    """Return text model and vision tower of a config.json. Raises ModelError for one that cannot be converted.

    llama.cpp has some values built in. So other values would be wrong without a message, and are refused.
    """
    tables = _tables()
    if (kind := str(whole.values.get("model_type"))) not in tables.families:
        raise whole.value_error("model_type", f"{' or '.join(map(repr, tables.families))}; no other can be exported")
    text, tower = (tables.halves[name] for name in tables.families[kind])
    found, vision = whole.section("text_config").over(whole), whole.section("vision_config")
    # The outer key counts, as in transformers.
    outer = {key: value for key, value in whole.values.items() if key == "tie_word_embeddings"}
    found = Section(whole.where, outer).over(found)
    found.require(**text.require)
    vision.require(**tower.require, **{tower.output: found.integer("hidden_size")})
    return Half(text, found), Half(tower, vision)


def placements(half: Half) -> Iterator[Placement]:
    """Return where every tensor of the checkpoint goes; a tied output is not stored twice."""
    is_tied = half.config.values.get("tie_word_embeddings") is True
    for group in half.table.tensors:
        for source, (names, *words) in _tables().tensors[group].items():
            if source != "lm_head.weight" or not is_tied:
                shape = tuple(map(half.size, words))
                for numbers in _count(half, source):
                    yield from _place(source.format(**numbers), names.format(**numbers).split(), shape)


def _count(half: Half, source: str) -> list[dict[str, int]]:
    """Return what the braces in a tensor's name stand for, once for each such tensor."""
    if "{i}" in source:
        return [{"i": i} for i in range(half.size("layers"))]
    return [{"n": n, "block": i} for n, i in enumerate(_deep_blocks(half.config))] if "{n}" in source else [{}]


def _place(source: str, names: list[str], shape: tuple[int, ...]) -> Iterator[Placement]:
    ends = ("",) if source.endswith((".weight", ".bias")) else (".weight", ".bias")
    for i, name in enumerate(names):
        for end in ends:
            own = shape[:1] if end == ".bias" else shape
            rows, everything = own[0] // len(names), slice(None)
            part = (everything, everything, i) if len(own) == 5 else (slice(i * rows, (i + 1) * rows),)
            yield Placement(source + end, own, name + end, part if len(names) > 1 else ())


def expected_shapes(whole: Section) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that this config.json describes, by its published name."""
    shapes = {place.source: place.shape for half in read_halves(whole) for place in placements(half)}
    for name, shape in shapes.items():
        if math.prod(shape) > _MOST_ELEMENTS:
            raise ModelError(f"{whole.where}: {name} is to have the shape {shape}, which no model has")
    return shapes


def add_fields(half: Half, writer: GGUFWriter, file_type: int, preprocessor: Section | None) -> None:
    """Add the metadata of the architecture, and the file's type; of a tower without a preprocessor only its sizes."""
    table = half.table
    if not table.projector:
        _add_numbers(half, writer, table.numbers)
        _add_rotation(half, writer)
        _add_numbers(half, writer, table.more_numbers)
        writer.add_file_type(file_type)
        _add_numbers(half, writer, table.late_numbers)
        return
    writer.add_file_type(file_type)
    writer.add_bool("clip.has_vision_encoder", True)
    _add_numbers(half, writer, table.numbers)
    if preprocessor:
        for key in ("image_mean", "image_std"):
            match preprocessor.values.get(key):
                case [float(), float(), float()] as colours if all(0 < value <= 1 for value in colours):
                    writer.add_array(f"clip.vision.{key}", colours)
                case _:
                    raise preprocessor.value_error(key, "three numbers up to 1, one a colour")
        writer.add_string("clip.projector_type", table.projector)
        if table.flag:
            writer.add_bool(table.flag, True)
        _add_numbers(half, writer, table.more_numbers)
        writer.add_float32("clip.vision.attention.layer_norm_epsilon", _TOWER_EPSILON)
        if "qwen3_tower" in table.tensors:
            deep = _deep_blocks(half.config)
            writer.add_array("clip.vision.is_deepstack_layers", [i in deep for i in range(half.size("layers"))])


def _add_numbers(half: Half, writer: GGUFWriter, numbers: Mapping[str, str]) -> None:
    for key, word in numbers.items():
        writer.add_uint32(f"{half.table.prefix}.{key}", half.size(word))


def _add_rotation(half: Half, writer: GGUFWriter) -> None:
    text, prefix = half.config, half.table.prefix
    rope = text.section("rope_parameters").over(text.section("rope_scaling"))
    if (kind := rope.values.get("rope_type", rope.values.get("type", "default"))) not in ("default", "mrope"):
        raise ModelError(f"{text.where}: rope type is {kind!r:.20}, only 'default' and 'mrope' can be exported")
    head = half.size("head_dim")
    match rope.values.get("mrope_section"):
        case [int(t), int(y), int(x)] if min(t, y, x) >= 0 and 2 * (t + y + x) == head:
            writer.add_array(f"{prefix}.rope.dimension_sections", [t, y, x, 0])
        case _:
            raise rope.value_error("mrope_section", f"three counts, half of the head's {head} in sum")
    writer.add_float32(f"{prefix}.rope.freq_base", rope.over(text).real("rope_theta"))
    writer.add_float32(f"{prefix}.attention.layer_norm_rms_epsilon", text.real("rms_norm_eps"))


def _head_size(text: Section) -> int:
    if "head_dim" in text.values:
        return text.integer("head_dim")
    return text.integer("hidden_size") // text.integer("num_attention_heads")


def _deep_blocks(vision: Section) -> list[int]:
    """Return the blocks whose outputs go, through a merger each, to the first layers of the text model."""
    key, depth = "deepstack_visual_indexes", vision.integer("depth", below=_BELOW["depth"])
    given = vision.values.get(key)
    if not isinstance(given, list) or (blocks := [i for i in range(depth) if i in given]) != given:
        raise vision.value_error(key, "blocks in rising order")
    return blocks


def _window_pattern(vision: Section) -> int:
    """Return n, if every n-th block attends to the whole image: GGUF has one number for this."""
    blocks = vision.integer("depth", below=_BELOW["depth"])
    match vision.values.get("fullatt_block_indexes"):
        case [int(first), *_] as full if first >= 1 and full == list(range(first, blocks, first + 1)):
            return first + 1
        case _:
            pass
    raise vision.value_error("fullatt_block_indexes", f"every n-th of {blocks} blocks")


_DERIVED: Mapping[str, Callable[[Section], int]] = {
    "head_dim": _head_size,
    "window_pattern": _window_pattern,
    "table_edge": lambda vision: math.isqrt(vision.integer("num_position_embeddings")),
    "deep_layers": lambda text: len(_deep_blocks(text.section("vision_config"))),
}
"""Sizes that follow from keys of config.json in another way than by a product."""
