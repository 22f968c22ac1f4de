"""The supervised stage takes the same steps however they are cut into batches, processes and runs that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import processes  # noqa: E402
from coloured import RECIPE, SUPERVISED, cases  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from train.model import load  # noqa: E402
from train.recipe import StartingModel, Supervised, TrainingRecipe  # noqa: E402
from train.rendering import Collator, Renderer  # noqa: E402
from train.sft import order_cases, render, supervise  # noqa: E402
from train.trainer import find_checkpoint  # noqa: E402
from vrt_lite.errors import ModelError, UsageError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


def _run(start: Path, run: Path, how: Supervised = SUPERVISED, recipe: TrainingRecipe = RECIPE) -> dict[str, Any]:
    supervise(how, cases(8), recipe=recipe, start=start, run=run)
    return load_file(run / "model" / "model.safetensors")


def _losses(run: Path) -> list[float]:
    state = json.loads((run / "trainer_state.json").read_text())
    return [row["loss"] for row in state["log_history"] if "loss" in row]


def _differ(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float((a[k] - b[k]).abs().max() / a[k].abs().max()) for k in a)


def test_two_steps(start: Path, tmp_path: Path) -> None:
    before = load_file(start / "model.safetensors")
    after = _run(start, tmp_path / "run", replace(SUPERVISED, learning_rate=3e-3, warmup=0.0))
    assert _differ(before, after) > 1e-3
    first, second = _losses(tmp_path / "run")
    assert second < first
    _run(start, tmp_path / "run")  # what is finished is not begun again
    assert len(_losses(tmp_path / "run")) == 2
    load(tmp_path / "run" / "model")


def test_the_loss_is_one_mean_over_the_judges_own_tokens(start: Path, tmp_path: Path) -> None:
    _run(start, tmp_path / "run")
    model, tokenizer = load(start)
    renderer, some_cases = Renderer(tokenizer, RECIPE.profile), cases(8)
    rows = [
        row for n in order_cases(8, SUPERVISED, seed=0)[:4] for row in render(some_cases[n], renderer, RECIPE.profile)
    ]
    batch = Collator(0)(rows)
    with torch.no_grad():
        logits = model(**{k: v for k, v in batch.items() if k != "labels"}).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    assert _losses(tmp_path / "run")[0] == pytest.approx(float(losses.sum() / (labels != -100).sum()), rel=1e-5)


def test_batches_and_checkpointing_make_no_difference(start: Path, tmp_path: Path) -> None:
    whole = _run(start, tmp_path / "whole", replace(SUPERVISED, batch=4))
    thrifty = replace(RECIPE, model=replace(RECIPE.model, gradient_checkpointing=True))
    for batch, recipe in ((2, RECIPE), (1, RECIPE), (2, thrifty)):
        run = tmp_path / f"{batch}{recipe is thrifty}"
        # Adam makes a step of rounding where a gradient is nearly nought; a wrong mean moves weights by their own size.
        assert _differ(whole, _run(start, run, replace(SUPERVISED, batch=batch), recipe)) <= 1e-3
        assert _losses(run) == pytest.approx(_losses(tmp_path / "whole"), rel=1e-5)


@pytest.fixture(scope="module")
def six_steps(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps in one process that nobody disturbed."""
    run = tmp_path_factory.mktemp("six") / "run"
    process = _begin(start, run)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    return run


def test_two_processes_equal_one(start: Path, six_steps: Path, tmp_path: Path) -> None:
    processes.start("supervise", start, tmp_path / "two", count=2)
    one, two = (load_file(run / "model" / "model.safetensors") for run in (six_steps, tmp_path / "two"))
    assert _differ(one, two) <= 2e-6
    assert _losses(tmp_path / "two") == pytest.approx(_losses(six_steps), rel=1e-6)


def _begin(start: Path, run: Path) -> subprocess.Popen[str]:
    """A process that saves after every step."""
    command = [sys.executable, processes.__file__, "supervise", str(start), str(run)]
    environment = {**os.environ, **processes.ENVIRONMENT}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _kill_when(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not reached() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)
    alive = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert alive, errors[-3000:]


