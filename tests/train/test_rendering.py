"""What is learnt is exactly the judge's own turns, in the conversation that inference reads, token by token."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

import fidelity_cases  # noqa: E402
from coloured import PROFILE, SIZES, Frames, case, cases  # noqa: E402
from small_checkpoint import corpus, learn  # noqa: E402

from convert.reference import Reference  # noqa: E402
from train.data import replay  # noqa: E402
from train.policy_tokenizer import PolicyTokenizer  # noqa: E402
from train.rendering import Collator, Rendered, Renderer, patches, segments  # noqa: E402
from train.sft import render  # noqa: E402
from vrt_lite.backends.llamacpp.lower import FrameBlock  # noqa: E402
from vrt_lite.profile import Clock  # noqa: E402
from vrt_lite.protocol.messages import (  # noqa: E402
    FrameRef,
    Generated,
    Message,
    Text,
    Video,
)

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PolicyTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    return learn(corpus(PROFILE, cases(4)), path, rows=420)


def _learnt(row: Rendered, tokenizer: PolicyTokenizer) -> list[str]:
    """The texts of the learned stretches."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.learned.astype(int), [0]])))
    return [tokenizer.text(row.ids[a:b].tolist()) for a, b in edges.reshape(-1, 2)]


@pytest.mark.parametrize("number", range(4))
def test_the_mask_decodes_to_exactly_the_judges_turns(tokenizer: PolicyTokenizer, number: int) -> None:
    example = case(number)
    rows = render(example, Renderer(tokenizer, PROFILE), PROFILE)
    assert [text for row in rows for text in _learnt(row, tokenizer)] == [f"{r}<|im_end|>" for r in example.script]
    # Three rounds with a window of one: the third was written in another context.
    assert len(rows) == (2 if number % 2 else 1)


def test_each_segment_is_what_the_judge_saw(tokenizer: PolicyTokenizer) -> None:
    example = case(1)
    visible, _ = replay(example, example.script, PROFILE)
    found = segments(visible, [Generated(reply) for reply in example.script])
    last = found[-1]
    assert last.conversation[:-1] == visible[2]
    assert last.learned == {len(visible[2])}
    assert found[0].conversation[: len(visible[1])] == visible[1]
    assert sorted(found[0].learned) == [len(visible[0]), len(visible[1])]
    with example.open(PROFILE) as frames:
        renderer = Renderer(tokenizer, PROFILE)
        prompt, row = renderer.prompt(visible[2], frames), renderer.render(last, frames)
    n = len(prompt.ids)
    assert "(gone)" in tokenizer.text(prompt.ids.tolist())
    assert tokenizer.text(prompt.ids.tolist()).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert not prompt.learned.any()
    np.testing.assert_array_equal(prompt.ids, row.ids[:n])
    np.testing.assert_array_equal(prompt.positions, row.positions[:, :n])
    np.testing.assert_array_equal(prompt.image_patches, row.image_patches)
    assert row.learned[n]
    assert not row.learned[:n].any()


def test_the_tokens_that_a_policy_wrote_are_kept(tokenizer: PolicyTokenizer) -> None:
    written = tuple(tokenizer.tokens("y", special=False) + tokenizer.tokens("es", special=False))
    conversation = (Message("user", (Text("well?"),)),)
    (segment,) = segments([conversation], [Generated("yes", written)])
    row = Renderer(tokenizer, PROFILE).render(segment, Frames((1, 2), SIZES[0]))
    assert tuple(row.ids[row.learned]) == (*written, tokenizer.id("<|im_end|>"))


@pytest.mark.parametrize("rule", ["exact", "truncate", "fixed"])
def test_a_long_clip_moves_what_follows_by_its_largest_extent(tokenizer: PolicyTokenizer, rule: Any) -> None:
    profile = replace(PROFILE, clock=Clock(rule, 2.0, 30.0))
    shown = tuple(FrameRef(0, i) for i in range(4))
    conversation = (Message("user", (Video(shown, 20.9), Text("long"))),)
    row = Renderer(tokenizer, profile).prompt(conversation, Frames((1, 2), SIZES[0]))
    inside = row.kinds == 2
    first = int(np.flatnonzero(inside)[0])
    steps = profile.clock.steps(2, 20.9)
    assert steps[1] > 6
    np.testing.assert_array_equal(row.positions[0, inside], first + np.repeat(steps, 6))
    np.testing.assert_array_equal(row.positions[1, inside], first + np.tile([0, 0, 0, 1, 1, 1], 2))
    np.testing.assert_array_equal(row.positions[2, inside], first + np.tile([0, 1, 2], 4))
    after = row.positions[:, np.flatnonzero(inside)[-1] + 1 :]
    expected = first + FrameBlock(("",) * len(steps), steps, 2, 3).positions + np.arange(after.shape[1])
    np.testing.assert_array_equal(after, np.tile(expected, (3, 1)))


