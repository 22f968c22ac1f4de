"""A pair that is quantised while it is converted has the bytes of an export and llama.cpp's quantiser after it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import synthetic_families
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_checkpoint import TextShape, make

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))

import bundled_checkpoint
from engine_quantizer import quantize
from gguf_description import describe

from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import convert_folder, export_pair
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.models import find
from vrt_lite.models.gguf import read_gguf

SHAPES = {
    "whole blocks": TextShape(width=256, feed_forward=512, heads=4, kv_heads=1),
    "rows of 32": TextShape(width=224, feed_forward=96, heads=7, kv_heads=1, layers=3, rows=300),
    "odd rows": TextShape(width=120, feed_forward=50, heads=2, kv_heads=2),
}
NAMED = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_s", "iq4_xs")
TYPES = [*NAMED, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in TEXT_TYPES if kind not in NAMED)]


@pytest.fixture(scope="module", params=[*SHAPES, "qwen2_vl", "qwen3_vl"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in c, its export in out, and a matrix for all its weights."""
    folder = tmp_path_factory.mktemp("straight")
    if request.param in SHAPES:
        tied = request.param == "whole blocks"
        make(folder / "c", shape=SHAPES[request.param], shards=1 if tied else 2, tied=tied)
    else:
        synthetic_families.make(folder / "c", request.param, dtype="BF16")
    text, _ = export_pair(folder / "c", folder / "out", text_type="bf16", projector_type="bf16")
    write_matrix(folder / "matrix.gguf", text.path)
    return folder


def write_matrix(path: Path, text: Path) -> Path:
    """Write an importance matrix for each weight of a text model."""
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    for tensor in read_gguf(text).tensors:
        if len(tensor.dimensions) == 2:
            sums = np.random.default_rng(tensor.size).uniform(0, 40, (1, tensor.dimensions[0]))
            writer.add_tensor(f"{tensor.name}.in_sum2", sums.astype(np.float32))
            writer.add_tensor(f"{tensor.name}.counts", np.full((1, 1), 4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantize_by_engine(source: Path, kind: str, matrix: Path | None) -> bytes:
    """Run llama.cpp's quantiser here, and return its file."""
    path = source.with_suffix(f".{kind}")
    quantize(source, path, int(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"]), matrix)
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.mark.parametrize("with_matrix", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_the_text_model(tmp_path: Path, exported: Path, kind: str, with_matrix: bool) -> None:
    matrix = exported / "matrix.gguf" if with_matrix else None
    options = {"text_type": kind, "projector_type": "bf16", "imatrix": matrix}
    text, projector = convert_folder(exported / "c", tmp_path, **options)
    by_engine = quantize_by_engine(exported / "out/c-BF16.gguf", kind, matrix)
    assert text.path.read_bytes() == by_engine
    (later,) = quantize_pair(exported / "out/c-BF16.gguf", text_type=kind, imatrix=matrix)
    assert later.path.read_bytes() == by_engine
    later.path.unlink()
    assert projector.path.read_bytes() == (exported / "out/mmproj-c-BF16.gguf").read_bytes()
    if kind == "q4_k_m" and not with_matrix:
        same, _ = export_pair(exported / "c", tmp_path / "export", text_type=kind)
        assert same.sha256 == text.sha256
    values = json.loads((exported / "c/config.json").read_text("utf-8"))
    described, _ = describe_pair(values, text_type=kind, projector_type="f16", with_importance=with_matrix)
    assert described.tensors == read_gguf(text.path).tensors


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q6_k", "q5_k", "q4_k"])
def test_the_projector(tmp_path: Path, exported: Path, kind: str) -> None:
    text, projector = convert_folder(exported / "c", tmp_path, text_type="bf16", projector_type=kind)
    assert text.path.read_bytes() == (exported / "out/c-BF16.gguf").read_bytes()
    (two,) = quantize_pair(exported / "out/mmproj-c-BF16.gguf", projector_type=kind)
    assert projector.sha256 == two.sha256
    two.path.unlink()
    values = json.loads((exported / "c/config.json").read_text("utf-8"))
    described = describe_pair(values, text_type="q4_k_m", projector_type=kind)[1]
    assert sorted(described.tensors, key=str) == sorted(read_gguf(projector.path).tensors, key=str)


@pytest.mark.parametrize("name", ["vrt-tiny-0", "vrt-tiny-2"])
def test_the_bundled_judges(tmp_path: Path, name: str) -> None:
    files = find(name)
    bundled_checkpoint.make(tmp_path / name, (files.text, files.projector))
    (tmp_path / name / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', "utf-8")
    export_pair(tmp_path / name, tmp_path / "two", text_type="f32", projector_type="f32")
    for kind in ("q8_0", "q4_k_m"):
        text, projector = convert_folder(tmp_path / name, tmp_path / "one", text_type=kind, projector_type="f16")
        assert text.path.read_bytes() == quantize_by_engine(tmp_path / f"two/{name}-F32.gguf", kind, None)
    # The judge's weights were made from Q8_0 and come back to it, and the projector is the bundled one.
    for made, given_file in ((tmp_path / f"one/{name}-Q8_0.gguf", files.text), (projector.path, files.projector)):
        assert describe(made)["tensors"] == describe(given_file)["tensors"]


@given(
    heads=st.sampled_from([(2, 2), (4, 1), (7, 1), (4, 2)]),
    head=st.sampled_from([8, 16, 32, 64]),
    layers=st.integers(1, 4),
    feed_forward=st.integers(2, 300) | st.sampled_from([256, 512]),
    rows=st.integers(280, 300),
    dtype=st.sampled_from(["BF16", "F16", "F32"]),
    kind=st.sampled_from(TEXT_TYPES),
    tied=st.booleans(),
    with_matrix=st.booleans(),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape(
    tmp_path_factory: pytest.TempPathFactory,
    heads: tuple[int, int],
    head: int,
    layers: int,
    feed_forward: int,
    rows: int,
    dtype: str,
    kind: str,
    tied: bool,
    with_matrix: bool,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    make(folder / "c", shape=TextShape(heads[0] * head, feed_forward, *heads, layers, rows), dtype=dtype, tied=tied)
    plain = dtype.lower()
    two, _ = export_pair(folder / "c", folder / "two", text_type=plain, projector_type=plain)
    matrix = write_matrix(folder / "matrix.gguf", two.path) if with_matrix else None
    text, _ = convert_folder(folder / "c", folder / "one", text_type=kind, projector_type=plain, imatrix=matrix)
    by_engine = quantize_by_engine(two.path, kind, matrix)
    assert text.path.read_bytes() == by_engine
    (later,) = quantize_pair(two.path, text_type=kind, imatrix=matrix)
    assert later.path.read_bytes() == by_engine


def test_a_matrix_of_another_model(tmp_path: Path) -> None:
    make(tmp_path / "other", shape=TextShape(width=32))
    make(tmp_path / "c")
    two, _ = export_pair(tmp_path / "other", tmp_path / "two", text_type="bf16")
    matrix = write_matrix(tmp_path / "matrix.gguf", two.path)
    with pytest.raises(ModelError, match=r"has 32 columns for blk\.0\.\w+\.weight, which has 64: calibrate"):
        convert_folder(tmp_path / "c", tmp_path / "out", text_type="q4_0", projector_type="f16", imatrix=matrix)
    assert not (tmp_path / "out").exists()
