"""GRPO: its step is the policy gradient of what was drawn, alike in any number of processes and after a kill."""

from __future__ import annotations

import json
import math
from dataclasses import replace as change
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from msgspec.structs import replace  # noqa: E402
from processes import start as start_processes  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from taught_judge import PROFILE, RECIPE, case, script  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from train.data import TrainingCase, replay  # noqa: E402
from train.grpo import TrainingRow, draw_indices, generate, mask_ends, prepare, reinforce, rows_of  # noqa: E402
from train.model import load  # noqa: E402
from train.recipe import TrainingRecipe  # noqa: E402
from train.rendering import Renderer, segments  # noqa: E402
from train.rewards import Terms  # noqa: E402
from train.rollout import Rollout, roll_out  # noqa: E402
from train.writing import Request, WrittenReply  # noqa: E402
from vrt_lite.protocol.messages import Generated, Reply  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(6)]
WHOLE: dict[str, Any] = {"steps": 3, "steps_per_generation": 1, "learning_rate": 1e-3}


def _recipe(*, kept: dict[str, Any] | None = None, **options: Any) -> TrainingRecipe:
    """The taught judge's recipe with other options of GRPO, and `kept` ones of running."""
    return replace(RECIPE, grpo=replace(RECIPE.grpo, **options), running=replace(RECIPE.running, **(kept or {})))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def _log(run: Path) -> list[dict[str, float]]:
    state = json.loads((run / "trainer_state.json").read_text())
    return [row for row in state["log_history"] if "loss" in row]


class _Gradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _step(taught: Path, run: Path, cases: list[TrainingCase] = CASES, **options: Any):
    """Gradients of a run's last step, not clipped; it has one step."""
    trainer = prepare(_recipe(**{"steps": 1, **options}), cases, start=taught, run=run)
    trainer.args.max_grad_norm = 0.0
    keep = _Gradients()
    trainer.add_callback(keep)
    trainer.train()
    trainer.save_state()
    return keep.found