@dataclass(frozen=True)
class Resized:
    """Displayed frames, resized as the reference does it."""

    displayed: fidelity_cases.Displayed
    reference: Reference

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [self.reference.frames.resized(frame) for frame in self.displayed.pixels(frames)]


def test_the_prompt_is_what_transformers_prepares(tmp_path: Path) -> None:
    folder = tmp_path / "fidelity"
    fidelity_cases.make_checkpoint(folder)
    clock = Clock("exact", 2.0)
    profile = replace(fidelity_cases.PROFILE, clock=clock)
    reference = Reference(folder, profile=profile, clock=clock)
    renderer = Renderer(PolicyTokenizer(folder / "tokenizer.json"), profile)
    mean, std = (
        np.repeat(np.array(values, np.float32), 2 * 14 * 14)
        for values in ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    )
    compared = 0
    for example in fidelity_cases.cases({}):
        displayed = fidelity_cases.Displayed(example.sizes)
        prepared = reference._prepare(example.conversation, displayed)
        row = renderer.prompt(example.conversation, Resized(displayed, reference))
        np.testing.assert_array_equal(row.ids, prepared.inputs["input_ids"][0].numpy(), err_msg=example.name)
        for name, flat, grids in (
            ("pixel_values", row.image_patches, row.image_grids),
            ("pixel_values_videos", row.video_patches, row.video_grids),
        ):
            if name in prepared.inputs:
                floats = (flat.astype(np.float32) / 255 - mean) / std
                np.testing.assert_allclose(floats, prepared.inputs[name].numpy(), atol=2e-6, err_msg=example.name)
                grid = "image_grid_thw" if name == "pixel_values" else "video_grid_thw"
                np.testing.assert_array_equal(grids, prepared.inputs[grid].numpy())
            else:
                assert not len(flat)
        # Past a clip in which t exceeds rows and columns transformers 5 goes on from those alone; the engine does not.
        if _t_stays_below(row):
            np.testing.assert_array_equal(row.positions, prepared.positions[:, 0].numpy(), err_msg=example.name)
            compared += 1
    assert compared >= 7


def _t_stays_below(row: Rendered) -> bool:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.kinds > 0, [0]]))).reshape(-1, 2)
    return all(row.positions[0, a:b].max() <= row.positions[1:, a:b].max() for a, b in edges)


def test_a_batch_is_padded_on_the_right(tokenizer: PolicyTokenizer) -> None:
    renderer = Renderer(tokenizer, PROFILE)
    rows = [row for number in (0, 1) for row in render(case(number), renderer, PROFILE)]
    pad = tokenizer.id("<|endoftext|>")
    batch = Collator(pad)(rows)
    lengths = [len(row.ids) for row in rows]
    assert batch["input_ids"].shape == (3, max(lengths))
    assert batch["position_ids"].shape == (3, 3, max(lengths))
    assert batch["attention_mask"].sum(1).tolist() == lengths
    for i, row in enumerate(rows):
        n = len(row.ids)
        assert batch["input_ids"][i, :n].tolist() == row.ids.tolist()
        assert set(batch["input_ids"][i, n:].tolist()) <= {pad}
        assert batch["labels"][i, :n].tolist() == np.where(row.learned, row.ids, -100).tolist()
        assert set(batch["labels"][i, n:].tolist()) <= {-100}
        assert batch["position_ids"][:, i, :n].tolist() == row.positions.tolist()
        assert batch["mm_token_type_ids"][i, :n].tolist() == row.kinds.tolist()
    assert len(batch["pixel_values"]) == sum(len(row.image_patches) for row in rows)
    assert batch["video_grid_thw"].shape == (sum(len(row.video_grids) for row in rows), 3)


def test_a_frame_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="30x56"):
        patches([np.zeros((56, 30, 3), np.uint8)] * 2)
