"""The random pair is what converting and quantising a random checkpoint of that shape would have given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf.quants import dequantize

from bench import random_checkpoint, reply_texts
from bench.random_pair import Noise, write_pair
from bench.scenes import Scenes
from bench.side import frame_size, profile_for
from convert.quantize import quantize_pair
from convert.stage_outputs import StagedBackend
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.gguf_writer import Target
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find

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


def test_the_engine_reads_a_pair_of_videos_with_it(tmp_path: Path) -> None:
    write_pair(tmp_path, "tiny", random_checkpoint.cut(random_checkpoint.SHAPES["tiny"], layers=2))
    files, profile = find(tmp_path), profile_for(12_544)
    conversation = opening(Pair(reply_texts.replies()["caption"], (6.0, 6.0)), profile)
    with StagedBackend(files.text, files.projector, profile=profile, settings=EngineSettings(threads=1)) as backend:
        reading = backend.evaluate_stages(conversation, Scenes((0, 1), frame_size(12_544)))
    frame_tokens, text_tokens = len(reading.embeddings), len(reading.logits)
    assert frame_tokens == 4 * 15
    # The prompt in about as many tokens as the published tokenizer needs for it.
    assert 600 < text_tokens < 850
    assert np.isfinite(reading.embeddings).all() and np.isfinite(reading.logits).all()
    assert 0.3 < float(np.std(reading.logits)) < 3


@pytest.mark.parametrize("kind", [Type.Q4_K, Type.Q6_K, Type.Q8_0, Type.BF16])
def test_noise_has_the_size_of_trained_weights(kind: Type) -> None:
    target = Target("", (300, 1024), "blk.0.ffn_up.weight", (300, 1024), type=kind)
    values = dequantize(Noise().tensor(target), kind)
    assert values.shape == target.shape
    assert abs(float(values.mean())) < 0.03 / 32
    assert float(values.std()) == pytest.approx(1 / 32, rel=0.03)


def test_a_cut_keeps_a_block_of_full_attention() -> None:
    shape = random_checkpoint.cut(random_checkpoint.SHAPES["7b"], layers=3, vision_layers=8)
    assert (shape.layers, shape.tower.depth) == (3, 8)
    with pytest.raises(ValueError, match="multiple of 8"):
        random_checkpoint.cut(shape, vision_layers=4)
