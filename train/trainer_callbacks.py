"""Trainer callbacks of every stage: they end a leg, decide when to save, and log every step."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from train.policy.model import is_small
from train.traces import append_rows, keep_rows, read_rows

OFTEN, SELDOM = 2.0, 60.0
"""Minutes between checkpoints of a small model, and of a large one."""
_PRINT_SECONDS = 15.0


class Leg(TrainerCallback):
    """Ends a leg of training with a checkpoint, after the step in which its minutes are over.

    It also saves `every` so many minutes; the default depends on the model's size. The time counts from `began`
    (time.monotonic), so that loading is included.
    """

    def __init__(self, minutes: float | None, *, model: Any, every: float | None, began: float | None) -> None:
        self._began = self._saved = time.monotonic() if began is None else began
        self._minutes = minutes
        self._every = every if every is not None else OFTEN if is_small(model) else SELDOM
        self.over = False
        """Whether training stopped before its last step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Decide whether to save and to stop; the first process decides for all."""
        now = time.monotonic()
        ended = self._minutes is not None and now - self._began >= 60 * self._minutes
        decision = _share_decision(2 if ended else int(now - self._saved >= 60 * self._every), args.device)
        if decision:
            control.should_save = True
            self._saved = now
        if decision == 2 and state.global_step < state.max_steps:
            control.should_training_stop = self.over = True
        return control


class Journal(TrainerCallback):
    """Appends every logged step to RUN/log.jsonl: step, samples, seconds of training so far, loss, lr and the rest.

    When a killed run continues from a checkpoint, the later lines are dropped and logged again.
    """

    def __init__(self, path: Path, *, samples_a_step: int) -> None:
        self._path, self._samples = path, samples_a_step
        self._began, self._before, self._printed_seconds = time.monotonic(), 0.0, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop the rows that will be logged again, and continue the clock."""
        self._began = time.monotonic()
        if not state.is_world_process_zero:
            return
        kept = [row for row in read_rows(self._path) if row["step"] <= state.global_step]
        self._before = float(kept[-1]["seconds"]) if kept else 0.0
        keep_rows(self._path, len(kept))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write a line to the log, and from time to time one to standard error."""
        if not state.is_world_process_zero or not logs or "loss" not in logs:
            return
        seconds = self._before + time.monotonic() - self._began
        row = {"step": state.global_step, "samples": state.global_step * self._samples, "seconds": round(seconds, 3)}
        row |= {"loss": logs["loss"], "lr": logs["learning_rate"]}
        row |= {k: v for k, v in logs.items() if k not in ("loss", "learning_rate", "epoch", "num_tokens")}
        append_rows(self._path, [row])
        if seconds - self._printed_seconds >= _PRINT_SECONDS:
            self._printed_seconds = seconds
            of = f"step {state.global_step} of {state.max_steps}"
            print(f"{of}: loss {row['loss']:.4f}, {seconds:.0f} s", file=sys.stderr, flush=True)


def _share_decision(decision: int, device: torch.device) -> int:
    """Share the first process's decision with all processes, whose clocks differ."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return decision
    shared = torch.tensor(decision, device=device)
    torch.distributed.broadcast(shared, 0)
    return int(shared.item())
