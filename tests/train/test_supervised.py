"""The supervised stage takes the same steps however they are cut into micro-batches, processes and legs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import RECIPE, SUPERVISED, cases  # noqa: E402
from processes import torchrun  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.policy.model import corpus, load  # noqa: E402
from train.policy.policy_tokenizer import learn  # noqa: E402
from train.policy.rendering import Collator, Renderer  # noqa: E402
from train.reply_rows import render  # noqa: E402
from train.supervised import order_cases, supervise  # noqa: E402
from train.traces import Trace  # noqa: E402
from train.world import World  # noqa: E402
from vrt_lite.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
WORKER = Path(__file__).with_name("supervised_worker.py")


def _run(start: Path, run: Path, **changes: Any) -> dict[str, Any]:
    recipe = replace(SUPERVISED, **changes)
    assert supervise(recipe, cases(8), start=start, run=run, recipe_all=RECIPE)
    return load_file(run / "model" / "model.safetensors")


def _log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def _differ(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float((a[k] - b[k]).abs().max() / a[k].abs().max()) for k in a)


def test_two_steps(start: Path, tmp_path: Path) -> None:
    before = load_file(start / "model.safetensors")
    after = _run(start, tmp_path / "run", learning_rate=3e-3, warmup=0.0)
    assert _differ(before, after) > 1e-3
    log = _log(tmp_path / "run")
    assert [row["step"] for row in log] == [1, 2]
    assert [row["samples"] for row in log] == [4, 8]
    assert log[1]["loss"] < log[0]["loss"]
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    assert supervise(SUPERVISED, cases(8), start=start, run=tmp_path / "run", recipe_all=RECIPE)
    assert len(_log(tmp_path / "run")) == 2
    load(RECIPE, tmp_path / "run" / "model", trainable=False)


def test_the_loss_is_one_mean_over_the_judges_own_tokens(start: Path, tmp_path: Path) -> None:
    _run(start, tmp_path / "run")
    model, tokenizer = load(RECIPE, start, trainable=False)
    renderer, some_cases = Renderer(tokenizer, RECIPE.profile), cases(8)
    first = order_cases(8, SUPERVISED, seed=0)[:4]
    rows = [row for n in first for row in render(some_cases[n], some_cases[n].script, renderer, RECIPE.profile)]
    batch = Collator(0)(rows)
    with torch.no_grad():
        logits = model(**{k: v for k, v in batch.items() if k != "labels"}).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    assert _log(tmp_path / "run")[0]["loss"] == pytest.approx(float(losses.sum() / (labels != -100).sum()), rel=1e-5)


def test_micro_batches_make_no_difference(start: Path, tmp_path: Path) -> None:
    whole = _run(start, tmp_path / "whole", batch=4, accumulation=1)
    for batch, accumulation in ((2, 2), (1, 4)):
        run = tmp_path / f"{batch}"
        # Adam makes a step of rounding where a gradient is nearly nought; a wrong mean moves weights by their own size.
        assert _differ(whole, _run(start, run, batch=batch, accumulation=accumulation)) <= 1e-3
        losses = [[row["loss"] for row in _log(r)] for r in (tmp_path / "whole", run)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_gradient_checkpointing_makes_no_difference(start: Path, tmp_path: Path) -> None:
    thrifty = replace(RECIPE, model=replace(RECIPE.model, gradient_checkpointing=True))
    how = {"start": start, "run": tmp_path / "thrifty", "recipe_all": thrifty}
    assert supervise(SUPERVISED, cases(8), **how)
    found = load_file(tmp_path / "thrifty" / "model" / "model.safetensors")
    assert _differ(_run(start, tmp_path / "plain"), found) <= 2e-5


@pytest.mark.usefixtures("one_thread")  # as in each process of torchrun
def test_two_processes_equal_one(start: Path, tmp_path: Path) -> None:
    torchrun(WORKER, start, tmp_path / "two", "4", "60", count=2)
    recipe = replace(SUPERVISED, samples=16)
    assert supervise(recipe, cases(16), start=start, run=tmp_path / "one", recipe_all=RECIPE)
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    assert _differ(one, two) <= 2e-6
    assert [row["samples"] for row in _log(tmp_path / "two")] == [4, 8, 12, 16]
    losses = [[row["loss"] for row in _log(tmp_path / run)] for run in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_resumed_run_opens_only_what_is_left(start: Path, tmp_path: Path) -> None:
    opened: list[str] = []

    def counted(some_case: Any) -> Any:
        def open_case(profile: Any) -> Any:
            opened.append(some_case.key)
            return some_case.open(profile)

        return replace(some_case, open=open_case)

    watched = [counted(some_case) for some_case in cases(8)]
    how = {"start": start, "run": tmp_path / "run", "recipe_all": RECIPE}
    assert not supervise(SUPERVISED, watched, minutes=0, **how)
    assert (tmp_path / "run" / "checkpoint-1" / "trainer_state.json").is_file()
    opened.clear()
    assert supervise(SUPERVISED, watched, minutes=None, **how)
    assert opened == [f"coloured:{n}" for n in order_cases(8, SUPERVISED, seed=0)[4:]]
    unbroken = _run(start, tmp_path / "unbroken")
    resumed = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert all(torch.equal(unbroken[k], resumed[k]) for k in unbroken)


def test_traces_take_the_place_of_scripts(start: Path, tmp_path: Path) -> None:
    some_cases = cases(4)
    traces = [Trace(some_cases[n].key, some_cases[n].script) for n in (3, 1)]
    recipe = replace(SUPERVISED, batch=1, accumulation=2, samples=2)
    how = {"start": start, "recipe_all": RECIPE}
    assert supervise(recipe, some_cases, run=tmp_path / "traces", traces=traces, **how)
    assert supervise(recipe, [some_cases[3], some_cases[1]], run=tmp_path / "scripts", **how)
    a, b = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("traces", "scripts"))
    assert all(torch.equal(a[k], b[k]) for k in a)
    with pytest.raises(UsageError, match="other:7"):
        supervise(recipe, some_cases, run=tmp_path / "bad", traces=[Trace("other:7", ("x",))], **how)


def test_the_tower_learns_at_a_rate_of_its_own(start: Path, tmp_path: Path) -> None:
    before, plain = load_file(start / "model.safetensors"), _run(start, tmp_path / "plain")
    frozen, tenth = (_run(start, tmp_path / f"{share}", tower_share=share) for share in (0.0, 0.1))
    tower = [name for name in before if "visual." in name]
    assert all(torch.equal(before[name], frozen[name]) for name in tower)
    assert _differ(before, frozen) > 1e-3
    moved = [sum(float((after[name] - before[name]).abs().sum()) for name in tower) for after in (plain, tenth)]
    assert 0.05 < moved[1] / moved[0] < 0.2
    assert _log(tmp_path / "0.1")[0]["lr"] == _log(tmp_path / "plain")[0]["lr"]


def test_a_resumed_run_keeps_the_rates_apart(start: Path, tmp_path: Path) -> None:
    recipe, how = replace(SUPERVISED, tower_share=0.5), {"start": start, "recipe_all": RECIPE}
    assert supervise(recipe, cases(8), run=tmp_path / "whole", **how)
    assert not supervise(recipe, cases(8), run=tmp_path / "legs", minutes=0, **how)
    assert supervise(recipe, cases(8), run=tmp_path / "legs", **how)
    whole, legs = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "legs"))
    assert all(torch.equal(whole[name], legs[name]) for name in whole)


def test_a_drawn_pair_is_learnt_in_both_orders(tmp_path: Path) -> None:
    profile, world = replace(RECIPE.profile, workspace=48, first_frames=4), World(0, 2)
    renderer = Renderer(learn(corpus(profile, world), tmp_path / "tokenizer.json", rows=600), profile)
    for one in world:
        assert one.exchanged
        other = one.exchanged()
        assert dict(other.labels) == {key: (0, 2, 1)[choice] for key, choice in one.labels.items()}
        assert other.pair.durations == one.pair.durations[::-1]
        drawn = render(one, one.script, renderer, profile, orders=2)
        apart = render(one, one.script, renderer, profile) + render(other, other.script, renderer, profile)
        assert len(drawn) == len(apart)
        for row, same in zip(drawn, apart, strict=True):
            assert np.array_equal(row.ids, same.ids)
            assert np.array_equal(row.video_patches, same.video_patches)
            assert np.array_equal(row.image_patches, same.image_patches)


def test_the_order_is_whole_steps_of_shuffled_epochs() -> None:
    recipe = replace(SUPERVISED, samples=10, batch=2, accumulation=2, epochs=2)
    found = order_cases(30, recipe, seed=3)
    assert len(found) == 20
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert list(found[:10]) != list(found[10:])
    np.testing.assert_array_equal(found, order_cases(30, recipe, seed=3))
    assert list(found) != list(order_cases(30, recipe, seed=4))
    assert len(order_cases(3, recipe, seed=0)) == 8
    with pytest.raises(UsageError, match="nothing to learn"):
        order_cases(0, recipe, seed=0)


def test_processes_that_cannot_share_a_step_are_refused(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="multiple of 3"):
        supervise(SUPERVISED, cases(8), start=start, run=tmp_path / "run", recipe_all=RECIPE)
