"""Cold start and refinement: TRL's SFTTrainer on written replies, or on those of a sampled trace.

A sample is one case. Its replies are replayed through the judge's own loop, which gives the same turns as inference.
Only the replies have a loss: one mean over all their tokens in a step, for any number of micro-batches and processes.
The order of the cases depends on recipe and seed, so that a resumed run does not render the cases that it has learned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from trl import SFTConfig, SFTTrainer

from train.checkpoints import MODEL, Resumable, arguments, checkpointing, documents_of, processing_class
from train.policy.model import load
from train.recipe import Supervised, TrainingRecipe
from train.reply_rows import RepliedCases, ReplyCollator
from train.step_sizes import count_processes, split_step
from train.traces import LOG, Trace
from train.trainer_callbacks import Journal, Leg
from train.training_cases import Cases
from vrt_lite.errors import UsageError

_LOGGED = 2_000
"""The approximate number of lines of a log."""


def supervise(
    recipe: Supervised,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    recipe_all: TrainingRecipe,
    traces: Sequence[Trace] | None = None,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the model in `start` and write it to RUN/model. Returns False if the leg's `minutes` ended first.

    It learns the scripts of the cases, or `traces` of them. A checkpoint is written `every` so many minutes and at the
    end of a leg, and the next call continues from it. Raises UsageError for a batch that the processes cannot share.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    replied = RepliedCases(cases, traces)
    numbers = order_cases(len(replied), recipe, seed=recipe_all.model.seed)
    steps = len(numbers) // (recipe.batch * recipe.accumulation)
    options = SFTConfig(
        **arguments(recipe_all, run=run, steps=steps, on_processor=True),
        **_schedule(recipe, recipe_all, steps=steps),
        **checkpointing(recipe_all),
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
    )
    model, tokenizer = load(recipe_all, start, trainable=True)
    if not recipe.tower_share:
        _freeze_tower(model)
    leg = Leg(minutes, model=model, every=every, began=began)
    documents = documents_of(start, model)
    trainer = _SupervisedTrainer(
        model,
        args=options,
        train_dataset=Dataset.from_dict({"case": numbers}),
        data_collator=ReplyCollator(replied, tokenizer, recipe_all.profile, orders=1 if traces else recipe.orders),
        processing_class=processing_class(documents),
        callbacks=[leg, Journal(run / LOG, samples_a_step=recipe.batch * recipe.accumulation)],
    )
    trainer.documents, trainer.recipe = documents, recipe
    return trainer.complete(leg)


def _freeze_tower(model: Any) -> None:
    """Skip the tower's gradients, and those through it."""
    for weight in (weight for name, weight in model.named_parameters() if _in_tower(name)):
        weight.requires_grad_(False)


def _in_tower(name: str) -> bool:
    """Whether a weight of this name is in the vision tower."""
    return "visual." in name


def order_cases(count: int, recipe: Supervised, *, seed: int) -> NDArray[np.int64]:
    """Choose the order in which `count` cases are learned: whole steps of shuffled epochs of at most `samples` cases.

    An incomplete last step is filled from the next epoch. Raises UsageError if there is no case.
    """
    if not count:
        raise UsageError("There is nothing to learn from: the cases have no script, or there are no traces.")
    used, step = min(count, recipe.samples), recipe.batch * recipe.accumulation
    total = -(-used * recipe.epochs // step) * step
    shuffled = [np.random.default_rng([seed, epoch]).permutation(used) for epoch in range(-(-total // used))]
    return np.concatenate(shuffled)[:total]


def _schedule(recipe: Supervised, recipe_all: TrainingRecipe, *, steps: int) -> dict[str, Any]:
    """Return the Trainer's options for a stage of `steps` steps that learns in the given order."""
    batch, accumulation = split_step(recipe, count_processes())
    return {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "num_train_epochs": 1,
        "max_steps": steps,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": recipe.warmup,
        "weight_decay": recipe.weight_decay,
        "adam_beta1": recipe.betas[0],
        "adam_beta2": recipe.betas[1],
        "train_sampling_strategy": "sequential",
        "dataloader_num_workers": recipe_all.data.workers,
        "remove_unused_columns": False,
        "logging_steps": max(1, steps // _LOGGED),
    }


class _SupervisedTrainer(Resumable, SFTTrainer):
    """TRL's trainer, with a correct mean loss over micro-batches, and a learning rate of the tower's own."""

    recipe: Supervised

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Otherwise the Trainer would give every micro-batch the same weight, for any number of learned tokens.
        self.model_accepts_loss_kwargs = True

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Compute TRL's loss without a padding mask: padding is on the right, where causal attention ignores it."""
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
        return super().compute_loss(model, inputs, *args, **options)

    def create_optimizer(self: Any, model: Any = None) -> Any:
        """Create the Trainer's optimizer, with the tower's weights in groups of their own."""
        share = self.recipe.tower_share
        if self.optimizer is not None or share == 1:
            return super().create_optimizer(model)
        optimizer = super().create_optimizer(model)
        names = {id(weight): name for name, weight in (self.model if model is None else model).named_parameters()}
        split: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            parts: dict[bool, list[torch.Tensor]] = {}
            for weight in group["params"]:
                parts.setdefault(_in_tower(names[id(weight)]), []).append(weight)
            for tower, weights in parts.items():
                split.append({**group, "params": weights, "lr": group["lr"] * (share if tower else 1)})
        optimizer.param_groups = split
        return optimizer
