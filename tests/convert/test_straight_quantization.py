"""A pair that is quantised while it is converted has the bytes of an export and llama.cpp's quantiser after it.

The type of each tensor, and their order, are those that the quantiser chooses for a shape of any size.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import bundled_checkpoint
import numpy as np
import pytest
import synthetic_families
from engine_quantizer import chosen_types, quantize, write_hole
from gguf import GGMLQuantizationType
from gguf_description import describe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_checkpoint import TextShape, config, make, read_json

from bench.random_checkpoint import SHAPES as PUBLISHED
from bench.random_checkpoint import write_documents
from convert.activations import Inputs
from convert.calibrate import write_matrix
from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import convert_folder, describe_pair, export_pair
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError
from vrt_lite.models import find
from vrt_lite.models.gguf import Gguf, read_gguf

SHAPES = {
    "whole blocks": TextShape(width=256, feed_forward=256, heads=4, kv_heads=1, layers=1),
    "rows of 32": TextShape(width=224, feed_forward=96, heads=7, kv_heads=1, rows=300),
    "odd rows": TextShape(width=120, feed_forward=50, heads=2, kv_heads=2),
}
NAMED = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_s", "iq4_xs")
TEXTS = [
    pytest.param(shape, kind, marks=[] if kind in NAMED else pytest.mark.nightly)
    for shape in (*SHAPES, "qwen3_vl")
    for kind in (("q8_0", "iq4_xs") if shape == "odd rows" else TEXT_TYPES)  # of odd rows, all go to F16
]
HEADS = [(2, 2), (4, 1), (7, 1), (4, 2)]
ANY = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "deadline": None}


@pytest.fixture(scope="module")
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in c, its export in out, and a matrix for all its weights."""
    folder = tmp_path_factory.mktemp("straight")
    if request.param in SHAPES:
        tied = request.param == "whole blocks"
        make(folder / "c", shape=SHAPES[request.param], shards=1 if tied else 2, tied=tied)
    else:
        synthetic_families.make(folder / "c", request.param, dtype="BF16")
    text, _ = export_pair(folder / "c", folder / "out", text_type="bf16", projector_type="bf16")
    write_random_matrix(folder / "matrix.gguf", text)
    return folder


def write_random_matrix(path: Path, text: Path) -> Path:
    """Write an importance matrix for each weight of a text model."""
    weights = {tensor.name: tensor.dimensions[0] for tensor in read_gguf(text).tensors if len(tensor.dimensions) == 2}
    random = np.random.default_rng(7)
    write_matrix(path, {name: Inputs(random.uniform(0, 40, columns), 4) for name, columns in weights.items()}, [])
    return path


def assert_described(described: Gguf, path: Path) -> None:
    """What was known from config.json alone is what the file says of itself."""
    real = read_gguf(path)
    assert sorted(described.tensors, key=str) == sorted(real.tensors, key=str)
    lengths = {key: len(value) for key, value in real.values.items() if isinstance(value, tuple)}
    shared = {key: lengths.get(key, real.values.get(key)) for key in described.values}
    assert described.values == pytest.approx(shared)


@pytest.mark.parametrize("with_matrix", [False, True])
@pytest.mark.parametrize(("exported", "kind"), TEXTS, indirect=["exported"])
def test_the_text_model(tmp_path: Path, exported: Path, kind: str, with_matrix: bool) -> None:
    matrix = exported / "matrix.gguf" if with_matrix else None
    options = {"text_type": kind, "projector_type": "bf16", "imatrix": matrix}
    text, projector = convert_folder(exported / "c", tmp_path, **options)
    by_engine = quantize(exported / "out/c-BF16.gguf", kind, matrix)
    assert text.read_bytes() == by_engine
    if matrix and kind in ("q4_k_m", "iq4_xs"):
        (later,) = quantize_pair(exported / "out/c-BF16.gguf", text_type=kind, imatrix=matrix)
        assert later.read_bytes() == by_engine
        later.unlink()
    assert projector.read_bytes() == (exported / "out/mmproj-c-BF16.gguf").read_bytes()
    values = read_json(exported / "c/config.json")
    described, _ = describe_pair(values, text_type=kind, projector_type="f16", with_importance=with_matrix)
    assert described.tensors == read_gguf(text).tensors
    assert_described(described, text)


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_k"])
@pytest.mark.parametrize("exported", ["whole blocks", "qwen2_vl", "qwen3_vl"], indirect=True)
def test_the_projector(tmp_path: Path, exported: Path, kind: str) -> None:
    text, projector = convert_folder(exported / "c", tmp_path, text_type="bf16", projector_type=kind)
    assert text.read_bytes() == (exported / "out/c-BF16.gguf").read_bytes()
    (two,) = quantize_pair(exported / "out/mmproj-c-BF16.gguf", projector_type=kind)
    assert file_sha256(projector) == file_sha256(two)
    two.unlink()
    described = describe_pair(read_json(exported / "c/config.json"), text_type="bf16", projector_type=kind)
    assert_described(described[0], text)
    assert_described(described[1], projector)


