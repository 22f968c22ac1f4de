"""The trainer of all stages: transformers' own, with checkpoints that are whole judges.

    RUN/STAGE/checkpoint-N/        everything after N steps
    RUN/STAGE/trainer_state.json   what was logged
    RUN/STAGE/model/               the finished stage's model

A checkpoint counts when its trainer_state.json is there, which is written last.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import torch
from transformers import Trainer, TrainingArguments

from train.model import merge_adapter, read_model, save, write_profile
from train.recipe import TrainingRecipe
from vrt_lite.profile import Profile

MODEL: Final = "model"
_STATE: Final = "trainer_state.json"


def find_checkpoint(run: Path) -> Path | None:
    """Find the newest whole checkpoint of a stage; None if it has none."""
    whole = [path.parent for path in run.glob(f"checkpoint-*/{_STATE}")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def count_processes() -> int:
    """Return the number of processes that a launcher started, this one among them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def options_of(recipe: TrainingRecipe, run: Path, **stage: Any) -> TrainingArguments:
    """Return the trainer's options for a stage. A recipe's bfloat16 is used on GPUs."""
    gpu, how = torch.cuda.is_available(), recipe.running
    # The name of the option changed in transformers 5.23.
    names = ("activation_checkpointing", "gradient_checkpointing")
    checkpointing = next(name for name in names if name in TrainingArguments.__dataclass_fields__)
    return TrainingArguments(
        output_dir=str(run),
        bf16=recipe.model.precision == "bfloat16" and gpu,
        use_cpu=not gpu,
        ddp_backend="gloo" if count_processes() > 1 and not gpu else None,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=gpu,
        seed=recipe.model.seed,
        save_strategy="steps",
        save_steps=how.save_steps,
        save_total_limit=how.keep,
        logging_steps=how.logging_steps,
        logging_nan_inf_filter=False,
        report_to=list(how.report_to),
        remove_unused_columns=False,
        **{checkpointing: recipe.model.gradient_checkpointing},
        **stage,
    )


class JudgeTrainer(Trainer):
    """transformers' trainer of a judge. Every checkpoint has its tokenizer and its profile, and can be exported."""

    def __init__(self, model: Any, start: Path | str, profile: Profile, **options: Any) -> None:
        super().__init__(model, **options)
        self._start, self._profile = start, profile
        self._documents = Path(start) if Path(start).is_dir() else Path(model.name_or_path)

    def complete(self) -> None:
        """Train from the newest checkpoint to RUN/STAGE/model, which has the weights of an adapter in its own."""
        run = Path(str(self.args.output_dir))
        last = find_checkpoint(run)
        self.train(resume_from_checkpoint=str(last) if last else None)
        self.save_state()
        written, part = run / "trained", run / f"{MODEL}.part"
        self.save_model(str(written))
        if self.is_world_process_zero():
            if hasattr(self.accelerator.unwrap_model(self.model), "peft_config"):
                merge_adapter(self._start, written, part, documents=written)
                part.replace(run / MODEL)
            else:
                written.replace(run / MODEL)
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing: the model card is written by hand."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            save(self.accelerator.unwrap_model(self.model), self._documents, folder, weights=state_dict)
            write_profile(self._profile, folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if model is not None or hasattr(self.model, "peft_config") or self.is_fsdp_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        # The Trainer's own method only warns about missing names, and would continue with wrong weights.
        self.model.load_state_dict(read_model(Path(resume_from_checkpoint), "auto").state_dict())
