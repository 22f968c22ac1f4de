"""Quantised projectors, and language models that cannot be quantised.

The bytes of quantised language models are compared with llama.cpp's in test_straight_quantization.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
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
from vrt_lite.conversion.convert_folder import PairPlan, export_pair, write_planned
from vrt_lite.conversion.gguf_writer import seal
from vrt_lite.conversion.quantization import quantize_projector
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import EngineSettings
from vrt_lite.models.gguf import read_gguf
from vrt_lite.models.hub import Unseen

TEXT, PROJECTOR = "c-F32.gguf", "mmproj-c-F32.gguf"
VisionError = Callable[[Path], float]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantize")
    make(folder / "c", width=256, dtype="F32")  # one block of the k types
    export_pair(folder / "c", folder / "out", text_type="f32", projector_type="f32")
    return folder / "out"


@pytest.fixture
def out(tmp_path: Path, pair: Path) -> Path:
    return Path(shutil.copytree(pair, tmp_path / "out"))


@pytest.fixture(scope="module")
def vision_error(pair: Path) -> Iterator[VisionError]:
    """How far a projector's embeddings of a picture are from those of the F32 projector, relative to these."""
    settings = EngineSettings(threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (112, 56, 3), np.uint8)
    with Model(pair / TEXT, settings=settings) as model:

        def embeddings(path: Path) -> np.ndarray:
            with Vision(path, model, settings=settings) as vision:
                vision.encode("picture", [pixels])
                return vision.embeddings("picture")

        true = embeddings(pair / PROJECTOR)
        yield lambda path: float(np.linalg.norm(embeddings(path) - true) / np.linalg.norm(true))


def tensors(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    return {
        t.name: (t.tensor_type.name, gguf.quants.dequantize(t.data, t.tensor_type))
        for t in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize(
    ("kind", "block", "weights", "embeddings"),
    [("q8_0", 32, 0.01, 0.1), ("q6_k", 256, 0.04, 0.12), ("q5_k", 256, 0.08, 0.25), ("q4_k", 256, 0.16, 0.4)],
)
def test_rows_of_no_whole_blocks_are_filled_up_with_zeros(
    out: Path, vision_error: VisionError, kind: str, block: int, weights: float, embeddings: float
) -> None:
    (mine,) = quantize_pair(out, projector_type=kind)
    whole, filled = tensors(out / PROJECTOR), tensors(mine)
    width = describe(mine)["fields"]["clip.vision.feed_forward_length"]
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
    assert vision_error(mine) < embeddings


def test_a_padded_q8_0_is_as_near_as_the_converters(out: Path, pair: Path, vision_error: VisionError) -> None:
    (mine,) = quantize_pair(out, projector_type="q8_0")
    direct = export_pair(pair.parent / "c", out / "direct", projector_type="q8_0")
    assert tensors(direct[1])["v.blk.0.ffn_down.weight"][0] == "F16"
    assert vision_error(mine) < 1.2 * vision_error(direct[1]) < 0.1


def test_padding_alone_changes_nothing(out: Path, vision_error: VisionError) -> None:
    """The zeros are exact: a padded projector whose weights stay in F32 gives the same embeddings."""
    exact = read_source(out / PROJECTOR, "f32")
    file = quantize_projector(exact, "q4_k")
    types = {tensor.name: tensor.type for tensor in exact.targets}
    targets = [replace(target, type=types[target.name]) for target in file.targets]
    sealed = seal("mmproj-padded.gguf", replace(file, targets=targets))
    (padded,) = write_planned(PairPlan((sealed,)), out, out, Unseen())
    assert read_gguf(padded).number("clip.vision.feed_forward_length") % 256 == 0
    assert vision_error(padded) < 1e-6


def test_sources_that_do_not_qualify(out: Path) -> None:
    def refused(message: str, source: Path, kind: type[Exception] = ModelError, **options: object) -> None:
        with pytest.raises(kind, match=message):
            quantize_pair(source, **({"text_type": "q4_k_m"} | options))

    refused("nothing to do", out, UsageError, text_type=None)
    refused("give --type", out, UsageError, text_type=None, projector_type="q8_0", imatrix=out / TEXT)
    refused("is no importance matrix", out, imatrix=out / TEXT)
    refused("neither a folder nor a file", out / "absent")
    shutil.copy(out / TEXT, out / "d-F32.gguf")
    refused(r"holds c-F32\.gguf, d-F32\.gguf: give one", out)
    (written,) = quantize_pair(out / "d-F32.gguf", text_type="q8_0")
    assert written.name == "d-Q8_0.gguf"
    for path in out.glob("?-F32.gguf"):
        path.unlink()
    refused(r"only as d-Q8_0\.gguf \(Q8_0\).*quantised twice", out)
    (out / "d-Q8_0.gguf").unlink()
    refused(r"holds no text model \(qwen2vl or qwen3vl\)", out)
    refused("holds no text model", out / PROJECTOR)


def test_a_header_that_lies_about_its_tensors(out: Path) -> None:
    for kind, other in (("text_type", "q4_0"), ("projector_type", "bf16")):
        (made,) = quantize_pair(out, **{kind: "q8_0"})
        key = b"general.file_type\x04\x00\x00\x00"
        data = made.read_bytes()
        assert data.count(key + b"\x07") == 1
        made.write_bytes(data.replace(key + b"\x07", key + b"\x01"))
        before = sorted(out.iterdir())
        with pytest.raises(ModelError, match="is Q8_0, needs to be F32"):
            quantize_pair(made, **{kind: other})
        assert sorted(out.iterdir()) == before


def test_weights_that_cannot_be_read(out: Path) -> None:
    """A weight table that ends early, and values that are no numbers."""
    source = out / TEXT
    data = source.read_bytes()
    for broken, message in (
        (data[:-1000], r"c-F32\.gguf cannot be read"),
        (data[:-4] + np.float32(np.nan).tobytes(), r"c-F32\.gguf: a value of output_norm\.weight is nan"),
    ):
        source.write_bytes(broken)
        with pytest.raises(ModelError, match=message):
            quantize_pair(out, text_type="q4_k_m")
    assert sorted(path.name for path in out.iterdir()) == [TEXT, PROJECTOR]
