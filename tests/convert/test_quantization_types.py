"""The type of each tensor, and their order, are those that llama.cpp's quantiser chooses."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dry_run import chosen_types, write_hole
from gguf import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_checkpoint import TextShape, config, make

from bench.random_checkpoint import SHAPES, write_documents
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.conversion.weights import read_json
from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import read_gguf


def compare_with_the_quantizer(hole: Path, values: Any, file_type: str, *, with_importance: bool) -> None:
    text, _ = describe_pair(values, text_type=file_type, projector_type="f16", with_importance=with_importance)
    mine = [(tensor.name, GGMLQuantizationType(tensor.kind).name.upper()) for tensor in text.tensors]
    assert mine == chosen_types(hole, file_type, with_importance=with_importance)


def hole_for(folder: Path, values: Any) -> Path:
    path = folder / "hole.gguf"
    write_hole(path, describe_pair(values, text_type="bf16", projector_type="f16")[0])
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="a hole of 15 GB would take space")
@pytest.mark.parametrize("name", ["3b", "7b"])
def test_published_shapes(tmp_path: Path, name: str) -> None:
    write_documents(tmp_path, SHAPES[name])
    values = read_json(tmp_path / "config.json").values
    hole = hole_for(tmp_path, values)
    for file_type in TEXT_TYPES:
        for with_importance in (False, True):
            compare_with_the_quantizer(hole, values, file_type, with_importance=with_importance)


@given(
    heads=st.sampled_from([(2, 2), (4, 1), (7, 1), (4, 2), (8, 2), (14, 2)]),
    head=st.sampled_from([2, 8, 14, 32, 64]),
    layers=st.integers(1, 40),
    feed_forward=st.integers(2, 800) | st.sampled_from([256, 512]),
    file_type=st.sampled_from(TEXT_TYPES),
    tied=st.booleans(),
    with_importance=st.booleans(),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape(
    tmp_path: Path,
    heads: tuple[int, int],
    head: int,
    layers: int,
    feed_forward: int,
    file_type: str,
    tied: bool,
    with_importance: bool,
) -> None:
    shape = TextShape(heads[0] * head, feed_forward, *heads, layers)
    values = config("new", tied=tied, shape=shape)
    compare_with_the_quantizer(hole_for(tmp_path, values), values, file_type, with_importance=with_importance)


@pytest.mark.parametrize(("layout", "kind"), [("new", "bf16"), ("old", "f16")])
def test_a_description_needs_no_more_than_the_config(tmp_path: Path, layout: str, kind: str) -> None:
    make(tmp_path / "c", layout=layout, tied=layout == "new")
    files = export_pair(tmp_path / "c", tmp_path / "out", text_type=kind, projector_type=kind)
    values = read_json(tmp_path / "c" / "config.json").values
    for described, written in zip(describe_pair(values, text_type=kind, projector_type=kind), files, strict=False):
        real = read_gguf(written.path)
        assert sorted(described.tensors, key=str) == sorted(real.tensors, key=str)
        shared = described.values.keys() & real.values.keys()
        assert {key: described.values[key] for key in shared} == pytest.approx(
            {key: real.values[key] for key in shared}
        )
        assert shared == described.values.keys()
        assert described.lengths.items() <= {**real.lengths, "tokenizer.ggml.merges": 64}.items()


def test_a_config_that_cannot_be_described() -> None:
    values = config("new", tied=True)
    with pytest.raises(ModelError, match=r"config\.json: model_type is 'llava'"):
        describe_pair(values | {"model_type": "llava"}, text_type="q4_k_m", projector_type="q8_0")
    values["text_config"]["hidden_size"] = -1
    with pytest.raises(ModelError, match="hidden_size is -1"):
        describe_pair(values, text_type="q4_k_m", projector_type="q8_0")


JUNK = st.sampled_from([0, -1, 1, 3, 1023, 2**31 - 1, 2**62, 1.5, True, None, "x", [], [1, 1, 1], {"a": 1}, math.nan])


@given(data=st.data(), layout=st.sampled_from(["new", "old"]), projector=st.sampled_from(["f16", "q8_0"]))
@settings(max_examples=80, deadline=None)
def test_a_hostile_config_is_described_or_refused(data: st.DataObject, layout: str, projector: str) -> None:
    values = config(layout, tied=False)
    for _ in range(data.draw(st.integers(1, 3))):
        inner = [value for value in values.values() if isinstance(value, dict) and value]
        place = data.draw(st.sampled_from([values, *inner]))
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JUNK)
    with suppress(ModelError):
        describe_pair(values, text_type="q4_k_m", projector_type=projector)


def test_a_vocabulary_that_no_model_has() -> None:
    values = config("new", tied=True)
    values["text_config"]["vocab_size"] = 2**30
    with pytest.raises(ModelError, match="vocab_size is 1073741824, needs a whole number from 1 to 4194303"):
        describe_pair(values, text_type="q4_k_m", projector_type="q8_0")
