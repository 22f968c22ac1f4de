"""GRPO: its step is the policy gradient of what was drawn, alike in any number of processes, legs and resumptions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from processes import start as start_processes  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from taught_judge import PROFILE, RECIPE, case, script  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from train.generation import generate, read_batches  # noqa: E402
from train.grpo import prepare, reinforce  # noqa: E402
from train.policy.model import load  # noqa: E402
from train.policy.rendering import Renderer, segments  # noqa: E402
from train.policy.rollout import replay_rollout  # noqa: E402
from train.policy.writing import WrittenReply  # noqa: E402
from train.recipe import TrainingRecipe  # noqa: E402
from train.rewards import group_terms  # noqa: E402
from train.rollout_groups import RolloutGroup, TrainingRow, draw_indices, mask_ends  # noqa: E402
from train.traces import read_rows, replay  # noqa: E402
from train.training_cases import TrainingCase  # noqa: E402
from vrt_lite.errors import UsageError  # noqa: E402
from vrt_lite.protocol.messages import Generated, Reply  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(6)]
WHOLE = {"steps": 3, "steps_per_generation": 2, "learning_rate": 1e-3}


def _recipe(**options: object) -> TrainingRecipe:
    return replace(RECIPE, grpo=replace(RECIPE.grpo, **options))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def _log(run: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "step_time")} for row in read_rows(run / "log.jsonl")]


class _Gradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _step(taught: Path, run: Path, cases: list[TrainingCase] = CASES, **options: object):
    """Gradients of a run's last step, not clipped; it has one step."""
    trainer, _ = prepare(_recipe(**{"steps": 1, **options}), cases, start=taught, run=run)
    trainer.args.max_grad_norm = 0.0
    keep = _Gradients()
    trainer.add_callback(keep)
    trainer.train()
    return keep.found


def test_queries_are_drawn_anew_while_there_are_others() -> None:
    assert sorted(draw_indices(5, 5, seed="a")) == [0, 1, 2, 3, 4]
    assert draw_indices(5, 5, seed="a") == draw_indices(5, 5, seed="a")
    assert len({tuple(draw_indices(10**9, 4, seed=f"{n}")) for n in range(5)}) == 5
    assert sorted(draw_indices(2, 5, seed="b")) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_an_end_that_was_not_drawn_is_not_learned(taught: Path) -> None:
    _, tokenizer = load(RECIPE, taught, trainable=False)
    pair = case(0)
    visible, _ = replay(pair, pair.script, PROFILE)
    first = segments(visible, [Generated(text) for text in pair.script])[0]
    with pair.open(PROFILE) as frames:
        rendered = Renderer(tokenizer, PROFILE).render(first, frames)
    whole, cut = mask_ends(rendered, (True, True)), mask_ends(rendered, (True, False))
    assert np.array_equal(whole.learned, rendered.learned)
    [place] = np.flatnonzero(whole.learned != cut.learned)
    assert rendered.ids[place] == tokenizer.id("<|im_end|>")
    assert place == np.flatnonzero(rendered.learned)[-1]
    assert not mask_ends(rendered, ()).learned.any()


def test_a_step_is_the_policy_gradient_of_what_was_drawn(taught: Path, tmp_path: Path) -> None:
    """With the reference as the policy, KL has no gradient: what is left is the mean of advantage · log p / T."""
    found = _step(taught, tmp_path / "run", queries=2, group=8, batch=3)
    recipe = _recipe(queries=2, group=8)
    again, _ = prepare(recipe, CASES, start=taught, run=tmp_path / "again")
    policy, loss = again._policy, 0.0
    batch = generate(policy, CASES, recipe, range(1))[0]
    rollouts = [rollout for sampled in batch.groups for rollout in sampled.group(CASES, recipe).rollouts]
    rows = [row for sampled in batch.groups for row in sampled.group(CASES, recipe).rows()]
    assert len(rows) > len(rollouts), "no rollout forgot frames"
    assert len(set(batch.lengths)) > 1, "all are as long"
    assert any(row.advantage for row in rows)
    assert sum(len(row.logprobs) * row.share for row in rows) == pytest.approx(len(rollouts))
    for row in rows:
        logps = _logprobs(policy, row)
        assert logps.tolist() == pytest.approx(row.logprobs, abs=1e-4)
        loss = loss - row.advantage * logps.sum() * row.share / len(rollouts)
    loss.backward()
    expected = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    assert expected.keys() == found.keys()
    assert any("visual" in name and gradient.abs().max() > 0 for name, gradient in found.items())
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=2e-6, rtol=1e-3)


