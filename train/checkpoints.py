"""A training that can be killed: checkpoints that are whole or not there, legs of some minutes, a log of every step.

    RUN/checkpoint-N/    everything after N steps: a model that can be used, optimizer, schedule, random numbers
    RUN/unfinished/      what was being written when a process died; nobody reads it
    RUN/model/           the finished stage's model
    RUN/log.jsonl        one line a logged step

A small model's files are under 16 MB each. Knows transformers' Trainer; refuses to know what is trained.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, PrinterCallback, TrainerCallback, TrainingArguments

from train.policy.model import SHARD_BYTES, save, small
from train.policy.tokenizer import END, PAD, TOKENIZER_FILE
from train.recipe import Recipe
from train.traces import append_rows, keep_rows, read_rows

MODEL = "model"
OFTEN, SELDOM = 2.0, 60.0
"""Minutes between checkpoints of a small model, and of a large one."""
_PREFIX, _UNFINISHED = "checkpoint-", "unfinished"
_GROUPS, _SCHEDULE = "groups.json", "scheduler.json"
_TELL_SECONDS = 15.0


def latest(run: Path) -> Path | None:
    """The newest checkpoint of a run; None if it has none."""
    numbers = [int(path.name.removeprefix(_PREFIX)) for path in run.glob(f"{_PREFIX}[0-9]*")]
    return run / f"{_PREFIX}{max(numbers)}" if numbers else None


class Resumable:
    """Mixed in before a Trainer: it then saves and resumes as this module says. Set `documents` before training.

    `documents` is the folder whose tokenizer, profile and so on go with every model saved. Models spread by FSDP or
    DeepSpeed keep their own files of state, in the same folder, and are placed the same way.
    """

    documents: Path
    _part: Path | None = None

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.remove_callback(PrinterCallback)  # `Journal` tells

    def complete(self: Any, leg: Leg, *, finish: Callable[[Any], None] = lambda model: None) -> bool:
        """Train from the last checkpoint on. True when RUN/model is there, False when `leg` ended first.

        `finish` is given the model when it has learnt all, before it is written.
        """
        last = latest(Path(self.args.output_dir))
        self.train(resume_from_checkpoint=str(last) if last else None)
        if leg.over:
            return False
        finish(self.accelerator.unwrap_model(self.model))
        with self.written(MODEL) as folder:
            self.save_model(str(folder))
        self.clear()
        return True

    @contextlib.contextmanager
    def written(self: Any, name: str) -> Generator[Path]:
        """RUN/`name`, by all processes: a folder to write in, which takes its name when all of it is on the disk."""
        run = Path(self.args.output_dir)
        part = run / _UNFINISHED
        if self.is_world_process_zero():
            shutil.rmtree(part, ignore_errors=True)
            (part / name).mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        yield part / name
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            _flush(part / name)
            shutil.rmtree(run / name, ignore_errors=True)
            (part / name).replace(run / name)
            shutil.rmtree(part, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def clear(self: Any, *, but: str = "") -> None:
        """Remove the run's checkpoints, `but` this one."""
        if self.is_world_process_zero():
            for path in Path(self.args.output_dir).glob(f"{_PREFIX}[0-9]*"):
                if path.name != but:
                    shutil.rmtree(path, ignore_errors=True)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: the folder's card is written by hand."""

    def _send_telemetry(self) -> None:
        """None is sent."""

    def _get_output_dir(self: Any, trial: Any) -> str:
        return str(self._part or self.args.output_dir)

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        name = f"{_PREFIX}{self.state.global_step}"
        self.state.log_history.clear()  # it would grow without end; the log has it
        with self.written(name) as folder:
            self._part = folder.parent
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            self._part = None
        self.clear(but=name)

    def _save(self: Any, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if self.args.should_save:
            save(self.accelerator.unwrap_model(self.model), self.documents, Path(output_dir), weights=state_dict)

    def _load_from_checkpoint(self: Any, resume_from_checkpoint: str, model: Any = None) -> None:
        if model is not None or hasattr(self.model, "peft_config"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        # The Trainer's own way only warns of names that it does not find, and goes on from other weights.
        saved = type(self.model).from_pretrained(resume_from_checkpoint, dtype="auto", local_files_only=True)
        self.model.load_state_dict(saved.state_dict())

    def _save_optimizer_and_scheduler(self: Any, output_dir: str) -> None:
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        elif self.args.should_save:
            limit = SHARD_BYTES if small(self.model) else sys.maxsize
            write_optimizer(self.optimizer.state_dict(), Path(output_dir) / "optimizer", limit=limit)
            _write_json(Path(output_dir) / _SCHEDULE, self.lr_scheduler.state_dict())

    def _load_optimizer_and_scheduler(self: Any, checkpoint: str | None) -> None:
        if checkpoint is None or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
            return
        self.optimizer.load_state_dict(read_optimizer(Path(checkpoint) / "optimizer"))
        self.lr_scheduler.load_state_dict(json.loads((Path(checkpoint) / _SCHEDULE).read_text("utf-8")))


def documents_of(start: Path | str, model: Any) -> Path:
    """The folder that a loaded model's tokenizer, profile and so on come from."""
    return Path(start) if Path(start).is_dir() else Path(model.name_or_path)


def processing_class(documents: Path) -> PreTrainedTokenizerFast:
    """What TRL wants for a tokenizer; the renderer's own does the work."""
    return PreTrainedTokenizerFast(tokenizer_file=str(documents / TOKENIZER_FILE), eos_token=END, pad_token=PAD)


def arguments(recipe: Recipe, *, run: Path, steps: int, on_processor: bool = False) -> dict[str, Any]:
    """The Trainer's options that all stages share: their saving and logging is left to this module.

    A recipe's bfloat16 is for GPUs, and with `on_processor` for processors that are fast in it.
    """
    gpu, processes = torch.cuda.is_available(), int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's and accelerate's
    return {
        "output_dir": str(run),
        "bf16": recipe.model.precision == "bfloat16" and (gpu or (on_processor and fast_bfloat16())),
        "use_cpu": not gpu,
        "ddp_backend": "gloo" if processes > 1 and not gpu else None,
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": gpu,
        "seed": recipe.model.seed,
        "save_strategy": "steps",
        "save_steps": steps,
        "logging_nan_inf_filter": False,
        "log_level": "error",
        "log_level_replica": "error",
        "disable_tqdm": True,
        "report_to": "none",
    }


def checkpointing(recipe: Recipe) -> dict[str, bool]:
    """The Trainer's option of activation checkpointing, which has another name before transformers 5.23."""
    named = "activation_checkpointing"
    known = named in TrainingArguments.__dataclass_fields__
    return {named if known else "gradient_checkpointing": recipe.model.gradient_checkpointing}


def fast_bfloat16() -> bool:
    """Whether this processor multiplies matrices of bfloat16 by itself, some times as fast as those of float32."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16", False))


def write_optimizer(state: dict[str, Any], folder: Path, *, limit: int) -> None:
    """An optimizer's state_dict as safetensors of at most `limit` bytes each (one tensor at least), and its groups."""
    folder.mkdir()
    shards: list[dict[str, torch.Tensor]] = [{}]
    held = 0
    for index, values in state["state"].items():
        for name, value in values.items():
            tensor = torch.as_tensor(value).detach().cpu().contiguous()
            if held and held + tensor.nbytes > limit:
                shards.append({})
                held = 0
            shards[-1][f"{index}.{name}"] = tensor
            held += tensor.nbytes
    for number, shard in enumerate(shards):
        save_file(shard, folder / f"{number:05}.safetensors")
    _write_json(folder / _GROUPS, state["param_groups"])


def read_optimizer(folder: Path) -> dict[str, Any]:
    """What `write_optimizer` wrote, as load_state_dict takes it."""
    groups = json.loads((folder / _GROUPS).read_text("utf-8"))
    state: dict[int, dict[str, torch.Tensor]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for key, tensor in load_file(path).items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = tensor
    plain = [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in groups]
    return {"state": state, "param_groups": plain}


class Leg(TrainerCallback):
    """Ends a leg of training: stops at the end of the step in which its minutes are over, with a checkpoint.

    In between it saves `every` some minutes, by default as often as suits the model's size. The clock runs from `began`
    (time.monotonic), so that loading counts.
    """

    def __init__(self, minutes: float | None, *, model: Any, every: float | None, began: float | None) -> None:
        self._began = self._saved = time.monotonic() if began is None else began
        self._minutes = minutes
        self._every = every if every is not None else OFTEN if small(model) else SELDOM
        self.over = False
        """Whether it stopped before the end."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Decide, in the first process for all."""
        now = time.monotonic()
        ended = self._minutes is not None and now - self._began >= 60 * self._minutes
        decision = _agreed(2 if ended else int(now - self._saved >= 60 * self._every), args.device)
        if decision:
            control.should_save = True
            self._saved = now
        if decision == 2 and state.global_step < state.max_steps:
            control.should_training_stop = self.over = True
        return control


class Journal(TrainerCallback):
    """Appends every logged step to RUN/log.jsonl: step, samples, seconds of training so far, loss, lr and the rest.

    What was logged after the checkpoint from which a killed run goes on is dropped, and logged anew.
    """

    def __init__(self, path: Path, *, samples_a_step: int) -> None:
        self._path, self._samples = path, samples_a_step
        self._began, self._before, self._told = time.monotonic(), 0.0, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop what is logged anew, and take up the clock."""
        self._began = time.monotonic()
        if not state.is_world_process_zero:
            return
        kept = [row for row in read_rows(self._path) if row["step"] <= state.global_step]
        self._before = float(kept[-1]["seconds"]) if kept else 0.0
        keep_rows(self._path, len(kept))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write a line; now and then one for who watches."""
        if not state.is_world_process_zero or not logs or "loss" not in logs:
            return
        seconds = self._before + time.monotonic() - self._began
        row = {"step": state.global_step, "samples": state.global_step * self._samples, "seconds": round(seconds, 3)}
        row |= {"loss": logs["loss"], "lr": logs["learning_rate"]}
        row |= {k: v for k, v in logs.items() if k not in ("loss", "learning_rate", "epoch", "num_tokens")}
        append_rows(self._path, [row])
        if seconds - self._told >= _TELL_SECONDS:
            self._told = seconds
            of = f"step {state.global_step} of {state.max_steps}"
            print(f"{of}: loss {row['loss']:.4f}, {seconds:.0f} s", file=sys.stderr, flush=True)


def _agreed(decision: int, device: torch.device) -> int:
    """The first process's decision, in all of them: their clocks differ."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return decision
    told = torch.tensor(decision, device=device)
    torch.distributed.broadcast(told, 0)
    return int(told.item())


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _flush(folder: Path) -> None:
    """Have the disk hold what is in a folder, so that a name never stands for less after a power cut."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())
