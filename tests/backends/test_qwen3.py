"""Qwen3-VL beside the reference, stage by stage, in F32 and from a golden file: no torch here.

tests/golden/make_qwen3.py asked transformers. The checkpoint has heads wider than width / heads, and three vision
blocks that feed the text model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backends.test_fidelity import Fitted
from numpy.typing import NDArray

from convert.stage_outputs import StagedBackend
from convert.verify import distances, divergence
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.machine import EngineSettings
from vrt_lite.protocol.messages import FrameRef

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "golden")]

import fidelity_cases  # noqa: E402
import qwen3_cases as golden  # noqa: E402

CASES = golden.cases()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from vrt_lite.conversion.convert_folder import export_pair

    folder = tmp_path_factory.mktemp("qwen3")
    golden.make_checkpoint(folder / "tiny")
    text, projector = export_pair(folder / "tiny", folder / "pair", text_type="f32", projector_type="f32")
    return text.path, projector.path


@pytest.fixture(scope="module")
def backend(pair: tuple[Path, Path]) -> Iterator[StagedBackend]:
    settings = EngineSettings(gpu_layers=0, exact=True)
    with StagedBackend(*pair, profile=golden.PROFILE, settings=settings) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference() -> dict[str, NDArray[Any]]:
    with np.load(TESTS / "golden" / "qwen3.npz") as file:
        return dict(file)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_every_stage_is_the_references(backend: StagedBackend, reference: dict[str, NDArray[Any]], number: int) -> None:
    case = CASES[number]
    frames = Fitted(fidelity_cases.Displayed(case.sizes), case.profile)
    # The turn first: it is written by the path that judges take, with what the case before left in the cache.
    reply = backend.reply(case.conversation, frames, sampling=Sampling(golden.GREEDY_TOKENS), observe=ignore)
    mine = backend.evaluate_stages(case.conversation, frames)
    theirs = {key.partition(" ")[2]: value for key, value in reference.items() if key.startswith(f"{number} ")}
    for clip in (clip for clip in (0, 1) if f"pixels {clip}" in theirs):
        pixels = fidelity_cases.compared_rows(frames.pixels([FrameRef(clip, 0)])[0])
        assert np.abs(pixels - theirs[f"pixels {clip}"].astype(int)).max() <= 1
    assert mine.tokens.tolist() == theirs["tokens"].tolist()
    assert np.array_equal(mine.positions, theirs["positions"])
    if len(theirs["embeddings"]):
        assert mine.embeddings.shape[1] == 4 * golden.families.WIDTH
        assert distances(fidelity_cases.projected(mine.embeddings), theirs["embeddings"]) <= 1e-3
    assert distances(mine.logits, theirs["logits"]) <= 1e-3
    assert divergence(theirs["logits"], mine.logits).max() <= 1e-6
    assert reply.tokens == tuple(theirs["greedy"].tolist())