def _logprobs(policy, row: TrainingRow) -> torch.Tensor:
    """What the policy finds now of the tokens that a row learns."""
    with row.case.open(PROFILE) as frames:
        rendered = mask_ends(policy.renderer.render(row.segment, frames), row.ended)
    inputs = policy.collate([rendered])
    logps, _ = policy.logprobs(policy.model, inputs, temperature=1.0)
    return logps[inputs["labels"][:, 1:] != -100]


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_the_loss_of_two_trajectories_worked_by_hand(taught: Path, tmp_path: Path, batch: int) -> None:
    """One of three rounds in two segments, better than the other of one. Ratios are clipped to 0.8 and 1.2.

    The longer one's tokens are 1.5 times as likely as when they were drawn in its first segment, and 0.5 times in its
    second: they count 1.2 and 0.5. Those of the other, with an advantage of -1, are 1.5 times as likely: -1.5.
    """
    trainer, _ = prepare(_recipe(kl=0.0, batch=batch), CASES, start=taught, run=tmp_path)
    trainer.current_gradient_accumulation_steps = 1  # which training sets
    policy, pair = trainer._policy, CASES[0]

    def written(text: str) -> WrittenReply:
        tokens = tuple(policy.tokenizer.tokens(text, special=False))
        return WrittenReply(Reply(text, tokens), (0.0,) * (len(tokens) + 1), ended=True)

    traces = [[written(text) for text in replies] for replies in (script(1, calls=2), script(2, calls=0))]
    rollouts = [replay_rollout(pair, number, trace, PROFILE) for number, trace in enumerate(traces)]
    terms = group_terms([rollout.rounds for rollout in rollouts], pair.labels, RECIPE.grpo)
    drawn = list(RolloutGroup(tuple(rollouts), tuple(terms)).rows())
    assert len(drawn) == 3
    assert drawn[0].advantage == drawn[1].advantage == -drawn[2].advantage > 0
    with torch.no_grad():
        rows = [
            replace(row, advantage=sign, logprobs=tuple((_logprobs(policy, row) - math.log(ratio)).tolist()))
            for row, sign, ratio in zip(drawn, (1.0, 1.0, -1.0), (1.5, 0.5, 1.5), strict=True)
        ]
        first, second, other = (len(row.logprobs) for row in rows)
        assert first != second
        chunks, count = trainer._chunks(rows, [first + second, other])
        loss = sum(trainer.compute_loss(trainer.model, chunk).item() for chunk in chunks)
    assert count == -(-3 // batch)
    better = (1.2 * first + 0.5 * second) / (first + second)
    assert loss == pytest.approx(-(better - 1.5) / 2, abs=1e-4)


def test_what_samples_is_renewed_every_so_many_steps(taught: Path, tmp_path: Path) -> None:
    recipe = _recipe(steps=4, steps_per_generation=2, queries=2, group=6, learning_rate=1e-3)
    fresh, _ = prepare(recipe, CASES, start=taught, run=tmp_path / "fresh")
    sampled = generate(fresh._policy, CASES, recipe, range(2))
    assert not reinforce(recipe, CASES, start=taught, run=tmp_path / "run", minutes=0.0)
    assert read_batches(tmp_path / "run" / "checkpoint-1") == {1: sampled[1]}
    assert not reinforce(recipe, CASES, start=taught, run=tmp_path / "run", minutes=0.0)
    assert read_batches(tmp_path / "run" / "checkpoint-2") == {}
    assert reinforce(recipe, CASES, start=taught, run=tmp_path / "run")
    clipped = [row["clip_ratio/region_mean"] for row in _log(tmp_path / "run")]
    assert clipped[0] == clipped[2] == 0.0
    assert clipped[1] > 0
    assert clipped[3] > 0


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


def test_groups_that_teach_nothing_are_drawn_again_so_many_times(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hopeless = [replace(pair, labels=dict.fromkeys(pair.labels, 0)) for pair in CASES]
    found = _step(taught, tmp_path / "hopeless", hopeless, queries=2, group=3, resamples=2)
    [row] = _log(tmp_path / "hopeless")
    assert (row["groups"], row["groups/drawn"], row["groups/missing"]) == (0, 2 * 3, 2)
    assert "steps 1 to 1: 2 of 2 groups taught nothing in 3 draws (grpo.resamples = 2)" in capsys.readouterr().err
    assert all(not gradient.any() for gradient in found.values())
    _step(taught, tmp_path / "mixed", [*CASES, *hopeless], queries=3, group=6, resamples=9)
    [row] = _log(tmp_path / "mixed")
    assert (row["groups"], row["groups/missing"]) == (3, 0)
    assert 3 < row["groups/drawn"] <= 3 * 10
    assert "taught nothing" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def whole(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps that nobody disturbed."""
    run = tmp_path_factory.mktemp("whole")
    assert reinforce(_recipe(**WHOLE), CASES, start=taught, run=run)
    return run


def test_legs_come_to_the_same_numbers(taught: Path, whole: Path, tmp_path: Path) -> None:
    recipe = _recipe(**WHOLE)
    legs = 1
    while not reinforce(recipe, CASES, start=taught, run=tmp_path, minutes=0.0):
        legs += 1
    assert legs == 3
    _assert_same(tmp_path, whole)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_killed_run_comes_to_the_same_numbers(taught: Path, whole: Path, tmp_path: Path, steps: int) -> None:
    """Killed in the middle of what was sampled at once, and where that is renewed."""

    class Killed(list):
        def __getitem__(self, index):
            if (tmp_path / f"checkpoint-{steps}").is_dir():
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        reinforce(_recipe(**{**WHOLE, "steps": 30}), Killed(CASES), start=taught, run=tmp_path, every=0.0)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == [f"checkpoint-{steps}"]
    assert not (tmp_path / "model").exists()
    assert reinforce(_recipe(**WHOLE), CASES, start=taught, run=tmp_path)
    _assert_same(tmp_path, whole)


def _assert_same(one: Path, other: Path) -> None:
    mine, theirs = _weights(one / "model"), _weights(other / "model")
    for name, weight in mine.items():
        torch.testing.assert_close(weight, theirs[name], atol=1e-7, rtol=1e-6)
    for row, like in zip(_log(one), _log(other), strict=True):
        assert row == pytest.approx(like, rel=1e-5, abs=1e-7)


def test_two_processes_take_the_step_of_one(taught: Path, tmp_path: Path) -> None:
    """The second step of what one policy sampled, so that its ratios count."""
    one = _step(taught, tmp_path / "one", steps=2, queries=3, batch=2, learning_rate=1e-3)
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
    recipe = _recipe(
        steps=14, steps_per_generation=2, queries=2, group=8, learning_rate=4e-4, temperature=0.7, resamples=0, batch=16
    )
    recipe = replace(recipe, profile=replace(PROFILE, rounds=1))
    assert reinforce(recipe, CASES[:2], start=taught, run=tmp_path)
    rewards = [row["reward"] for row in _log(tmp_path)]
    assert rewards[0] < 1.5
    assert np.mean(rewards[-4:]) > 1.75
