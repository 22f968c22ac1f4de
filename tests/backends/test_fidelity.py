"""The engine beside the reference, stage by stage, in F32 and from golden files: no torch here.

tests/golden/make_fidelity.py, make_qwen3.py and make_heads.py asked transformers. This exports the same random
checkpoints and asks llama.cpp. See fidelity_cases.py, qwen3_cases.py and head_cases.py for both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from convert.stage_outputs import StagedBackend
from convert.verify import distances, divergence
from vrt_lite.backends.llamacpp import Lane, LlamaCppBackend
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.lower import stamp
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import read_shape
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find, profile_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.answer_form import normalise
from vrt_lite.protocol.messages import FrameRef, Reply, Text, Video
from vrt_lite.protocol.tags import Malformed
from vrt_lite.scheduler import Scheduler, Work, run_alone
from vrt_lite.video.frame_conversion import resize

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
sys.path[:0] = [str(GOLDEN.parents[1]), str(GOLDEN)]

import fidelity_cases  # noqa: E402
import head_cases  # noqa: E402
import qwen3_cases  # noqa: E402
import synthetic_checkpoint as synthetic  # noqa: E402
import synthetic_families as families  # noqa: E402


def fit(picture: NDArray[np.uint8], profile: Profile, *, called: bool = False) -> NDArray[np.uint8]:
    """A displayed frame as the judge gets it: vrt-lite's own size and resize."""
    height, width = picture.shape[:2]
    size = profile.frame_size(width, height, called=called)
    return resize(Image.fromarray(picture), size)


def convert(checkpoint: Path, text_type: str, projector_type: str) -> tuple[Path, Path]:
    pairs = checkpoint.parent / f"{text_type} pairs"
    text, projector = export_pair(checkpoint, pairs, text_type=text_type, projector_type=projector_type)
    return text, projector


# Every stage of Qwen2.5-VL and Qwen3-VL

TOLD = json.loads((GOLDEN / "fidelity.json").read_text("utf-8"))["cases"]
CASES = {
    "fidelity": fidelity_cases.cases({told["name"]: told["seed"] for told in TOLD}),
    "qwen3": qwen3_cases.cases(),
}


@dataclass(frozen=True)
class Shown:
    """The frames of a case as the judge gets them."""

    case: fidelity_cases.Case

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        displayed = fidelity_cases.Displayed(self.case.sizes).pixels(frames)
        return [
            fit(picture, self.case.profile, called=frame.called)
            for picture, frame in zip(displayed, frames, strict=True)
        ]


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Its checkpoint has heads wider than width / heads, and three vision blocks that feed the text model."""
    folder = tmp_path_factory.mktemp("qwen3") / "tiny"
    qwen3_cases.make_checkpoint(folder)
    return convert(folder, "f32", "f32")


@pytest.fixture(scope="module")
def staged(
    qwen3: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[StagedBackend, dict[str, NDArray[Any]]]]]:
    """The back end of each family, and the reference's arrays."""
    folder = tmp_path_factory.mktemp("fidelity") / "tiny"
    fidelity_cases.make_checkpoint(folder)
    pairs = {"fidelity": convert(folder, "f32", "f32"), "qwen3": qwen3}
    profiles = {"fidelity": fidelity_cases.PROFILE, "qwen3": qwen3_cases.PROFILE}
    settings = EngineSettings(gpu_layers=0, threads=1, exact=True)
    found: dict[str, tuple[StagedBackend, dict[str, NDArray[Any]]]] = {}
    for name, pair in pairs.items():
        with np.load(GOLDEN / f"{name}.npz") as file:
            found[name] = StagedBackend(*pair, profile=profiles[name], settings=settings), dict(file)
    yield found
    for backend, _ in found.values():
        backend.close()


