"""The kinds of checkpoints that can be converted: how each becomes the two files of a pair.

The names, sizes and numbers of all of them are in families.toml; another kind is an entry there. Here is what is no
number: rotations, colours, and which blocks differ from the others.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gguf import GGUFValueType, GGUFWriter

from vrt_lite.conversion.gguf_writer import Target
from vrt_lite.conversion.weights import JsonObject, read_rules
from vrt_lite.errors import ModelError

_MOST_LAYERS, _MOST = 1024, 2**22
"""No model has so many layers, nor so much of anything else. There is an object for each layer and each token."""


@dataclass(frozen=True)
class Half:
    """One file of a pair: the text model's or the vision tower's.

    `table` is its part of families.toml; `config` has its keys of config.json. A tied text model has no output.
    """

    table: Mapping[str, Any]
    config: JsonObject
    is_tied: bool = False

    @property
    def deep_blocks(self) -> list[int]:
        """The blocks of the tower whose outputs go, through a merger each, to the first layers of the text model."""
        return self.config.section("vision_config").over(self.config).values["deepstack_visual_indexes"]

    def size(self, word: str) -> int:
        """Return a number, a size of the table, a key of config.json, or a product of such. Raises ModelError."""
        if "*" in word:
            return math.prod(map(self.size, word.split("*")))
        if word.isdigit():
            return int(word)
        if meant := self.table["sizes"].get(word):
            return self.size(meant)
        match word:
            case "head_dim" if word not in self.config.values:
                return self.size("hidden_size") // self.size("num_attention_heads")
            case "window_pattern":
                # The n of "every n-th block attends to the whole image": GGUF has one number for this.
                key, blocks = "fullatt_block_indexes", self.size("depth")
                every, *_ = full = self.config.values.get(key) or [0]
                if every < 1 or full != list(range(every, blocks, every + 1)):
                    raise self.config.value_error(key, f"every n-th of {blocks} blocks")
                return every + 1
            case "table_edge":
                return math.isqrt(self.size("num_position_embeddings"))
            case "deep_layers":
                return len(self.deep_blocks)
            case _:
                return self.config.integer(
                    word, below=_MOST_LAYERS if word in ("num_hidden_layers", "depth") else _MOST
                )


def read_halves(whole: JsonObject) -> tuple[Half, Half]:
    """Return text model and vision tower of a config.json. Raises ModelError for one that cannot be converted.

    llama.cpp has some values built in. So other values would be wrong without a message, and are refused.
    """
    families, halves = (read_rules("families")[part] for part in ("families", "halves"))
    if (kind := str(whole.values.get("model_type"))) not in families:
        raise whole.value_error("model_type", f"{' or '.join(map(repr, families))}; no other can be exported")
    text, tower = (halves[name] for name in families[kind])
    found, vision = whole.section("text_config").over(whole), whole.section("vision_config")
    found.require(**text["require"])
    vision.require(**tower["require"], **{tower["output"]: found.integer("hidden_size")})
    # The outer key counts, as in transformers.
    is_tied = whole.over(found).values.get("tie_word_embeddings") is True
    return Half(text, found, is_tied), Half(tower, vision)


def list_targets(half: Half) -> Iterator[Target]:
    """Return where every tensor of the checkpoint goes, in F32; a tied output is not stored twice."""
    groups = (read_rules("families")["tensors"][group] for group in half.table["tensors"])
    for source, (names, *words) in ChainMap(*groups).items():
        if half.is_tied and source == "lm_head.weight":
            continue
        shape = tuple(map(half.size, words))
        blocks = half.deep_blocks if "{n}" in source else range(half.size("layers") if "{i}" in source else 1)
        for n, block in enumerate(blocks):
            places = names.format(i=block, block=block).split()
            for part, name in enumerate(places):
                if len(shape) == 5:  # a convolution's frames
                    index, there = (slice(None), slice(None), part), (*shape[:2], *shape[3:])
                else:
                    rows = shape[0] // len(places)
                    index, there = (slice(part * rows, (part + 1) * rows),), (rows, *shape[1:])
                yield Target(source.format(i=block, n=n), shape, name, there, index)


def expected_shapes(whole: JsonObject) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that this config.json describes, by its published name."""
    return {target.source: target.source_shape for half in read_halves(whole) for target in list_targets(half)}


def add_fields(half: Half, writer: GGUFWriter, file_type: int, preprocessor: JsonObject) -> None:
    """Add the metadata of the architecture, and the file's type."""
    config = half.config
    rope = config.section("rope_parameters").over(config.section("rope_scaling")).over(config).values

    def value_of(word: Any) -> Any:
        match word:
            case bool() | float():
                return word
            case {"text": name}:
                return name
            case "file_type":
                return file_type
            case "rope_theta" | "rms_norm_eps":
                return float(rope[word])
            case "mrope_section":
                kind = rope.get("rope_type", rope.get("type", "default"))
                if kind not in ("default", "mrope"):
                    raise ModelError(f"{config.where}: rope type is {kind!r:.20}, needs 'default' or 'mrope'")
                return [*rope[word], 0]
            case "image_mean" | "image_std":
                colours = preprocessor.values.get(word) or ()
                if len(colours) != 3:
                    raise preprocessor.value_error(word, "three numbers, one a colour")
                return [float(colour) for colour in colours]
            case "deep_blocks":
                return [i in half.deep_blocks for i in range(half.size("layers"))]
            case _:
                return half.size(word)

    for key, word in half.table["fields"].items():
        value = value_of(word)
        kind = GGUFValueType.get_type(value)
        writer.add_key_value(key, value, GGUFValueType.UINT32 if kind is GGUFValueType.INT32 else kind)
