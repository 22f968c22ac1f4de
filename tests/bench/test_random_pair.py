"""The random pair is what converting and quantising a random checkpoint of that shape would have given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf.quants import dequantize

from bench import random_checkpoint
from bench.random_pair import Noise, write_pair
from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.gguf_writer import Target

NAMED_BY_FOLDER = {"general.name", "general.basename", "general.finetune", "general.size_label", "general.type"}


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata, but for names, and the kinds and shapes of tensors."""
    reader = GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tensors = {t.name: (t.tensor_type, tuple(t.shape.tolist())) for t in reader.tensors}
    return {key: value for key, value in fields.items() if key not in NAMED_BY_FOLDER}, tensors


@pytest.mark.parametrize("tied", [False, True])
def test_types_and_metadata_are_those_of_the_quantiser(tmp_path: Path, tied: bool) -> None:
    shape = replace(random_checkpoint.SHAPES["tiny"], tied=tied)
    random_checkpoint.write(tmp_path / "checkpoint", shape)
    export_pair(tmp_path / "checkpoint", tmp_path / "made", name="made", text_type="f16", projector_type="f16")
    quantize_pair(tmp_path / "made", text_type="q4_k_m", projector_type="q8_0")
    written = write_pair(tmp_path / "random", "made", shape)
    for path in written:
        assert contents(path) == contents(tmp_path / "made" / path.name)
    kinds = {kind for kind, _ in contents(written[0])[1].values()}
    assert kinds == {Type.F32, Type.Q4_K, Type.Q6_K}


@pytest.mark.parametrize("kind", [Type.Q4_K, Type.Q6_K, Type.Q8_0, Type.BF16])
def test_noise_has_the_size_of_trained_weights(kind: Type) -> None:
    target = Target("", (300, 1024), "blk.0.ffn_up.weight", (300, 1024), type=kind)
    values = dequantize(Noise().tensor(target), kind)
    assert values.shape == target.shape
    assert abs(float(values.mean())) < 0.03 / 32
    assert float(values.std()) == pytest.approx(1 / 32, rel=0.03)