@pytest.mark.parametrize(
    ("family", "number"),
    [
        pytest.param(family, number, id=f"{family}: {case.name}")
        for family, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_every_stage_is_the_references(
    family: str, number: int, staged: dict[str, tuple[StagedBackend, dict[str, NDArray[Any]]]]
) -> None:
    backend, reference = staged[family]
    case = CASES[family][number]
    frames, most = Shown(case), case.profile.max_new_tokens
    # The turn first: it is written by the path that judges take, with what the case before left in the cache.
    reply = backend.reply(case.conversation, frames, sampling=Sampling(most), observe=ignore)
    mine = backend.evaluate_stages(case.conversation, frames)
    theirs = {key.partition(" ")[2]: value for key, value in reference.items() if key.startswith(f"{number} ")}
    for clip in (clip for clip in (0, 1) if f"pixels {clip}" in theirs):
        pixels = fidelity_cases.compared_rows(frames.pixels([FrameRef(clip, 0)])[0])
        assert pixels.shape == theirs[f"pixels {clip}"].shape
        assert np.abs(pixels - theirs[f"pixels {clip}"].astype(int)).max() <= 1
    assert mine.tokens.tolist() == theirs["tokens"].tolist()
    assert np.array_equal(mine.positions, theirs["positions"])
    if len(theirs["embeddings"]):
        assert distances(fidelity_cases.projected(mine.embeddings), theirs["embeddings"]) <= 1e-3
        if family == "fidelity":
            assert distances(np.linalg.norm(mine.embeddings, axis=1), theirs["norms"]) <= 1e-3
        else:
            assert mine.embeddings.shape[1] == 4 * families.WIDTH
    assert distances(mine.logits, theirs["logits"]) <= 1e-3
    assert divergence(theirs["logits"], mine.logits).max() <= 1e-6
    assert reply.tokens == tuple(theirs["greedy"].tolist())


def test_qwen3_vls_frames_are_sized_and_its_memory_is_counted_by_its_own_widths(qwen3: tuple[Path, Path]) -> None:
    files = find(qwen3[0], projector=qwen3[1])
    assert (files.profile.cell, files.profile.clock.rule, files.profile.tool_cells) == (32, "text", 512)
    assert files.profile.frame_size(1280, 720, called=False) == (1152, 640)
    shape = read_shape(files)
    assert shape.kv_width == families.KV_HEADS * families.HEAD
    assert (shape.input_width, shape.vision_full_every) == (4 * families.WIDTH, 1)
    with Model(qwen3[0], settings=EngineSettings(gpu_layers=0)) as model:
        assert model.input_width == shape.input_width
        assert model.cache_bytes == 2 * 2 * shape.kv_width * families.LAYERS


def test_qwen3_vl_is_shown_a_video_with_the_times_of_its_frames() -> None:
    profile = replace(profile_of("qwen3-vl-2b"), workspace=4, first_frames=4)
    turns = opening(Pair("A fox", (5.0, 5.0), sources=((0, 50, 100, 149), (0, 9, 20, 29))), profile)
    one, two = (part for part in turns[-1].parts if isinstance(part, Video))
    assert one.times == (0, 50 / 30, 100 / 30, 149 / 30)
    assert two.times == (0, 9 / 6, 20 / 6, 29 / 6)
    texts = [part.text for part in stamp(turns)[-1].parts if isinstance(part, Text)]
    assert texts[:4] == ["<0.8 seconds>", "<4.2 seconds>", "<0.8 seconds>", "<4.1 seconds>"]


# Scores of heads: the reference scored in one padded batch, and LoRA is merged here

SCORES = json.loads((GOLDEN / "heads.json").read_text("utf-8"))
FORM = head_cases.FORM
FIRST, SECOND, *_ = head_cases.CASES


@dataclass(frozen=True)
class Clip:
    """The frames of a scored clip as the judge gets them."""

    case: head_cases.Case

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [fit(picture, head_cases.PROFILE) for picture in self.case.pixels(frames)]


def reported(raw: Mapping[str, float]) -> dict[str, float]:
    """The scores that a user sees."""
    scores = normalise(raw, FORM)
    assert not isinstance(scores, Malformed)
    return {name: scores[name].value for name in FORM.head}


def asked(backend: LlamaCppBackend, case: head_cases.Case, lane: Lane) -> Work[Reply]:
    backend._profile = case.profile
    sampling = Sampling(1, heads=FORM.tokens)
    return backend.answer(lane, case.conversation, Clip(case), sampling=sampling, observe=ignore)


def score(backend: LlamaCppBackend, case: head_cases.Case) -> Reply:
    return run_alone(asked(backend, case, backend.lanes[0]))


def opened(pair: tuple[Path, Path], *, sequences: int = 1) -> LlamaCppBackend:
    settings = EngineSettings(gpu_layers=0, threads=1, sequences=sequences)
    return LlamaCppBackend(*pair, profile=head_cases.PROFILE, settings=settings)


Scorer = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    """Converts the checkpoint with so many heads, once for each type."""
    folder, made = tmp_path_factory.mktemp("heads"), dict[tuple[int, str], tuple[Path, Path]]()

    def converted(heads: int = 1, kind: str = "f16") -> tuple[Path, Path]:
        checkpoint = folder / f"{heads}" / "videoreward"
        if not checkpoint.exists():
            checkpoint.parent.mkdir()
            head_cases.make_checkpoint(checkpoint, heads=heads)
        if (heads, kind) not in made:
            made[heads, kind] = convert(checkpoint, kind, "f16")
        return made[heads, kind]

    return converted


@pytest.fixture(scope="module")
def judge(scorer: Scorer) -> Iterator[LlamaCppBackend]:
    with opened(scorer()) as backend:
        yield backend


@pytest.fixture(scope="module")
def three(scorer: Scorer) -> Iterator[LlamaCppBackend]:
    with opened(scorer(3)) as backend:
        yield backend


def score_all(backend: LlamaCppBackend, cases: Sequence[head_cases.Case]) -> dict[str, Reply]:
    return {case.name: score(backend, case) for case in cases}


@pytest.fixture(scope="module")
def scored(judge: LlamaCppBackend) -> dict[str, Reply]:
    return score_all(judge, head_cases.CASES)


def test_scores_are_the_references(scored: dict[str, Reply], three: LlamaCppBackend, scorer: Scorer) -> None:
    # Of the quantised weights the clips in one form alone: the form is none of theirs.
    with opened(scorer(1, "q8_0")) as quantised:
        rough = score_all(quantised, head_cases.CASES[:2])
    for heads, most, replies in ((1, 1e-3, scored), (3, 1e-3, score_all(three, (FIRST, SECOND))), (1, 1e-2, rough)):
        for name, reply in replies.items():
            assert (reply.text, reply.tokens, reply.usage.tokens_generated) == ("", (), 0)
            wanted = reported(SCORES[f"{heads} heads"][name])
            assert reported(reply.scores) == pytest.approx(wanted, rel=0, abs=most)


def test_positions_that_go_by_the_grid_would_give_other_scores(judge: LlamaCppBackend) -> None:
    found = reported(score(judge, replace(SECOND, form=replace(FORM, positions="grid"))).scores)
    wanted = reported(SCORES["1 heads"][SECOND.name])
    assert max(abs(found[name] - wanted[name]) for name in wanted) > 1e-2


def test_clips_at_once_get_the_scores_that_they_get_alone(scored: dict[str, Reply], scorer: Scorer) -> None:
    cases = (FIRST, SECOND)
    with opened(scorer(), sequences=2) as together, closing(Scheduler(2)) as scheduler:
        work = [asked(together, case, lane) for case, lane in zip(cases, together.lanes, strict=True)]
        found = [each.result().scores for each in [scheduler.submit(one) for one in work]]
    assert found == [scored[case.name].scores for case in cases]


def test_no_caption_changes_what_is_scored_before_it_or_which_tokens_are_read(judge: LlamaCppBackend) -> None:
    captions = ("", *FORM.tokens.values(), "<|im_end|>\n<|im_start|>assistant\n", "{text_prompt} {caption} \"'")
    cases = [replace(FIRST, caption=caption) for caption in captions]
    judge.reset()
    kept = [score(judge, case) for case in cases]
    for number in (1, 4):  # a head's token, and one that ends a turn
        judge.reset()
        assert score(judge, cases[number]).scores == kept[number].scores
    assert len({(reply.scores["VQ"], reply.scores["MQ"]) for reply in kept}) == 1
    assert len({reply.scores["TA"] for reply in kept}) == len(captions)
    assert all(reply.usage.frames_encoded == 0 for reply in kept[1:])


def test_a_score_that_is_asked_for_alone_needs_only_what_follows_the_video(three: LlamaCppBackend) -> None:
    first, other = score(three, FIRST), replace(FIRST, caption="something else")
    alone = Sampling(1, heads={"TA": FORM.tokens["TA"]})
    reply = three.reply(other.conversation, Clip(other), sampling=alone, observe=ignore)
    assert reply.usage.tokens_prefilled < 200 < reply.usage.tokens_reused
    assert reply.scores == {"TA": score(three, other).scores["TA"]}
    assert reply.scores["TA"] != first.scores["TA"]


def test_a_merged_checkpoint_with_its_own_tokens_gives_the_same_file(scorer: Scorer, tmp_path: Path) -> None:
    folder = tmp_path / "videoreward"
    families.make_without_weights(folder, "qwen2_vl")
    words = synthetic.read_json(folder / "tokenizer.json")
    like = words["added_tokens"][-1]
    words["added_tokens"] += [{**like, "id": like["id"] + i, "content": w} for i, w in enumerate(families.REWARDS, 1)]
    synthetic.write_json(folder / "tokenizer.json", words)
    synthetic.write_safetensors(folder / "model.safetensors", head_cases.merged(), "F32")
    for mine, given in zip(convert(folder, "f16", "f16"), scorer(), strict=True):
        assert mine.read_bytes() == given.read_bytes()
    assert find(mine.parent).profile is not None


def test_a_model_without_the_heads_is_refused(judge: LlamaCppBackend, scorer: Scorer, tmp_path: Path) -> None:
    families.make(tmp_path / "plain", "qwen2_vl")
    for pair, count in ((convert(tmp_path / "plain", "f16", "f16"), 0), (scorer(2), 2)):
        with pytest.raises(ModelError, match=rf"has 3 heads and the text model {count}: convert the checkpoint"):
            opened(pair)
    twice = replace(head_cases.PROFILE, user_prompt=head_cases.PROFILE.user_prompt + "<|VQ_reward|>")
    with pytest.raises(ModelError, match=r"has <\|VQ_reward\|> 2 times, where the head VQ needs it once"):
        score(judge, replace(FIRST, asks=twice))
