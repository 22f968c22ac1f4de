"""The tower's tokens learn the words of the lines about a clip, in pretraining and beside the traces."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import PRETRAINED, PROFILE, RECIPE, SUPERVISED, case, cases  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.line_words import batch_loss, collate_words, count_words, line_views, pool_scores, word_loss  # noqa: E402
from train.policy.policy_tokenizer import PolicyTokenizer  # noqa: E402
from train.policy.rendering import segments  # noqa: E402
from train.pretrain import pretrain  # noqa: E402
from train.supervised import supervise  # noqa: E402
from train.traces import replay  # noqa: E402
from vrt_lite.errors import UsageError  # noqa: E402
from vrt_lite.protocol.messages import Generated  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
VIDEO = replace(PROFILE, tool_form="video")
TAUGHT = replace(SUPERVISED, words=0.1)


def _segments(number: int, profile: Any) -> Any:
    visible, _ = replay(case(number), case(number).script, profile)
    return segments(visible, [Generated(reply) for reply in case(number).script])


def test_a_line_is_about_the_videos_of_the_turn_before() -> None:
    """Calls: frames 3 and 10, then 3, 11 and 12. The window forgets the first call, so that there are two segments."""
    first, second = _segments(1, VIDEO)
    found = [(view.line.strip(), view.videos) for view in line_views(first)]
    assert found == [("red.", (0,)), ("red.", (2,))]  # the second call's reply is in the other segment
    assert [(view.line.strip(), view.videos) for view in line_views(second)] == [("blue é.", (3,))]
    assert [view.videos for view in line_views(_segments(1, PROFILE)[0])] == [(0,)]  # images are no videos


def test_a_batch_has_the_view_of_each_video(start: Path) -> None:
    tokenizer = PolicyTokenizer(start / "tokenizer.json")
    ids = count_words([cases(4)], VIDEO, tokenizer).word_ids
    rows = [list(line_views(segment)) for segment in _segments(1, VIDEO)]
    batch = collate_words(rows, [4, 4], tokenizer, ids)
    assert batch["word_views"].tolist() == [0, -1, 1, -1, -1, -1, -1, 2]
    assert batch["words"].shape == (3, len(ids))
    assert torch.equal(batch["words"][0], batch["words"][1])
    assert not torch.equal(batch["words"][0], batch["words"][2])
    assert batch["words_beside"].tolist() == []


def test_the_loss_is_of_words_and_of_which_clip_has_them() -> None:
    named, odds = torch.tensor([[2.0], [-1.0]]), torch.tensor([-0.5])
    words, beside = torch.tensor([[1.0], [0.0]]), torch.tensor([[0, 1]])
    alone = math.log1p(math.exp(-1.5)) + math.log1p(math.exp(-1.5))
    assert float(word_loss(named, odds, words, beside)) == pytest.approx(alone + 2 * math.log1p(math.exp(-3)))
    assert float(word_loss(named, odds, words, beside[:0])) == pytest.approx(alone)


def test_a_score_is_a_soft_maximum_over_the_tokens_of_a_view() -> None:
    tokens, vectors = torch.tensor([[1.0], [3.0], [9.0], [9.0]]), torch.tensor([[2.0]])
    batch = {"word_views": torch.tensor([0, -1, -1, -1]), "words": torch.ones(1, 1), "words_beside": torch.empty(0, 2)}
    batch["words_beside"] = batch["words_beside"].long()
    grids = torch.tensor([[1, 2, 4], [1, 2, 2], [1, 2, 2], [1, 2, 2]])  # two tokens, then one each
    tokens = torch.cat([tokens, tokens[:1]])
    score = math.log((math.exp(2.0) + math.exp(6.0)) / 2)
    assert float(pool_scores([tokens[:2] @ vectors.T])[0, 0]) == pytest.approx(score)
    loss = batch_loss(tokens, vectors, torch.zeros(1), grids, batch)
    assert float(loss) == pytest.approx(math.log1p(math.exp(-score)))
    nothing = {**batch, "word_views": torch.full((4,), -1), "words": torch.empty(0, 1)}
    assert float(batch_loss(tokens, vectors, torch.zeros(1), grids, nothing)) == 0


def _run(start: Path, run: Path, **changes: Any) -> dict[str, Any]:
    assert supervise(replace(TAUGHT, **changes), cases(8), start=start, run=run, recipe_all=RECIPE)
    return load_file(run / "model" / "model.safetensors")


def _losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "log.jsonl").read_text("utf-8").splitlines()]


def test_the_cold_start_learns_words_beside_its_traces_however_a_step_is_cut(start: Path, tmp_path: Path) -> None:
    taught, plain = _run(start, tmp_path / "taught"), _run(start, tmp_path / "plain", words=0.0)
    assert _losses(tmp_path / "taught")[0] > _losses(tmp_path / "plain")[0] + 0.1
    assert any(not torch.equal(taught[name], plain[name]) for name in plain if "visual." in name)
    _run(start, tmp_path / "cut", batch=1, accumulation=4)
    assert _losses(tmp_path / "cut") == pytest.approx(_losses(tmp_path / "taught"), rel=1e-5)
    assert not supervise(TAUGHT, cases(8), start=start, run=tmp_path / "legs", recipe_all=RECIPE, minutes=0)
    resumed = _run(start, tmp_path / "legs")
    assert all(torch.equal(taught[name], resumed[name]) for name in taught)


def test_a_model_that_can_write_keeps_its_word_vectors_in_pretraining(start: Path, tmp_path: Path) -> None:
    again = replace(PRETRAINED, model=replace(PRETRAINED.model, source=str(start)))
    assert pretrain(again, cases(8), start=start, run=tmp_path / "run")
    before, after = load_file(start / "model.safetensors"), load_file(tmp_path / "run" / "model" / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "visual." in name}


def test_scripts_without_a_line_are_no_words(start: Path) -> None:
    mute = [replace(case(0), script=tuple(reply.replace("Video", "Clip") for reply in case(0).script))]
    with pytest.raises(UsageError, match="no script has a snapshot"):
        count_words([mute], PROFILE, PolicyTokenizer(start / "tokenizer.json"))
