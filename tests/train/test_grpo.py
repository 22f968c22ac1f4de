"""GRPO: its step is the policy gradient of what was drawn, alike in any number of processes, legs and resumptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from processes import start as start_processes  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from taught_judge import PROFILE, RECIPE, case  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from train.cases import Case  # noqa: E402
from train.groups import draw, masked, tokens  # noqa: E402
from train.grpo import prepare, reinforce  # noqa: E402
from train.policy.model import load  # noqa: E402
from train.policy.rendering import Renderer, segments  # noqa: E402
from train.recipe import Recipe  # noqa: E402
from train.traces import read_rows, replay  # noqa: E402
from vrt_lite.errors import UsageError  # noqa: E402
from vrt_lite.protocol.messages import Generated  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(6)]


def _recipe(**options: object) -> Recipe:
    return replace(RECIPE, grpo=replace(RECIPE.grpo, **options))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def _log(run: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "step_time")} for row in read_rows(run / "log.jsonl")]


class _Gradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _step(taught: Path, run: Path, cases: list[Case] = CASES, **options: object):
    """Gradients of a first step, not clipped."""
    trainer, _ = prepare(_recipe(steps=1, **options), cases, start=taught, run=run)
    trainer.args.max_grad_norm = 0.0
    keep = _Gradients()
    trainer.add_callback(keep)
    trainer.train()
    return keep.found


def test_queries_are_drawn_anew_while_there_are_others() -> None:
    assert sorted(draw(5, 5, seed="a")) == [0, 1, 2, 3, 4]
    assert draw(5, 5, seed="a") == draw(5, 5, seed="a")
    assert len({tuple(draw(10**9, 4, seed=f"{n}")) for n in range(5)}) == 5
    assert sorted(draw(2, 5, seed="b")) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_an_end_that_was_not_drawn_is_not_learned(taught: Path) -> None:
    _, tokenizer = load(RECIPE, taught, trainable=False)
    pair = case(0)
    visible, _ = replay(pair, pair.script, PROFILE)
    first = segments(visible, [Generated(text) for text in pair.script])[0]
    with pair.open(PROFILE) as frames:
        rendered = Renderer(tokenizer, PROFILE).render(first, frames)
    whole, cut = masked(rendered, (True, True)), masked(rendered, (True, False))
    assert np.array_equal(whole.learned, rendered.learned)
    [place] = np.flatnonzero(whole.learned != cut.learned)
    assert rendered.ids[place] == tokenizer.id("<|im_end|>")
    assert place == np.flatnonzero(rendered.learned)[-1]
    assert not masked(rendered, ()).learned.any()


def test_a_step_is_the_policy_gradient_of_what_was_drawn(taught: Path, tmp_path: Path) -> None:
    """With the reference as the policy, KL has no gradient: what is left is - sum of advantage · log p / tokens."""
    found = _step(taught, tmp_path / "run", queries=2, group=8, batch=3)
    again, _ = prepare(_recipe(queries=2, group=8), CASES, start=taught, run=tmp_path / "again")
    groups, _ = again._groups(0)
    rows = [row for group in groups for row in group.rows()]
    assert len(rows) > len({id(r) for group in groups for r in group.rollouts}), "no rollout forgot frames"
    assert any(row.advantage for row in rows)
    policy, loss, count = again._policy, 0.0, sum(map(tokens, rows))
    for row in rows:
        with row.case.open(PROFILE) as frames:
            rendered = masked(policy.renderer.render(row.segment, frames), row.ended)
        assert rendered.learned.sum() == tokens(row)
        logps, _ = policy.logprobs(policy.model, policy.collated([rendered]), temperature=1.0)
        loss = loss - row.advantage * logps.sum() / count
    loss.backward()
    expected = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    assert expected.keys() == found.keys()
    assert any("visual" in name and gradient.abs().max() > 0 for name, gradient in found.items())
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=2e-6, rtol=1e-3)


def test_two_steps_train_a_model_that_can_be_loaded(taught: Path, tmp_path: Path) -> None:
    recipe = _recipe()
    assert reinforce(recipe, CASES, start=taught, run=tmp_path)
    load(recipe, tmp_path / "model", trainable=False)
    assert (tmp_path / "model" / "tokenizer.json").is_file()
    assert (tmp_path / "model" / "profile.toml").is_file()
    before, after = _weights(taught), _weights(tmp_path / "model")
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    rows = _log(tmp_path)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["samples"] == 8
    assert rows[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[1]["kl"] > 0
    for row in rows:
        total = sum(row[f"reward/{term}"] for term in ("format", "accuracy", "gain", "explore"))
        assert row["reward"] == pytest.approx(total)
        assert 0 <= row["called"] <= 1
        assert 1 <= row["rounds"] <= 4
    assert reinforce(recipe, [], start=taught, run=tmp_path), "what is finished is not begun again"


def test_groups_that_teach_nothing_are_drawn_again_so_many_times(taught: Path, tmp_path: Path) -> None:
    hopeless = [replace(pair, labels=dict.fromkeys(pair.labels, 0)) for pair in CASES]
    asked: list[int] = []

    class Counted(list):
        def __getitem__(self, index):
            asked.append(index)
            return super().__getitem__(index)

    found = _step(taught, tmp_path / "hopeless", Counted(hopeless), queries=2, group=3, resamples=2)
    assert len(asked) == 2 * 3
    assert _log(tmp_path / "hopeless")[0]["groups"] == 0
    assert all(not gradient.any() for gradient in found.values())
    asked.clear()
    mixed = Counted([*CASES, *hopeless])
    _step(taught, tmp_path / "mixed", mixed, queries=3, group=6, resamples=6)
    assert _log(tmp_path / "mixed")[0]["groups"] == 3
    assert 3 < len(asked) <= 3 * 7
    assert any(index >= len(CASES) for index in asked[:3])


@pytest.fixture(scope="module")
def whole(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps that nobody disturbed."""
    run = tmp_path_factory.mktemp("whole")
    assert reinforce(_recipe(steps=3, learning_rate=1e-3), CASES, start=taught, run=run)
    return run


