"""A new tower learns to see: from which pictures, from which words, by which measures, and nothing else changes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import PRETRAINED, PROFILE, RECIPE, case, cases  # noqa: E402
from processes import start as start_processes  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.cells import MEASURES, measures  # noqa: E402
from train.clip_views import clip_views  # noqa: E402
from train.policy.model import create_checkpoint, load  # noqa: E402
from train.policy.rendering import patches  # noqa: E402
from train.pretrain import pretrain  # noqa: E402
from vrt_lite.errors import UsageError  # noqa: E402
from vrt_lite.protocol.messages import FrameRef  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_checkpoint(RECIPE, tmp_path_factory.mktemp("pretrain") / "start", cases(8))


def _run(start: Path, run: Path, **how: Any) -> dict[str, Any]:
    assert pretrain(PRETRAINED, cases(8), start=start, run=run, **how)
    return load_file(run / "model" / "model.safetensors")


def _losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "log.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("form", ["image", "video"])
def test_a_view_is_what_a_turn_shows_of_a_clip_and_what_is_said_of_it(form: Any) -> None:
    profile = replace(PROFILE, tool_form=form)
    example = case(1)  # calls of frames 3 and 10, then 3, 11 and 12: the second video's are 2, and 3 and 4
    with example.open(profile) as frames:

        def flat(*shown: int, clip: int) -> Any:
            return patches(frames.pixels([FrameRef(clip, i) for i in shown]))[0]

        expected = {
            "image": [flat(2, 2, clip=0), np.concatenate([flat(2, 2, clip=1), flat(3, 3, clip=1)])],
            "video": [flat(2, 2, clip=0), flat(2, 3, clip=1)],
        }[form]
        parts = [flat(0, 7, clip=0), *expected]
    found = list(clip_views(example, profile))
    assert [view.line.strip() for view in found] == ["red.", "red.", "blue é."]
    for view, pixels in zip(found, parts, strict=True):
        np.testing.assert_array_equal(view.patches, pixels)
        assert view.grids.prod(1).sum() == len(pixels)


def test_measures_tell_light_contrast_and_change() -> None:
    def of(*frames: Any) -> Any:
        return measures(torch.from_numpy(patches([np.asarray(f, np.uint8) for f in frames])[0]))

    y, x = np.mgrid[:28, :28]
    grey = np.full((28, 28, 3), 51)
    still, lit = of(grey, grey), of(grey, grey + np.array([51, 0, 0]))
    assert still.shape == (1, MEASURES)
    assert lit[0, :6].tolist() == pytest.approx([0.8, 0.8, 0.8, 1.6, 0.8, 0.8])
    assert still[0, 6:8].tolist() == [1, 1]
    floor = float(np.log(1e-4))
    assert still[0, 8:].tolist() == pytest.approx([*[floor] * 24, 0, floor, floor], abs=1e-4)
    assert lit[0, -3].item() == pytest.approx(0.8 / 3, rel=1e-4)
    fine = of(*[np.repeat(((x + y) % 2 * 200)[..., None], 3, 2)] * 2)[0]
    coarse = of(*[np.repeat((x // 4 % 2 * 200)[..., None], 3, 2)] * 2)[0]
    assert fine[12] > coarse[12] + 1  # across, at full size: more neighbours differ
    assert coarse[28] > fine[28] + 5  # at a fourth of it a fine checkerboard is grey
    assert coarse[6] > 0.7 > fine[6]


def test_two_steps_change_the_tower_and_the_words_alone(start: Path, tmp_path: Path) -> None:
    before, after = load_file(start / "model.safetensors"), _run(start, tmp_path / "run")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "visual." in name or "embed_tokens" in name}
    losses = _losses(tmp_path / "run")
    assert losses[1] < losses[0]
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    load(RECIPE, tmp_path / "run" / "model", trainable=False)


def test_a_resumed_run_is_the_unbroken_one(start: Path, tmp_path: Path) -> None:
    unbroken = _run(start, tmp_path / "unbroken")
    assert not pretrain(PRETRAINED, cases(8), start=start, run=tmp_path / "legs", minutes=0)
    assert (tmp_path / "legs" / "checkpoint-1").is_dir()
    resumed = _run(start, tmp_path / "legs")
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)
    assert _losses(tmp_path / "legs") == _losses(tmp_path / "unbroken")


def test_a_cut_or_shared_step_is_the_same(start: Path, tmp_path: Path) -> None:
    """The cases of a step have three views and two: a mean over each part would not be the step's."""
    whole = _run(start, tmp_path / "whole")
    cut = replace(PRETRAINED, pretrain=replace(PRETRAINED.pretrain, batch=1, accumulation=4))
    assert pretrain(cut, cases(8), start=start, run=tmp_path / "cut")
    start_processes("pretrain", start, tmp_path / "two", count=2)
    for other in ("cut", "two"):
        found = load_file(tmp_path / other / "model" / "model.safetensors")
        worst = max(float((found[name] - whole[name]).abs().max() / whole[name].abs().max()) for name in whole)
        assert worst <= 1e-3, other  # Adam makes much of the little that a word far from all that is said differs by
        assert _losses(tmp_path / other) == pytest.approx(_losses(tmp_path / "whole"), rel=1e-5)


def test_the_tower_learns_the_words_for_what_it_sees(tmp_path: Path) -> None:
    """Two kinds of clips, each called by a word of its own: what it names first is that word, for clips unseen."""

    class Grey:
        def __init__(self, level: int) -> None:
            self.pixels = lambda frames: [np.full((56, 84, 3), level, np.uint8) for _ in frames]

    def made(number: int) -> Any:
        word, level = ("dusk", 30) if number % 2 else ("noon", 180)

        @contextlib.contextmanager
        def frames(_: Any) -> Any:
            yield Grey(level + number % 64)

        answer = "<final answer>TA=0, VQ=0, MQ=0, OA=0</final answer>"
        script = (f"<snapshot>\nVideo 1: {word}\n</snapshot>\n<think>\nso\n</think>\n{answer}",)
        return replace(case(number), open=frames, script=script)

    recipe = replace(
        PRETRAINED, pretrain=replace(PRETRAINED.pretrain, samples=240, batch=8, accumulation=1, learning_rate=3e-3)
    )
    begun = create_checkpoint(recipe, tmp_path / "start", [made(n) for n in range(40)])
    assert pretrain(recipe, [made(n) for n in range(240)], start=begun, run=tmp_path / "run")
    model, tokenizer = load(RECIPE, tmp_path / "run" / "model", trainable=False)
    words = model.get_input_embeddings().weight
    own = {word: tokenizer.tokens(f" {word}", special=False)[-1] for word in ("dusk", "noon")}
    for number in range(1000, 1016):
        (view,) = clip_views(made(number), PROFILE)
        seen = model.model.visual(torch.from_numpy(view.patches), grid_thw=torch.from_numpy(view.grids)).pooler_output
        scores = (seen.mean(0) @ words.T)[list(own.values())]
        assert list(own)[int(scores.argmax())] == view.line.strip(), number


def test_scripts_that_say_nothing_of_what_is_shown_are_refused(start: Path, tmp_path: Path) -> None:
    silent = [replace(c, script=(c.script[-1].replace("Video", "Clip"),)) for c in cases(8)]
    with pytest.raises(UsageError, match="nothing to pretrain on"):
        pretrain(PRETRAINED, silent, start=start, run=tmp_path / "run")