def test_killed_during_a_checkpoint_and_resumed(start: Path, six_steps: Path, tmp_path: Path) -> None:
    """What is half written is not read; what was written before is gone on from, to the same numbers."""

    def half_written() -> bool:
        newest = {path.parent for path in tmp_path.glob("checkpoint-[2-9]/model.safetensors")}
        return any(not (folder / "trainer_state.json").is_file() for folder in newest)

    for _ in range(3):  # on a busy machine a kill may come when the checkpoint is already whole
        _kill_when(_begin(start, tmp_path), half_written)
        if half_written():
            break
    assert half_written()
    whole = find_checkpoint(tmp_path)
    assert whole is not None and (whole / "trainer_state.json").is_file()
    process = _begin(start, tmp_path)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    for name in ("model.safetensors", "config.json", "profile.toml"):
        assert (six_steps / "model" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    assert _losses(tmp_path) == _losses(six_steps)
    assert len(_losses(tmp_path)) == processes.STEPS


def test_a_checkpoint_that_lacks_a_weight_is_not_resumed_from(start: Path, tmp_path: Path) -> None:
    _run(start, tmp_path)
    (tmp_path / "model").rename(tmp_path / "before")
    weights = tmp_path / "checkpoint-2" / "model.safetensors"
    kept = load_file(weights)
    kept.pop(next(iter(kept)))
    save_file(kept, weights, {"format": "pt"})
    with pytest.raises(ModelError, match="lacks the weight"):
        _run(start, tmp_path)


def test_a_tower_that_does_not_learn_stays(start: Path, tmp_path: Path) -> None:
    before = load_file(start / "model.safetensors")
    frozen = _run(start, tmp_path, recipe=replace(RECIPE, model=replace(RECIPE.model, tower=False)))
    assert all(torch.equal(before[name], frozen[name]) for name in before if "visual." in name)
    assert _differ(before, frozen) > 1e-3


def test_the_order_is_whole_steps_of_shuffled_epochs() -> None:
    how = replace(SUPERVISED, samples=10, epochs=2)
    found = order_cases(30, how, seed=3)
    assert len(found) == 20
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert list(found[:10]) != list(found[10:])
    np.testing.assert_array_equal(found, order_cases(30, how, seed=3))
    assert list(found) != list(order_cases(30, how, seed=4))
    assert len(order_cases(3, how, seed=0)) == 8
    with pytest.raises(UsageError, match="nothing to learn"):
        order_cases(0, how, seed=0)


def test_processes_that_cannot_share_a_step_are_refused(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="multiple of 6"):
        supervise(SUPERVISED, cases(8), recipe=RECIPE, start=start, run=tmp_path / "run")


def test_a_step_at_a_small_rate_moves_nearly_all_weights(start: Path, tmp_path: Path) -> None:
    """Of a checkpoint that is stored in bfloat16, as a 7B is published."""
    rate, stored = 1e-6, tmp_path / "stored"
    stored.mkdir()
    for path in start.iterdir():
        (stored / path.name).write_bytes(path.read_bytes())
    weights = load_file(start / "model.safetensors")
    save_file({name: w.bfloat16() for name, w in weights.items()}, stored / "model.safetensors", {"format": "pt"})
    step = replace(SUPERVISED, learning_rate=rate, warmup=0.0, weight_decay=0.0, samples=4)
    large = replace(RECIPE, model=StartingModel(source="stored"))
    before, after = load_file(stored / "model.safetensors"), _run(stored, tmp_path / "run", step, large)
    assert {w.dtype for w in after.values()} == {torch.float32}
    moves = torch.cat([(after[name] - before[name].float()).flatten() for name in before])
    kept = torch.cat([(after[name].bfloat16() != before[name]).flatten() for name in before])
    assert moves.abs().max() < 2 * rate
    assert (moves != 0).float().mean() > 0.999
    assert kept.float().mean() < 0.03  # what of this step would be left in bfloat16
