"""A run that is killed anywhere goes on to the same numbers; what is half written is never read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import RECIPE, SUPERVISED, cases  # noqa: E402

from train.checkpoints import find_latest  # noqa: E402
from train.policy.model import load  # noqa: E402
from train.supervised import supervise  # noqa: E402
from train.trainer_callbacks import Journal  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
WORKER = Path(__file__).with_name("supervised_worker.py")
STEPS = 12


def _begin(start: Path, run: Path) -> subprocess.Popen[str]:
    """A process that saves after every step."""
    command = [sys.executable, str(WORKER), str(start), str(run), str(STEPS), "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(start: Path, run: Path) -> None:
    recipe = replace(SUPERVISED, samples=4 * STEPS)
    assert supervise(recipe, cases(4 * STEPS), start=start, run=run, recipe_all=RECIPE, every=60)


def _kill_when(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not reached() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.0005)
    alive = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert alive, errors[-3000:]


def _steps(run: Path) -> int:
    """Steps that the newest checkpoint holds."""
    newest = find_latest(run)
    return int(newest.name.rpartition("-")[2]) if newest else 0


def _log(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_killed_between_and_during_checkpoints_and_resumed(start: Path, tmp_path: Path, one_thread: None) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "killed"

    def half_written() -> list[Path]:
        return list(run.glob("unfinished/checkpoint-*/config.json"))

    for _ in range(4):  # on a busy machine a kill may come when the checkpoint has just got its name
        _kill_when(_begin(start, run), lambda: bool(half_written()))
        if half_written():
            break
    assert half_written()
    step = _steps(run)
    assert not step or (run / f"checkpoint-{step}" / "trainer_state.json").is_file()
    _kill_when(_begin(start, run), lambda: _steps(run) >= step + 3)
    assert _log(run)[-1]["step"] < STEPS
    _finish(start, run)
    _finish(start, unbroken)
    for name in ("model.safetensors", "config.json", "profile.toml"):
        assert (unbroken / "model" / name).read_bytes() == (run / "model" / name).read_bytes()
    assert _log(unbroken) == _log(run)
    assert [row["step"] for row in _log(run)] == list(range(1, STEPS + 1))


def test_a_leg_stops_with_a_checkpoint_that_is_a_model(start: Path, tmp_path: Path) -> None:
    how = {"start": start, "run": tmp_path, "recipe_all": RECIPE}
    assert not supervise(SUPERVISED, cases(8), minutes=0, **how)
    checkpoint = find_latest(tmp_path)
    assert checkpoint == tmp_path / "checkpoint-1"
    assert not (tmp_path / "unfinished").exists()
    load(RECIPE, checkpoint, trainable=False)


def test_a_checkpoint_that_lacks_a_weight_is_not_resumed_from(start: Path, tmp_path: Path) -> None:
    how = {"start": start, "run": tmp_path, "recipe_all": RECIPE}
    assert not supervise(SUPERVISED, cases(8), minutes=0, **how)
    weights = tmp_path / "checkpoint-1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(Exception, match=r"(?i)metadata|incomplete|buffer"):
        supervise(SUPERVISED, cases(8), **how)


def test_a_journal_drops_what_is_logged_anew(tmp_path: Path) -> None:
    class State:
        global_step, max_steps, is_world_process_zero = 2, 4, True

    rows = [{"step": n, "samples": 4 * n, "seconds": 1.5 * n, "loss": 1.0, "lr": 0.1} for n in (1, 2, 3)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 4, "lo')
    journal = Journal(path, samples_a_step=4)
    journal.on_train_begin(None, State, None)
    State.global_step = 3
    journal.on_log(None, State, None, logs={"loss": 0.5, "learning_rate": 0.2, "epoch": 0.1})
    journal.on_log(None, State, None, logs={"train_runtime": 3.0})
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found[:2] == rows[:2]
    assert len(found) == 3
    assert {k: v for k, v in found[2].items() if k != "seconds"} == {"step": 3, "samples": 12, "loss": 0.5, "lr": 0.2}
    assert found[2]["seconds"] >= 3.0


def test_a_run_without_checkpoints_has_none(tmp_path: Path) -> None:
    (tmp_path / "unfinished" / "checkpoint-9").mkdir(parents=True)
    assert find_latest(tmp_path) is None
