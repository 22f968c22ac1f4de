"""Makes a training resumable: checkpoints that are complete or absent, in legs of some minutes.

    RUN/checkpoint-N/    everything after N steps: model, optimizer, schedule, random numbers
    RUN/unfinished/      what a killed process was writing; it is never read
    RUN/model/           the finished stage's model
    RUN/log.jsonl        one line for each logged step

Each checkpoint is a model that can be loaded and exported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, PrinterCallback, TrainingArguments

from train.policy.model import save
from train.policy.policy_tokenizer import END, PAD, TOKENIZER_FILE
from train.recipe import TrainingRecipe
from train.step_sizes import count_processes
from train.trainer_callbacks import Leg

MODEL = "model"
_PREFIX, _UNFINISHED = "checkpoint-", "unfinished"


def find_latest(run: Path) -> Path | None:
    """Find the newest checkpoint of a run; None if it has none."""
    numbers = [int(path.name.removeprefix(_PREFIX)) for path in run.glob(f"{_PREFIX}[0-9]*")]
    return run / f"{_PREFIX}{max(numbers)}" if numbers else None


class Resumable:
    """A mixin before a Trainer, which then saves and resumes as this module describes. Set `documents` before training.

    `documents` is the folder from which tokenizer, profile and so on are copied to every saved model. FSDP and
    DeepSpeed write their own state files to the same folder.
    """

    documents: Path
    _part: Path | None = None

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.remove_callback(PrinterCallback)  # `Journal` prints instead

    def complete(self: Any, leg: Leg, *, finish: Callable[[Any], None] = lambda model: None) -> bool:
        """Train from the last checkpoint to RUN/model. Returns False if `leg` ended first.

        `finish` is called with the trained model before it is written.
        """
        last = find_latest(Path(self.args.output_dir))
        self.train(resume_from_checkpoint=str(last) if last else None)
        if leg.over:
            return False
        finish(self.accelerator.unwrap_model(self.model))
        with self.write_folder(MODEL) as folder:
            self.save_model(str(folder))
        self.clear()
        return True

    @contextlib.contextmanager
    def write_folder(self: Any, name: str) -> Generator[Path]:
        """Write the folder RUN/`name` with all processes. It gets its name when all its files are on the disk."""
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
        """Remove the run's checkpoints, except the one named `but`."""
        if self.is_world_process_zero():
            for path in Path(self.args.output_dir).glob(f"{_PREFIX}[0-9]*"):
                if path.name != but:
                    shutil.rmtree(path, ignore_errors=True)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing: the model card is written by hand."""

    def _send_telemetry(self) -> None:
        """Do nothing: no telemetry is sent."""

    def _get_output_dir(self: Any, trial: Any) -> str:
        return str(self._part or self.args.output_dir)

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        name = f"{_PREFIX}{self.state.global_step}"
        self.state.log_history.clear()  # it would grow without end; the log has it
        with self.write_folder(name) as folder:
            self._part = folder.parent
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            self._part = None
        self.clear(but=name)

    def _save(self: Any, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            save(self.accelerator.unwrap_model(self.model), self.documents, folder, weights=state_dict)

    def _load_from_checkpoint(self: Any, resume_from_checkpoint: str, model: Any = None) -> None:
        if model is not None or hasattr(self.model, "peft_config"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        # The Trainer's own method only warns about missing names, and would continue with wrong weights.
        saved = type(self.model).from_pretrained(resume_from_checkpoint, dtype="auto", local_files_only=True)
        self.model.load_state_dict(saved.state_dict())


def documents_of(start: Path | str, model: Any) -> Path:
    """Return the folder of a loaded model's tokenizer, profile and so on."""
    return Path(start) if Path(start).is_dir() else Path(model.name_or_path)


def processing_class(documents: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer that TRL needs; the renderer uses its own."""
    return PreTrainedTokenizerFast(tokenizer_file=str(documents / TOKENIZER_FILE), eos_token=END, pad_token=PAD)


def arguments(recipe: TrainingRecipe, *, run: Path, steps: int, on_processor: bool = False) -> dict[str, Any]:
    """Return the Trainer's options that all stages share.

    A recipe's bfloat16 is used on GPUs, and with `on_processor` also on CPUs that are fast with it.
    """
    gpu, processes = torch.cuda.is_available(), count_processes()
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


def checkpointing(recipe: TrainingRecipe) -> dict[str, bool]:
    """Return the Trainer's option for activation checkpointing, which has another name before transformers 5.23."""
    named = "activation_checkpointing"
    known = named in TrainingArguments.__dataclass_fields__
    return {named if known else "gradient_checkpointing": recipe.model.gradient_checkpointing}


def fast_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 matrices, which are several times as fast as float32."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("amx_bf16", False) or able.get("avx512_bf16", False))


def _flush(folder: Path) -> None:
    """Flush a folder's files to the disk, so that they are complete even after a power cut."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())
