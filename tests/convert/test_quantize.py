"""Quantised files: the right values, beside their source, and nothing if it cannot be done."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_description import describe
from synthetic_checkpoint import make

from convert.quantize import quantize_pair, read_source
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision
from vrt_lite.conversion.convert_folder import export_pair, make_plan, write_planned
from vrt_lite.conversion.quantization import quantize_projector
from vrt_lite.conversion.type_names import TEXT_TYPES
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import EngineSettings
from vrt_lite.models.gguf import read_gguf

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 256  # one block of the k types


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantize")
    make(folder / "c", width=WIDTH, rows=512, dtype="F32")
    export_pair(folder / "c", folder / "out", text_type="f32", projector_type="f32")
    return folder / "out"


@pytest.fixture
def out(tmp_path: Path, pair: Path) -> Path:
    return Path(shutil.copytree(pair, tmp_path / "out"))


def tensors(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    return {
        t.name: (t.tensor_type.name, gguf.quants.dequantize(t.data, t.tensor_type))
        for t in gguf.GGUFReader(path).tensors
    }


def test_types_of_the_text_model(out: Path) -> None:
    exact, before = tensors(out / "c-F32.gguf"), describe(out / "c-F32.gguf")["fields"]
    assert all(f"MOSTLY_{kind.upper()}" in gguf.LlamaFileType.__members__ for kind in TEXT_TYPES)
    sizes, errors = [], []
    for kind in ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m"):
        (written,) = quantize_pair(out, text_type=kind)
        assert written.path == out / f"c-{kind.upper()}.gguf"
        got, fields = tensors(written.path), describe(written.path)["fields"]
        assert fields.pop("general.file_type") == f"UINT32 {int(gguf.LlamaFileType[f'MOSTLY_{kind.upper()}'])}"
        assert fields == {key: value for key, value in before.items() if key != "general.file_type"}
        assert got.keys() == exact.keys()
        sizes.append(written.size)
        errors.append(float(np.linalg.norm(got["blk.1.attn_q.weight"][1] - exact["blk.1.attn_q.weight"][1])))
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert not list(out.glob("*.vrt-*"))


@pytest.mark.parametrize(
    ("kind", "block", "weights", "embeddings"),
    [("q8_0", 32, 0.01, 0.1), ("q6_k", 256, 0.04, 0.12), ("q5_k", 256, 0.08, 0.25), ("q4_k", 256, 0.16, 0.4)],
)
def test_rows_of_no_whole_blocks_are_filled_up_with_zeros(
    out: Path, pair: Path, kind: str, block: int, weights: float, embeddings: float
) -> None:
    (mine,) = quantize_pair(out, projector_type=kind)
    whole, filled = tensors(out / "mmproj-c-F32.gguf"), tensors(mine.path)
    width = describe(mine.path)["fields"]["clip.vision.feed_forward_length"]
    assert width == f"UINT32 {-(-whole['v.blk.0.ffn_up.bias'][1].size // block) * block}"
    for name in ("v.blk.0.ffn_down.weight", "v.blk.3.ffn_up.weight", "v.blk.1.ffn_gate.bias"):
        stored, values = filled[name]
        original = whole[name][1]
        inner = tuple(map(slice, original.shape))
        assert values.size > original.size
        if "ffn_down" not in name:  # its columns meet zeros, whatever they are
            assert np.count_nonzero(values) == np.count_nonzero(values[inner])
        if name.endswith("weight") and not values.shape[-1] % block:
            assert stored == kind.upper()
            assert np.linalg.norm(values[inner] - original) < weights * np.linalg.norm(original)
    assert vision_error(out, mine.path) < embeddings


def test_a_padded_q8_0_is_as_near_as_the_converters(out: Path, pair: Path) -> None:
    (mine,) = quantize_pair(out, projector_type="q8_0")
    direct = export_pair(pair.parent / "c", out / "direct", text_type="f32", projector_type="q8_0")
    assert tensors(direct[1].path)["v.blk.0.ffn_down.weight"][0] == "F16"
    assert vision_error(out, mine.path) < 1.2 * vision_error(out, direct[1].path) < 0.1


def test_padding_alone_changes_nothing(out: Path) -> None:
    """The zeros are exact: a padded projector whose weights stay in F32 gives the same embeddings."""
    source = out / "mmproj-c-F32.gguf"
    exact = read_source(source, "f32")
    file = quantize_projector(exact, "q4_k")
    types = {tensor.name: tensor.type for tensor in exact.targets}
    targets = [replace(target, type=types[target.name]) for target in file.targets]
    plan = make_plan([replace(file, name="mmproj-padded.gguf", targets=targets)])
    (padded,) = write_planned(plan, out, out)
    assert read_gguf(padded.path).number("clip.vision.feed_forward_length") % 256 == 0
    assert vision_error(out, padded.path) < 1e-6


def vision_error(folder: Path, projector: Path) -> float:
    """How far the embeddings of a picture are from those of the F32 projector, relative to these."""
    settings = EngineSettings()
    pixels = np.random.default_rng(0).integers(0, 256, (112, 56, 3), np.uint8)
    with Model(folder / "c-F32.gguf", settings=settings) as model:

        def embeddings(path: Path) -> np.ndarray:
            with Vision(path, model, settings=settings) as vision:
                vision.encode("picture", [pixels])
                return vision.embeddings("picture")

        true = embeddings(folder / "mmproj-c-F32.gguf")
        return float(np.linalg.norm(embeddings(projector) - true) / np.linalg.norm(true))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_projector_of_another_type_is_as_exported_in_it(out: Path, pair: Path, kind: str) -> None:
    (mine,) = quantize_pair(out, projector_type=kind)
    direct = export_pair(pair.parent / "c", out / "direct", projector_type=kind)
    assert mine.sha256 == direct[1].sha256


def write_imatrix(path: Path, columns: int, weights: list[str]) -> Path:
    writer = gguf.GGUFWriter(path, "", endianess=gguf.GGUFEndian.LITTLE)
    writer.add_type("imatrix")
    for name in weights:
        sums = np.linspace(0, 40, columns, dtype=np.float32).reshape(1, columns)
        writer.add_tensor(f"{name}.in_sum2", sums)
        writer.add_tensor(f"{name}.counts", np.full((1, 1), 4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_importance_matrix_moves_the_error_to_where_little_passes(out: Path) -> None:
    name = "blk.1.attn_q.weight"
    exact = tensors(out / "c-F32.gguf")[name][1]
    imatrix = write_imatrix(out / "imatrix.dat", WIDTH, [name])
    errors = []
    for given in (None, imatrix):
        (written,) = quantize_pair(out, text_type="q4_k_m", imatrix=given)
        errors.append(np.abs(tensors(written.path)[name][1] - exact)[:, WIDTH // 2 :].mean())
    assert errors[1] < errors[0]  # the right half weighs more
    with pytest.raises(ModelError, match=r"has 128 columns for blk\.1\.attn_q\.weight, which has 256: calibrate"):
        quantize_pair(out, text_type="q4_0", imatrix=write_imatrix(out / "i", 128, [name]))
    with pytest.raises(ModelError, match="is no importance matrix"):
        quantize_pair(out, text_type="q4_0", imatrix=out / "c-F32.gguf")
    with pytest.raises(UsageError, match="give --type"):
        quantize_pair(out, projector_type="q8_0", imatrix=imatrix)


def test_sources_that_do_not_qualify(out: Path) -> None:
    with pytest.raises(UsageError, match="nothing to do"):
        quantize_pair(out)
    with pytest.raises(ModelError, match="neither a folder nor a file"):
        quantize_pair(out / "absent", text_type="q8_0")
    shutil.copy(out / "c-F32.gguf", out / "d-F32.gguf")
    with pytest.raises(ModelError, match=r"holds c-F32\.gguf, d-F32\.gguf: give one"):
        quantize_pair(out, text_type="q8_0")
    (written,) = quantize_pair(out / "d-F32.gguf", text_type="q8_0")
    assert written.path.name == "d-Q8_0.gguf"
    for path in out.glob("?-F32.gguf"):
        path.unlink()
    with pytest.raises(ModelError, match=r"only as d-Q8_0\.gguf \(Q8_0\).*quantised twice"):
        quantize_pair(out, text_type="q4_k_m")
    (out / "d-Q8_0.gguf").unlink()
    with pytest.raises(ModelError, match=r"holds no text model \(qwen2vl or qwen3vl\)"):
        quantize_pair(out, text_type="q4_k_m")
    with pytest.raises(ModelError, match="holds no text model"):
        quantize_pair(out / "mmproj-c-F32.gguf", text_type="q4_k_m")


def test_a_header_that_lies_about_its_tensors(out: Path) -> None:
    for kind in ("text_type", "projector_type"):
        made = quantize_pair(out, **{kind: "q8_0"})[0].path
        other = out / "lies" / made.name
        other.parent.mkdir(exist_ok=True)
        key = b"general.file_type\x04\x00\x00\x00"
        data = made.read_bytes()
        assert data.count(key + b"\x07") == 1
        other.write_bytes(data.replace(key + b"\x07", key + b"\x01"))
        with pytest.raises(ModelError, match="is Q8_0, needs to be F32"):
            quantize_pair(other, **{kind: "q4_0" if kind == "text_type" else "bf16"})
        assert list(other.parent.iterdir()) == [other]
        other.unlink()


def test_weights_that_cannot_be_read(out: Path) -> None:
    """A weight table that ends early, and values that are no numbers."""
    source = out / "c-F32.gguf"
    data = source.read_bytes()
    source.write_bytes(data[:-1000])
    with pytest.raises(ModelError, match=r"c-F32\.gguf cannot be read"):
        quantize_pair(out, text_type="q4_k_m")
    source.write_bytes(data[:-4] + np.float32(np.nan).tobytes())
    with pytest.raises(ModelError, match=r"c-F32\.gguf: a value of output_norm\.weight is nan"):
        quantize_pair(out, text_type="q4_k_m")
    assert sorted(path.name for path in out.iterdir()) == ["c-F32.gguf", "mmproj-c-F32.gguf"]