def test_queries_are_drawn_anew_while_there_are_others() -> None:
    assert sorted(draw_indices(5, 5, seed="a")) == [0, 1, 2, 3, 4]
    assert draw_indices(5, 5, seed="a") == draw_indices(5, 5, seed="a")
    assert len({tuple(draw_indices(10**9, 4, seed=f"{n}")) for n in range(5)}) == 5
    assert sorted(draw_indices(2, 5, seed="b")) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_an_end_that_was_not_drawn_is_not_learned(taught: Path) -> None:
    _, tokenizer = load(taught)
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
    policy, loss = prepare(recipe, CASES, start=taught, run=tmp_path / "again")._policy, 0.0
    data = generate(policy, CASES, recipe, range(1))[0]
    rows = data.rows
    assert len(rows) > data.trajectories, "no rollout forgot frames"
    assert len({row.share for row in rows}) > 1, "all are as long"
    assert any(row.advantage for row in rows)
    assert sum(len(row.logprobs) * row.share for row in rows) == pytest.approx(data.trajectories)
    for row in rows:
        logps = _logprobs(policy, row)
        assert logps.tolist() == pytest.approx(row.logprobs, abs=1e-4)
        loss = loss - row.advantage * logps.sum() * row.share / data.trajectories
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
    logps = policy.logprobs(policy.model, inputs, temperature=1.0)
    return logps[inputs["labels"][:, 1:] != -100]


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_the_loss_of_two_trajectories_worked_by_hand(taught: Path, tmp_path: Path, batch: int) -> None:
    """One of three rounds in two segments, better than the other of one. Ratios are clipped to 0.8 and 1.2.

    The longer one's tokens are 1.5 times as likely as when they were drawn in its first segment, and 0.5 times in its
    second: they count 1.2 and 0.5. Those of the other, with an advantage of -1, are 1.5 times as likely: -1.5.
    """
    trainer = prepare(_recipe(kl=0.0, batch=batch), CASES, start=taught, run=tmp_path)
    drawn = _two_trajectories(trainer)
    with torch.no_grad():
        rows = [
            change(row, advantage=sign, logprobs=tuple((_logprobs(trainer._policy, row) - math.log(ratio)).tolist()))
            for row, sign, ratio in zip(drawn, (1.0, 1.0, -1.0), (1.5, 0.5, 1.5), strict=True)
        ]
        first, second, _ = (len(row.logprobs) for row in rows)
        assert first != second
        batches = list(trainer._batches(rows, -(-3 // batch)))
        loss = sum(trainer.compute_row_loss(trainer.model, each, trajectories=2).item() for each in batches)
    better = (1.2 * first + 0.5 * second) / (first + second)
    assert loss == pytest.approx(-(better - 1.5) / 2, abs=1e-4)


class _Written:
    """A writer of given replies, as if each had been certain."""

    batch = 1

    def __init__(self, tokenizer: Any, replies: list[str]) -> None:
        self._tokenizer, self._replies = tokenizer, iter(replies)

    def write(self, requests: list[Request]) -> list[WrittenReply]:
        text = next(self._replies)
        tokens = tuple(self._tokenizer.tokens(text, special=False))
        return [WrittenReply(Reply(text, tokens), (0.0,) * (len(tokens) + 1), ended=True)]


def _two_trajectories(trainer: Any) -> list[TrainingRow]:
    """A trajectory of three rounds in two segments, and one of one."""
    replies = [*script(1, calls=2), *script(2, calls=0)]
    writer = _Written(trainer._policy.tokenizer, replies)
    group: list[Rollout] = roll_out(writer, {"q": CASES[0]}, PROFILE, samples=2, temperature=1.0, seed=0)["q"]
    rows = list(rows_of(group, [Terms(1, 1, 0, 0), Terms(1, 0, 0, 0)]))
    assert len(rows) == 3
    assert rows[0].advantage == rows[1].advantage == -rows[2].advantage > 0
    return rows


def test_the_loss_is_that_of_trl_on_the_same_batch(taught: Path, tmp_path: Path) -> None:
    """And so are its gradients: TRL's loss with plain KL, where each token is weighted by its trajectory's length."""
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    class Theirs(GRPOTrainer):
        def _get_per_token_logps_and_entropies(self, model: Any, *_: Any, pixel_values: Any = None, **__: Any) -> Any:
            logps = ours._policy.logprobs(model, pixel_values, temperature=1.0)
            return logps, torch.zeros_like(logps), None

    ours = prepare(_recipe(kl=0.3), CASES, start=taught, run=tmp_path / "ours")
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for weight in ours.model.parameters():  # so that the policy differs from its reference
            weight.add_(0.02 * weight.abs().mean() * torch.randn(weight.shape, generator=generator))
        rows = [
            change(row, logprobs=tuple((_logprobs(ours._policy, row) + 0.3 * torch.randn(len(row.logprobs))).tolist()))
            for row in _two_trajectories(ours)
        ]
    [batch] = ours._batches(rows, 1)
    mine = ours.compute_row_loss(ours.model, batch, trajectories=2)
    mine.backward()
    gradients = {name: p.grad.clone() for name, p in ours.model.named_parameters() if p.grad is not None}

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(taught / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    options = GRPOConfig(
        output_dir=str(tmp_path / "theirs"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=2,
        num_generations=2,
        beta=0.0,
        epsilon=RECIPE.grpo.clip,
        use_bias_correction_kl=False,
        loss_type="dapo",
        report_to="none",
    )
    ours.model.zero_grad()
    theirs = Theirs(
        ours.model,
        reward_funcs=lambda **_: [],
        args=options,
        train_dataset=Dataset.from_dict({"prompt": [""]}),
        processing_class=tokenizer,
    )
    theirs.beta, theirs.current_gradient_accumulation_steps = 0.3, 1
    inputs = ours._policy.collate([rendered for rendered, _ in batch])
    drawn = inputs["labels"][:, 1:] != -100
    old = torch.zeros(drawn.shape)
    old[drawn] = torch.tensor([logprob for row in rows for logprob in row.logprobs])
    lengths = [round(1 / rows[0].share), round(1 / rows[2].share)]
    with torch.no_grad():
        reference = ours._policy.logprobs(ours._reference, inputs, temperature=1.0)
    loss = theirs._compute_loss(
        theirs.model,
        {
            "prompt_ids": inputs["input_ids"][:, :1],
            "prompt_mask": inputs["attention_mask"][:, :1],
            "completion_ids": inputs["input_ids"][:, 1:],
            "completion_mask": drawn * torch.tensor([[sum(lengths) / 2 * row.share] for row in rows]),
            "old_per_token_logps": old,
            "ref_per_token_logps": reference,
            "advantages": torch.tensor([row.advantage for row in rows]),
            "num_items_in_batch": torch.tensor(float(sum(lengths))),
            "pixel_values": inputs,
        },
    )
    loss.backward()
    assert loss.item() == pytest.approx(mine.item(), rel=1e-4)
    assert abs(mine.item()) > 1e-3
    for name, p in ours.model.named_parameters():
        if name in gradients:
            torch.testing.assert_close(p.grad, gradients[name], atol=1e-6, rtol=1e-3)


def test_what_samples_is_renewed_every_so_many_steps(taught: Path, tmp_path: Path) -> None:
    recipe = _recipe(steps=4, steps_per_generation=2, queries=2, group=6, learning_rate=1e-3)
    reinforce(recipe, CASES, start=taught, run=tmp_path / "run")
    clipped = [row["clipped"] for row in _log(tmp_path / "run")]
    assert clipped[0] == clipped[2] == 0.0
    assert clipped[1] > 0
    assert clipped[3] > 0


def test_two_steps_train_a_model_that_can_be_loaded(taught: Path, tmp_path: Path) -> None:
    recipe = _recipe()
    reinforce(recipe, CASES, start=taught, run=tmp_path)
    load(tmp_path / "model")
    assert (tmp_path / "model" / "tokenizer.json").is_file()
    assert (tmp_path / "model" / "profile.toml").is_file()
    before, after = _weights(taught), _weights(tmp_path / "model")
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    rows = _log(tmp_path)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[1]["kl"] > 0
    for row in rows:
        total = sum(row[f"reward/{term}"] for term in ("format", "accuracy", "gain", "explore"))
        assert row["reward"] == pytest.approx(total)
        assert 0 <= row["called"] <= 1
        assert 1 <= row["rounds"] <= 4
    reinforce(recipe, [], start=taught, run=tmp_path)  # what is finished is not begun again


def test_groups_that_teach_nothing_are_drawn_again_so_many_times(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hopeless = [change(pair, labels=dict.fromkeys(pair.labels, 0)) for pair in CASES]
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
    reinforce(_recipe(**WHOLE), CASES, start=taught, run=run)
    return run


def test_a_killed_run_comes_to_the_same_numbers(taught: Path, whole: Path, tmp_path: Path) -> None:
    class Killed(list):
        def __getitem__(self, index):
            if (tmp_path / "checkpoint-2" / "trainer_state.json").is_file():
                raise KeyboardInterrupt
            return super().__getitem__(index)

    recipe = _recipe(kept={"save_steps": 1}, **WHOLE)
    with pytest.raises(KeyboardInterrupt):
        reinforce(recipe, Killed(CASES), start=taught, run=tmp_path)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    assert not (tmp_path / "model").exists()
    reinforce(recipe, CASES, start=taught, run=tmp_path)
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


def test_a_sharded_model_writes_as_a_whole_one(taught: Path, tmp_path: Path) -> None:
    start_processes("shard", taught, tmp_path / "out", count=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.0", "out.1"]


def test_a_judge_learns_what_is_rewarded(taught: Path, tmp_path: Path) -> None:
    """It throws a coin at first: 1 for all, or 2 for all; labels say 1. It has one round, and calls in vain."""
    recipe = _recipe(steps=14, steps_per_generation=2, queries=2, group=8, learning_rate=4e-4, resamples=0, batch=16)
    one_round = replace(recipe, profile=change(PROFILE, rounds=1), rollouts=replace(RECIPE.rollouts, temperature=0.7))
    reinforce(one_round, CASES[:2], start=taught, run=tmp_path)
    rewards = [row["reward"] for row in _log(tmp_path)]
    assert rewards[0] < 1.5
    assert np.mean(rewards[-4:]) > 1.75
