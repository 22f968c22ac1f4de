"""The engine beside the reference, in F32, from golden files: no torch here.

tests/golden/make_fidelity.py asked transformers; this exports the same random checkpoint and asks llama.cpp,
over the ways a conversation can look. See fidelity_cases.py for both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from convert.stage_outputs import StagedBackend, StageOutputs
from convert.verify import distances, divergence
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.video.frame_conversion import Conversion, Orientation

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "golden")]

import fidelity_cases as golden  # noqa: E402

TOLD = json.loads((TESTS / "golden" / "fidelity.json").read_text("utf-8"))["cases"]
CASES = golden.cases({told["name"]: told["seed"] for told in TOLD})


@dataclass(frozen=True)
class Fitted:
    """Displayed frames as the judge gets them: vrt-lite's own size and resize."""

    displayed: golden.Displayed
    profile: Profile

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [self._fit(frame) for frame in frames]

    def _fit(self, frame: FrameRef) -> NDArray[np.uint8]:
        width, height = self.displayed.sizes[frame.clip]
        size = self.profile.frame_size(width, height, called=frame.called)
        (picture,) = self.displayed.pixels([frame])
        return Conversion(width, height, Orientation(), "sdr", False).convert(picture, size)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagedBackend]:
    from vrt_lite.conversion.convert_folder import export_pair

    folder = tmp_path_factory.mktemp("fidelity")
    golden.make_checkpoint(folder / "tiny")
    text, projector = export_pair(folder / "tiny", folder / "pair", text_type="f32", projector_type="f32")
    settings = EngineSettings(gpu_layers=0, exact=True)
    with StagedBackend(text.path, projector.path, profile=golden.PROFILE, settings=settings) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference() -> dict[str, NDArray[Any]]:
    with np.load(TESTS / "golden" / "fidelity.npz") as file:
        return dict(file)


@dataclass(frozen=True)
class Pair:
    """One conversation: the engine's reading and turn, and the reference's arrays by name."""

    case: golden.Case
    frames: Fitted
    mine: StageOutputs
    wrote: tuple[int, ...]
    theirs: dict[str, NDArray[Any]]


@pytest.fixture(scope="module", params=range(len(CASES)), ids=[case.name for case in CASES])
def pair(request: pytest.FixtureRequest, backend: StagedBackend, reference: dict[str, NDArray[Any]]) -> Pair:
    case, prefix = CASES[request.param], f"{request.param} "
    frames = Fitted(golden.Displayed(case.sizes), case.profile)
    # The turn first: it is written by the path that judges take, with what the case before left in the cache.
    reply = backend.reply(case.conversation, frames, sampling=Sampling(case.profile.max_new_tokens), observe=ignore)
    theirs = {key.removeprefix(prefix): array for key, array in reference.items() if key.startswith(prefix)}
    return Pair(case, frames, backend.evaluate_stages(case.conversation, frames), reply.tokens, theirs)


def test_tokens_and_positions_are_equal(pair: Pair) -> None:
    assert pair.mine.tokens.tolist() == pair.theirs["tokens"].tolist()
    assert np.array_equal(pair.mine.positions, pair.theirs["positions"])


def test_resized_pixels_are_within_one_grey_level(pair: Pair) -> None:
    for clip in (0, 1):
        if f"pixels {clip}" in pair.theirs:
            mine = golden.compared_rows(pair.frames.pixels([FrameRef(clip, 0)])[0])
            theirs = pair.theirs[f"pixels {clip}"].astype(int)
            assert mine.shape == theirs.shape
            assert np.abs(mine - theirs).max() <= 1


def test_embeddings_are_within_a_thousandth(pair: Pair) -> None:
    theirs = pair.theirs["embeddings"]
    if len(theirs):
        assert distances(golden.projected(pair.mine.embeddings), theirs) <= 1e-3
        assert distances(np.linalg.norm(pair.mine.embeddings, axis=1), pair.theirs["norms"]) <= 1e-3


def test_logits_are_within_a_thousandth(pair: Pair) -> None:
    theirs = pair.theirs["logits"]
    assert distances(pair.mine.logits, theirs) <= 1e-3
    assert divergence(theirs, pair.mine.logits).max() <= 1e-6


def test_the_greedy_turn_is_equal(pair: Pair) -> None:
    assert pair.wrote == tuple(pair.theirs["greedy"].tolist())
