"""Cold start and refinement: a model learns written replies, or those of sampled traces.

A sample is one case. Its replies are replayed through the judge's own loop, which gives the same turns as inference.
Only the replies have a loss: one mean over all their tokens in a step, for any number of batches and processes. The
order of the cases depends on recipe and seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from train.data import Cases, TrainingCase, replay
from train.model import load
from train.policy_tokenizer import PAD, PolicyTokenizer
from train.recipe import Supervised, TrainingRecipe
from train.rendering import IGNORED, Collator, Rendered, Renderer, segments
from train.trainer import MODEL, JudgeTrainer, count_processes, options_of
from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated


def supervise(how: Supervised, cases: Cases, *, recipe: TrainingRecipe, start: Path | str, run: Path) -> None:
    """Train the model in `start` on the scripts of the cases, and write it to RUN/model, unless that is there.

    A killed run goes on from its last checkpoint. Raises UsageError for a step that the processes cannot share.
    """
    if not (run / MODEL).is_dir():
        prepare(how, cases, recipe=recipe, start=start, run=run).complete()


def prepare(
    how: Supervised, cases: Cases, *, recipe: TrainingRecipe, start: Path | str, run: Path
) -> SupervisedTrainer:
    """Create the trainer of a run. Raises UsageError for a step that the processes cannot share."""
    processes = count_processes()
    batches, rest = divmod(how.step, how.batch * processes)
    if rest:
        raise UsageError(
            f"{processes} process(es) cannot share a step of {how.step} samples, {how.batch} at once: choose step as a "
            f"multiple of {how.batch * processes}."
        )
    order = order_cases(len(cases), how, seed=recipe.model.seed)
    options = options_of(
        recipe,
        run,
        per_device_train_batch_size=how.batch,
        gradient_accumulation_steps=batches,
        max_steps=len(order) // how.step,
        learning_rate=how.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=how.warmup,
        weight_decay=how.weight_decay,
        train_sampling_strategy="sequential",
        dataloader_num_workers=recipe.data.workers,
    )
    model, tokenizer = load(start, recipe.model, trainable=True)
    trainer = SupervisedTrainer(
        model,
        start,
        recipe.profile,
        args=options,
        train_dataset=[cases[number] for number in order],
        data_collator=ReplyCollator(tokenizer, recipe.profile),
    )
    trainer.model_accepts_loss_kwargs = True  # so that the trainer counts a step's tokens
    return trainer


class SupervisedTrainer(JudgeTrainer):
    """Learns one mean over the tokens of all replies of a step. No logits are computed of other tokens."""

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """Compute the part of a batch in the loss of its step, times the processes, whose mean is taken."""
        labels = inputs.pop("labels")[:, 1:]
        columns = (labels != IGNORED).any(0).nonzero()[:, 0]
        logits = model(**inputs, use_cache=False, logits_to_keep=columns).logits.float()
        total = functional.cross_entropy(
            logits.flatten(0, 1), labels[:, columns].flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total / num_items_in_batch * self.accelerator.num_processes


def order_cases(count: int, how: Supervised, *, seed: int) -> NDArray[np.int64]:
    """Choose the order in which `count` cases are learned: whole steps of shuffled epochs of at most `samples` cases.

    An incomplete last step is filled from the next epoch. Raises UsageError if there is no case.
    """
    if not count:
        raise UsageError("There is nothing to learn from: no case has a trace.")
    used = min(count, how.samples)
    total = -(-used * how.epochs // how.step) * how.step
    shuffled = [np.random.default_rng([seed, epoch]).permutation(used) for epoch in range(-(-total // used))]
    return np.concatenate(shuffled)[:total]


def render(case: TrainingCase, renderer: Renderer, profile: Profile) -> list[Rendered]:
    """Render a case with its script: one row for each context in which replies were written."""
    visible, _ = replay(case, case.script, profile)
    replies = [Generated(reply) for reply in case.script[: len(visible)]]
    with case.open(profile) as frames:
        return [renderer.render(segment, frames) for segment in segments(visible, replies)]


class ReplyCollator:
    """The collator. It renders the cases, so that they are rendered in the data loader's workers."""

    def __init__(self, tokenizer: PolicyTokenizer, profile: Profile) -> None:
        self._profile, self._renderer = profile, Renderer(tokenizer, profile)
        self._collate = Collator(tokenizer.id(PAD))

    def __call__(self, cases: Sequence[TrainingCase]) -> dict[str, torch.Tensor]:
        """Build the batch of these cases."""
        return self._collate([row for case in cases for row in render(case, self._renderer, self._profile)])
