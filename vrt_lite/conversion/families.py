"""The kinds of checkpoints that can be converted: how each becomes the two files of a pair.

The names, sizes and numbers of all of them are in families.toml; another kind is an entry there. Here is what is no
number: rotations, colours, and which blocks differ from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from gguf import GGUFWriter

from vrt_lite.conversion.gguf_writer import Target
from vrt_lite.conversion.weights import JsonObject
from vrt_lite.errors import ModelError

# What there is an object for each of, so that a number that no model has is refused before that.
_BELOW = {"vocab_size": 2**22, "num_hidden_layers": 1024, "depth": 1024}


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a pair, as families.toml has it."""

    architecture: str
    tensors: tuple[str, ...]
    require: Mapping[str, Any]
    sizes: Mapping[str, str]
    fields: Mapping[str, Any]
    output: str = ""


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
    config: JsonObject

    @property
    def deep_blocks(self) -> list[int]:
        """The blocks of a tower whose outputs go, through a merger each, to the first layers of the text model."""
        return list(self.config.values["deepstack_visual_indexes"])

    def size(self, word: str) -> int:
        """Return a product of numbers, sizes of the table, and keys of config.json. Raises ModelError."""
        return math.prod(map(self._factor, word.split("*")))

    def _factor(self, word: str) -> int:
        if word.isdigit():
            return int(word)
        match self.table.sizes.get(word, word):
            case "head_dim" if "head_dim" not in self.config.values:
                return self.size("hidden_size") // self.size("num_attention_heads")
            case "window_pattern":
                return self._window_pattern()
            case "table_edge":
                return math.isqrt(self.size("num_position_embeddings"))
            case "deep_layers":
                return len(self.config.section("vision_config").values["deepstack_visual_indexes"])
            case named if named != word:
                return self.size(named)
            case _:
                return self.config.integer(word, below=_BELOW.get(word, 2**31))

    def _window_pattern(self) -> int:
        """Return n, if every n-th block attends to the whole image: GGUF has one number for this."""
        key, blocks = "fullatt_block_indexes", self.size("depth")
        full = self.config.values.get(key) or [0]
        if full[0] < 1 or full != list(range(full[0], blocks, full[0] + 1)):
            raise self.config.value_error(key, f"every n-th of {blocks} blocks")
        return full[0] + 1


def read_halves(whole: JsonObject) -> tuple[Half, Half]:
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
    found = JsonObject(whole.where, outer).over(found)
    found.require(**text.require)
    vision.require(**tower.require, **{tower.output: found.integer("hidden_size")})
    return Half(text, found), Half(tower, vision)


def list_targets(half: Half) -> Iterator[Target]:
    """Return where every tensor of the checkpoint goes, in F32; a tied output is not stored twice."""
    is_tied = half.config.values.get("tie_word_embeddings") is True
    for group in half.table.tensors:
        for source, (names, *words) in _tables().tensors[group].items():
            counted = [dict[str, int]()]
            if "{i}" in source:
                counted = [{"i": i} for i in range(half.size("layers"))]
            elif "{n}" in source:
                counted = [{"n": n, "block": block} for n, block in enumerate(half.deep_blocks)]
            elif is_tied and source == "lm_head.weight":
                continue
            shape = tuple(map(half.size, words))
            for numbers in counted:
                yield from _place(source.format(**numbers), names.format(**numbers).split(), shape)


def _place(source: str, names: list[str], whole: tuple[int, ...]) -> Iterator[Target]:
    """Return the targets of a tensor: several share its rows, or the frames of a convolution."""
    for end in ("",) if source.endswith((".weight", ".bias")) else (".weight", ".bias"):
        own = whole[:1] if end == ".bias" else whole
        for i, name in enumerate(names):
            part, shape, rows = (), own, own[0] // len(names)
            if len(names) > 1 and len(own) == 5:
                part, shape = (slice(None), slice(None), i), (*own[:2], *own[3:])
            elif len(names) > 1:
                part, shape = (slice(i * rows, (i + 1) * rows),), (rows, *own[1:])
            yield Target(source + end, own, name + end, shape, part)


def expected_shapes(whole: JsonObject) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that this config.json describes, by its published name."""
    return {target.source: target.source_shape for half in read_halves(whole) for target in list_targets(half)}


def add_fields(half: Half, writer: GGUFWriter, file_type: int, preprocessor: JsonObject) -> None:
    """Add the metadata of the architecture, and the file's type."""
    config = half.config
    rope = config.section("rope_parameters").over(config.section("rope_scaling")).over(config).values
    for key, word in half.table.fields.items():
        match word:
            case bool():
                writer.add_bool(key, word)
            case float():
                writer.add_float32(key, word)
            case {"text": str(name)}:
                writer.add_string(key, name)
            case "file_type":
                writer.add_uint32(key, file_type)
            case "rope_theta" | "rms_norm_eps":
                writer.add_float32(key, float(rope[word]))
            case "mrope_section":
                kind = rope.get("rope_type", rope.get("type", "default"))
                if kind not in ("default", "mrope"):
                    known = "only 'default' and 'mrope' can be exported"
                    raise ModelError(f"{config.where}: rope type is {kind!r:.20}, {known}")
                writer.add_array(key, [*rope[word], 0])
            case "image_mean" | "image_std":
                colours = preprocessor.values.get(word) or ()
                if len(colours) != 3:
                    raise preprocessor.value_error(word, "three numbers, one a colour")
                writer.add_array(key, list(map(float, colours)))
            case "deep_blocks":
                writer.add_array(key, [i in half.deep_blocks for i in range(half.size("layers"))])
            case _:
                writer.add_uint32(key, half.size(word))
