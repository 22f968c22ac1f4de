"""A drill is the thought of a written trace, learnt behind its snapshot, and shows no frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from train.drills import DRILLS_A_ROW, Drills, render_drills  # noqa: E402
from train.policy.policy_tokenizer import PolicyTokenizer, learn  # noqa: E402
from train.policy.rendering import Collator, Renderer  # noqa: E402
from train.recipe import load_recipe  # noqa: E402

CASES = Drills(9)
PROFILE = load_recipe(Path(__file__).parents[2] / "train" / "configs" / "tiny-cpu.toml").profile


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PolicyTokenizer:
    texts = [text for case in CASES for text in (*case.script, case.pair.caption)]
    return learn(texts, tmp_path_factory.mktemp("drills") / "tokenizer.json", rows=700)


def test_a_drill_has_a_caption_that_pictures_decide() -> None:
    assert len({case.key for case in CASES}) == len(CASES)
    for case in CASES:
        assert "The prompt wants a " in case.script[0]
    assert {case.labels["TA"] for case in Drills(40)} == {0, 1, 2}


def test_only_what_follows_the_snapshot_is_learnt(tokenizer: PolicyTokenizer) -> None:
    rows = render_drills(list(CASES), tokenizer, Renderer(tokenizer, PROFILE), PROFILE)
    assert len(rows) == -(-len(CASES) // DRILLS_A_ROW)
    learnt = [tokenizer.text(row.ids[row.learned].tolist()) for row in rows]
    thoughts = [case.script[0][case.script[0].index("<think>") :] + "<|im_end|>" for case in CASES]
    assert "".join(learnt) == "".join(thoughts)
    for row in rows:
        assert not row.kinds.any()
        assert not len(row.image_grids) and not len(row.video_grids)
        np.testing.assert_array_equal(row.positions, np.tile(np.arange(len(row.ids)), (3, 1)))
    seen = tokenizer.text(rows[0].ids.tolist())
    for case in CASES[:DRILLS_A_ROW]:
        assert case.script[0] in seen and case.pair.caption in seen


def test_drills_and_pairs_are_one_batch(tokenizer: PolicyTokenizer) -> None:
    rows = render_drills(list(CASES), tokenizer, Renderer(tokenizer, PROFILE), PROFILE)
    batch = Collator(0)(rows)
    assert batch["input_ids"].shape == (len(rows), max(len(row.ids) for row in rows))
    assert "pixel_values_videos" not in batch