def test_legs_come_to_the_same_numbers(taught: Path, whole: Path, tmp_path: Path) -> None:
    recipe = _recipe(steps=3, learning_rate=1e-3)
    legs = 1
    while not reinforce(recipe, CASES, start=taught, run=tmp_path, minutes=0.0):
        legs += 1
    assert legs == 3
    _assert_same(tmp_path, whole)


def test_a_killed_run_comes_to_the_same_numbers(taught: Path, whole: Path, tmp_path: Path) -> None:
    class Killed(list):
        left = 5

        def __getitem__(self, index):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        reinforce(_recipe(steps=30, learning_rate=1e-3), Killed(CASES), start=taught, run=tmp_path, every=0.0)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] in (["checkpoint-1"], ["checkpoint-2"])
    assert not (tmp_path / "model").exists()
    assert reinforce(_recipe(steps=3, learning_rate=1e-3), CASES, start=taught, run=tmp_path)
    _assert_same(tmp_path, whole)


def _assert_same(one: Path, other: Path) -> None:
    mine, theirs = _weights(one / "model"), _weights(other / "model")
    for name, weight in mine.items():
        torch.testing.assert_close(weight, theirs[name], atol=1e-7, rtol=1e-6)
    for row, like in zip(_log(one), _log(other), strict=True):
        assert row == pytest.approx(like, rel=1e-5, abs=1e-7)


def test_two_processes_take_the_step_of_one(taught: Path, tmp_path: Path) -> None:
    one = _step(taught, tmp_path / "one", queries=3, batch=2)
    start_processes("step", taught, tmp_path / "two.safetensors", count=2)
    two = load_file(tmp_path / "two.safetensors")
    assert one.keys() == two.keys()
    assert max(gradient.abs().max() for gradient in one.values()) > 1e-3
    for name, gradient in one.items():
        torch.testing.assert_close(two[name], gradient, atol=2e-6, rtol=1e-3)


def test_more_processes_than_queries_are_refused(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match=r"grpo\.queries is 2.*: 3"):
        prepare(_recipe(), CASES, start=taught, run=tmp_path)


def test_a_judge_learns_what_is_rewarded(taught: Path, tmp_path: Path) -> None:
    """It throws a coin at first: 1 for all, or 2 for all; labels say 1. It has one round, and calls in vain."""
    recipe = _recipe(steps=14, queries=2, group=8, learning_rate=4e-4, temperature=0.7, resamples=0, batch=16)
    recipe = replace(recipe, profile=replace(PROFILE, rounds=1))
    assert reinforce(recipe, CASES[:2], start=taught, run=tmp_path)
    rewards = [row["reward"] for row in _log(tmp_path)]
    assert rewards[0] < 1.5
    assert np.mean(rewards[-4:]) > 1.75
