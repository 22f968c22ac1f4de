"""Scores of heads beside the reference, from golden files: no torch here.

tests/golden/make_heads.py asked transformers, in one padded batch; this converts the same random checkpoint, LoRA
merged, and asks llama.cpp. See head_cases.py for both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import Lane, LlamaCppBackend
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.protocol.answer_form import normalise
from vrt_lite.protocol.messages import FrameRef, Reply
from vrt_lite.protocol.tags import Malformed
from vrt_lite.scheduler import Scheduler, Work, run_alone
from vrt_lite.video.frame_conversion import Conversion, Orientation

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "golden")]

import head_cases as golden  # noqa: E402
import synthetic_checkpoint as synthetic  # noqa: E402
import synthetic_families as families  # noqa: E402

TOLD = json.loads((TESTS / "golden" / "heads.json").read_text("utf-8"))
ASKED = Sampling(1, heads=golden.FORM.tokens)
CASES = golden.CASES


@dataclass(frozen=True)
class Fitted:
    """A case's frames as the judge gets them: vrt-lite's own size and resize."""

    case: golden.Case

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        width, height = self.case.size
        size = golden.PROFILE.frame_size(width, height, called=False)
        convert = Conversion(width, height, Orientation(), "sdr", False).convert
        return [convert(picture, size) for picture in self.case.pixels(frames)]


def reported(raw: Mapping[str, float]) -> dict[str, float]:
    """The scores that a user sees."""
    scores = normalise(raw, golden.FORM)
    assert not isinstance(scores, Malformed)
    return {name: scores[name].value for name in golden.FORM.head}


def asked(backend: LlamaCppBackend, case: golden.Case, lane: Lane) -> Work[Reply]:
    backend._profile = case.profile
    return backend.answer(lane, case.conversation, Fitted(case), sampling=ASKED, observe=ignore)


def score(backend: LlamaCppBackend, case: golden.Case) -> Reply:
    return run_alone(asked(backend, case, backend.lanes[0]))


def converted(checkpoint: Path, kind: str) -> tuple[Path, Path]:
    text, projector = export_pair(checkpoint, checkpoint.parent / "pairs", text_type=kind, projector_type="f16")
    return text.path, projector.path


def opened(checkpoint: Path, kind: str = "f16", *, sequences: int = 1) -> LlamaCppBackend:
    settings = EngineSettings(gpu_layers=0, sequences=sequences)
    return LlamaCppBackend(*converted(checkpoint, kind), profile=golden.PROFILE, settings=settings)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "videoreward"
    golden.make_checkpoint(folder)
    return folder


@pytest.mark.parametrize(("kind", "most", "cases"), [("f16", 1e-3, CASES), ("q8_0", 1e-2, CASES[:5])])
def test_scores_are_the_references(checkpoint: Path, kind: str, most: float, cases: list[golden.Case]) -> None:
    """Of the quantised weights the clips in one form alone: the form is none of theirs."""
    with opened(checkpoint, kind) as backend:
        for case in cases:
            reply = score(backend, case)
            assert (reply.text, reply.tokens, reply.usage.tokens_generated) == ("", (), 0)
            assert reported(reply.scores) == pytest.approx(reported(TOLD["1 heads"][case.name]), rel=0, abs=most)


def test_positions_that_go_by_the_grid_would_give_other_scores(checkpoint: Path) -> None:
    case = replace(CASES[1], form=replace(golden.FORM, positions="grid"))
    with opened(checkpoint) as backend:
        found = reported(score(backend, case).scores)
    wanted = reported(TOLD["1 heads"][case.name])
    assert max(abs(found[name] - wanted[name]) for name in wanted) > 1e-2


def test_several_heads_are_read_each_at_its_token(tmp_path: Path) -> None:
    golden.make_checkpoint(tmp_path / "three", heads=3)
    with opened(tmp_path / "three") as backend:
        for case in CASES[:2]:
            found = reported(score(backend, case).scores)
            assert found == pytest.approx(reported(TOLD["3 heads"][case.name]), rel=0, abs=1e-3)


def test_clips_at_once_get_the_scores_that_they_get_alone(checkpoint: Path) -> None:
    with opened(checkpoint) as alone:
        expected = [score(alone, case).scores for case in CASES[:3]]
    with opened(checkpoint, sequences=3) as together, closing(Scheduler(3)) as scheduler:
        work = [asked(together, case, lane) for case, lane in zip(CASES, together.lanes, strict=False)]
        assert [each.result().scores for each in [scheduler.submit(one) for one in work]] == expected


def test_no_caption_changes_what_is_scored_before_it_or_which_tokens_are_read(checkpoint: Path) -> None:
    captions = ("", *golden.FORM.tokens.values(), "<|im_end|>\n<|im_start|>assistant\n", "{text_prompt} {caption} \"'")
    with opened(checkpoint) as backend:
        cases = [replace(CASES[0], caption=caption) for caption in captions]
        kept = [score(backend, case) for case in cases]
        fresh = list[Reply]()
        for case in cases:
            backend.reset()
            fresh.append(score(backend, case))
    assert [reply.scores for reply in kept] == [reply.scores for reply in fresh]
    assert len({(reply.scores["VQ"], reply.scores["MQ"]) for reply in kept}) == 1
    assert len({reply.scores["TA"] for reply in kept}) == len(captions)
    assert all(reply.usage.frames_encoded == 0 for reply in kept[1:])


def test_a_score_that_is_asked_for_alone_needs_only_what_follows_the_video(tmp_path: Path) -> None:
    golden.make_checkpoint(tmp_path / "three", heads=3)
    alone = Sampling(1, heads={"TA": golden.FORM.tokens["TA"]})
    with opened(tmp_path / "three") as backend:
        first = score(backend, CASES[0])
        other = replace(CASES[0], caption="something else")
        reply = backend.reply(other.conversation, Fitted(other), sampling=alone, observe=ignore)
        assert reply.usage.tokens_prefilled < 200 < reply.usage.tokens_reused
        assert reply.scores == {"TA": score(backend, other).scores["TA"]}
        assert reply.scores["TA"] != first.scores["TA"]


def test_a_merged_checkpoint_with_its_own_tokens_gives_the_same_file(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / checkpoint.name
    families.make_without_weights(folder, "qwen2_vl")
    words = synthetic.read_json(folder / "tokenizer.json")
    like = words["added_tokens"][-1]
    words["added_tokens"] += [{**like, "id": like["id"] + i, "content": w} for i, w in enumerate(families.REWARDS, 1)]
    synthetic.write_json(folder / "tokenizer.json", words)
    synthetic.write_safetensors(folder / "model.safetensors", golden.merged(), "F32")
    for mine, given in zip(converted(folder, "f16"), converted(checkpoint, "f16"), strict=True):
        assert mine.read_bytes() == given.read_bytes()
    assert find(mine.parent).profile is not None


def test_a_model_without_the_heads_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    families.make(tmp_path / "plain", "qwen2_vl")
    golden.make_checkpoint(tmp_path / "two", heads=2)
    for name, count in (("plain", 0), ("two", 2)):
        with pytest.raises(ModelError, match=rf"has 3 heads and the text model {count}: convert the checkpoint"):
            opened(tmp_path / name)
    with opened(checkpoint) as backend:
        twice = replace(golden.PROFILE, user_prompt=golden.PROFILE.user_prompt + "<|VQ_reward|>")
        case = replace(CASES[0], asks=twice)
        with pytest.raises(ModelError, match=r"has <\|VQ_reward\|> 2 times, where the head VQ needs it once"):
            score(backend, case)