def test_the_bundled_judge(tmp_path: Path) -> None:
    name = "vrt-tiny-2"
    files = find(name)
    bundled_checkpoint.make(tmp_path / name, (files.text, files.projector))
    (tmp_path / name / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', "utf-8")
    export_pair(tmp_path / name, tmp_path / "two", text_type="f32", projector_type="f32")
    for kind in ("q8_0", "q4_k_m"):
        text, projector = convert_folder(tmp_path / name, tmp_path / "one", text_type=kind, projector_type="f16")
        assert text.read_bytes() == quantize(tmp_path / f"two/{name}-F32.gguf", kind, None)
    # The judge's weights were made from Q8_0 and come back to it, and the projector is the bundled one.
    for made, given_file in ((tmp_path / f"one/{name}-Q8_0.gguf", files.text), (projector, files.projector)):
        assert describe(made)["tensors"] == describe(given_file)["tensors"]


def any_shape(heads: list[tuple[int, int]], head: list[int], most_layers: int) -> st.SearchStrategy[TextShape]:
    return st.builds(
        lambda heads, head, feed_forward, layers, rows: TextShape(heads[0] * head, feed_forward, *heads, layers, rows),
        heads=st.sampled_from(heads),
        head=st.sampled_from(head),
        feed_forward=st.integers(2, 300) | st.sampled_from([256, 512, 800]),
        layers=st.integers(1, most_layers),
        rows=st.integers(280, 300),
    )


KINDS = st.tuples(st.sampled_from(TEXT_TYPES), st.booleans())
"""A type, and whether there is an importance matrix."""


@given(any_shape(HEADS, [8, 16, 32, 64], 4), st.sampled_from(["BF16", "F16", "F32"]), st.booleans(), KINDS)
@settings(max_examples=3, **ANY)
def test_the_bytes_of_any_shape(
    tmp_path_factory: pytest.TempPathFactory, shape: TextShape, dtype: str, tied: bool, kind: tuple[str, bool]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    make(folder / "c", shape=shape, dtype=dtype, tied=tied)
    plain = dtype.lower()
    two, _ = export_pair(folder / "c", folder / "two", text_type=plain, projector_type=plain)
    matrix = write_random_matrix(folder / "matrix.gguf", two) if kind[1] else None
    text, _ = convert_folder(folder / "c", folder / "one", text_type=kind[0], projector_type=plain, imatrix=matrix)
    by_engine = quantize(two, kind[0], matrix)
    assert text.read_bytes() == by_engine
    (later,) = quantize_pair(two, text_type=kind[0], imatrix=matrix)
    assert later.read_bytes() == by_engine


def compare_with_the_quantizer(hole: Path, values: Any, kind: str, *, with_importance: bool) -> None:
    """Compare the types chosen for a config; the hole in the disk is written once."""
    if not hole.exists():
        write_hole(hole, describe_pair(values, text_type="bf16", projector_type="f16")[0])
    text, _ = describe_pair(values, text_type=kind, projector_type="f16", with_importance=with_importance)
    mine = [(tensor.name, GGMLQuantizationType(tensor.kind).name.upper()) for tensor in text.tensors]
    assert mine == chosen_types(hole, kind, with_importance=with_importance)


@pytest.mark.skipif(sys.platform == "win32", reason="a hole of 15 GB would take space")
@pytest.mark.parametrize("name", ["3b", "7b"])
def test_the_types_of_published_shapes(tmp_path: Path, name: str) -> None:
    write_documents(tmp_path, PUBLISHED[name])
    values = read_json(tmp_path / "config.json")
    for kind in TEXT_TYPES:
        for with_importance in (False, True):
            compare_with_the_quantizer(tmp_path / "hole", values, kind, with_importance=with_importance)


@given(any_shape([*HEADS, (8, 2), (14, 2)], [2, 8, 14, 32, 64], 40), st.booleans(), KINDS)
@settings(max_examples=25, **ANY)
def test_the_types_of_any_shape(tmp_path: Path, shape: TextShape, tied: bool, kind: tuple[str, bool]) -> None:
    (tmp_path / "hole").unlink(missing_ok=True)
    values = config("new", tied=tied, shape=shape)
    compare_with_the_quantizer(tmp_path / "hole", values, kind[0], with_importance=kind[1])


JUNK = st.sampled_from([0, -1, 1, 3, 1023, 2**31 - 1, 2**62, 1.5, True, None, "x", [], [1, 1, 1], {"a": 1}, math.nan])


@given(data=st.data(), layout=st.sampled_from(["new", "old"]), projector=st.sampled_from(["f16", "q8_0"]))
@settings(max_examples=40, deadline=None)
def test_a_hostile_config_is_described_or_refused(data: st.DataObject, layout: str, projector: str) -> None:
    values = config(layout, tied=False)
    for _ in range(data.draw(st.integers(1, 3))):
        inner = [value for value in values.values() if isinstance(value, dict) and value]
        place = data.draw(st.sampled_from([values, *inner]))
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JUNK)
    with suppress(ModelError):
        describe_pair(values, text_type="q4_k_m", projector_type=projector)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llava"}, r"config\.json: model_type is 'llava'"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"vocab_size": 2**30}, "vocab_size is 1073741824, needs a whole number from 1 to 4194303"),
    ],
)
def test_a_config_that_cannot_be_described(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        describe_pair(config("old", tied=True) | changes, text_type="q4_k_m", projector_type="q8_0")


def test_a_matrix_of_another_model(tmp_path: Path) -> None:
    make(tmp_path / "other", shape=TextShape(width=32))
    make(tmp_path / "c")
    two, _ = export_pair(tmp_path / "other", tmp_path / "two", text_type="bf16")
    matrix = write_random_matrix(tmp_path / "matrix.gguf", two)
    with pytest.raises(ModelError, match=r"has 32 columns for blk\.0\.\w+\.weight, which has 64: calibrate"):
        convert_folder(tmp_path / "c", tmp_path / "out", text_type="q4_0", projector_type="f16", imatrix=matrix)
    assert not (tmp_path / "out").exists()
