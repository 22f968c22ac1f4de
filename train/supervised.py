"""Cold start and refinement: TRL's SFTTrainer on the replies of a perfect judge or of a sampled trace.

A sample is one case. Its replies are replayed through the judge's own loop, which gives the same turns as inference.
Only the replies have a loss: one mean over all their tokens in a step, for any number of micro-batches and processes.
With `words` the tower's tokens also learn which words the replies say about each clip (`train.line_words`).
The order of the cases depends on recipe and seed, so that a resumed run does not render the cases that it has learned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from trl import SFTConfig, SFTTrainer

from train.checkpoints import MODEL, Resumable, arguments, checkpointing, documents_of, processing_class
from train.curriculum import Curriculum, Syllabus
from train.lesson_rows import SHORT, LessonCollator, RepliedCases
from train.line_words import INPUTS, WordStatistics, batch_loss, count_words
from train.muon import Muon
from train.policy.model import load
from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rollout import rollouts
from train.policy.writing import Policy
from train.recipe import Supervised, TrainingRecipe
from train.step_sizes import count_processes, split_step
from train.token_shifts import SHIFTS, TokenShifter
from train.traces import LOG, Trace
from train.trainer_callbacks import Journal, Leg
from train.training_cases import Cases, TrainingCase
from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile

_EXAMINATION_BATCH = 16
_SNAPSHOT_TOKENS, _PATCH_TOKENS = 48, 28
"""The approximate numbers of learned tokens of a snapshot drill and of a patch drill. Losses are divided by them."""
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
    curriculum: Curriculum | None = None,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the model in `start` and write it to RUN/model. Returns False if the leg's `minutes` ended first.

    It learns the scripts of the cases, or `traces` of them, or the lessons of a `curriculum`. A checkpoint is written
    `every` so many minutes and at the end of a leg, and the next call continues from it. Raises UsageError for a batch
    that the processes cannot share.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    lessons = RepliedCases(cases, traces)
    numbers = order_cases(len(lessons), recipe, seed=recipe_all.model.seed)
    steps = len(numbers) // (recipe.batch * recipe.accumulation)
    options = SFTConfig(
        **arguments(recipe_all, run=run, steps=steps, on_processor=True),
        **schedule(recipe, recipe_all, steps=steps),
        **checkpointing(recipe_all),
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
    )
    model, tokenizer = load(recipe_all, start, trainable=True)
    if not recipe.tower_share:
        _freeze_tower(model)
    leg = Leg(minutes, model=model, every=every, began=began)
    callbacks: list[Any] = [leg, Journal(run / LOG, samples_a_step=recipe.batch * recipe.accumulation)]
    syllabus = None
    if curriculum:
        syllabus = curriculum.syllabus(len(numbers), recipe)
        callbacks.append(
            curriculum.examination(recipe, syllabus, partial(_judge_overall, tokenizer, recipe_all.profile), run)
        )
        lessons = RepliedCases(curriculum.lessons(numbers.tolist()), None)
        numbers = np.arange(len(lessons))
    documents = documents_of(start, model)
    once = replace(recipe, orders=1, drills=0, words=0.0, snapshots=0, patches=0, shift=0.0) if traces else recipe
    drawn = curriculum.by_lesson if curriculum else [cases]
    statistics = count_words(drawn, recipe_all.profile, tokenizer) if once.words else None
    trainer = _SupervisedTrainer(
        model,
        args=options,
        train_dataset=Dataset.from_dict({"lesson": numbers}),
        data_collator=LessonCollator(lessons, tokenizer, recipe_all, once, statistics),
        processing_class=processing_class(documents),
        callbacks=callbacks,
    )
    trainer.documents, trainer.recipe, trainer.syllabus, trainer.statistics = documents, recipe, syllabus, statistics
    trainer.shifter = TokenShifter(model, tokenizer, gain=recipe_all.pretrain.gain) if once.shift else None
    return trainer.complete(leg)


def _freeze_tower(model: Any) -> None:
    """Skip the tower's gradients, and those through it."""
    for weight in (weight for name, weight in model.named_parameters() if _kind(name, weight)[0]):
        weight.requires_grad_(False)


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


def schedule(recipe: Supervised, recipe_all: TrainingRecipe, *, steps: int) -> dict[str, Any]:
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


def _judge_overall(
    tokenizer: PolicyTokenizer, profile: Profile, model: Any, cases: Sequence[TrainingCase]
) -> list[bool]:
    """Judge cases with the model. Returns for each case whether the verdict has the right overall winner."""
    policy = Policy(model, tokenizer, profile, batch=_EXAMINATION_BATCH)
    found: dict[str, bool] = {}
    for rollout in rollouts(policy, cases, profile, samples=1, temperature=0.0, seed=0):
        verdict = rollout.trial.verdict if rollout.trial else None
        found[rollout.case.key] = verdict is not None and verdict.preferences["OA"].winner == rollout.case.labels["OA"]
    return [found[case.key] for case in cases]


class OrderedTrainer(Resumable):
    """A mixin before a Trainer: it learns in a given order, with the learning rates of `recipe`.

    The loss of a step is one mean. The tower has its own rate, and so do the matrices that Muon updates.
    """

    recipe: Supervised
    syllabus: Syllabus | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Otherwise the Trainer would give every micro-batch the same weight, for any number of learned tokens.
        self.model_accepts_loss_kwargs = True

    def _get_train_sampler(self: Any, *args: Any, **options: Any) -> Any:
        return self.syllabus or super()._get_train_sampler(*args, **options)  # type: ignore[misc]

    def create_optimizer(self: Any, model: Any = None) -> Any:
        """Create the Trainer's optimizer, with each group split by learning rate."""
        recipe: Supervised = self.recipe
        if self.optimizer is not None or (recipe.muon == 0 and recipe.tower_share == 1):
            return super().create_optimizer(model)  # type: ignore[misc]
        if recipe.muon:
            if self.is_fsdp_enabled or self.is_deepspeed_enabled:
                raise UsageError("muon needs whole matrices: remove it from a recipe for FSDP or DeepSpeed.")
            self.optimizer_cls_and_kwargs = (Muon, self.get_optimizer_cls_and_kwargs(self.args)[1])
        optimizer = super().create_optimizer(model)  # type: ignore[misc]
        names = {id(weight): name for name, weight in (self.model if model is None else model).named_parameters()}
        split: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            kinds: dict[tuple[bool, bool], list[torch.Tensor]] = {}
            for weight in group["params"]:
                kinds.setdefault(_kind(names[id(weight)], weight), []).append(weight)
            for (tower, matrix), weights in kinds.items():
                muon = matrix and recipe.muon > 0
                rate = (recipe.muon if muon else recipe.learning_rate) * (recipe.tower_share if tower else 1)
                split.append({**group, "params": weights, "lr": rate, "muon": muon})
        optimizer.param_groups = split
        return optimizer


def _kind(name: str, weight: torch.Tensor) -> tuple[bool, bool]:
    """Return whether a weight is in the tower, and whether it is a layer's matrix (not an embedding)."""
    return "visual." in name, weight.ndim == 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight"))


class _SupervisedTrainer(OrderedTrainer, SFTTrainer):
    """TRL's trainer, with a correct mean loss over micro-batches, and the loss of words."""

    statistics: WordStatistics | None = None
    shifter: TokenShifter | None = None

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Compute TRL's loss without a padding mask: padding is on the right, where causal attention ignores it."""
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
        words = {name: inputs.pop(name) for name in INPUTS if name in inputs}
        short = {name.removeprefix(SHORT): inputs.pop(name) for name in [*inputs] if name.startswith(SHORT)}
        self._take_shifts(inputs)
        found = self._compute_with_words(model, inputs, words, *args, **options)
        if not short:
            return found
        recipe = self.recipe
        tokens = _SNAPSHOT_TOKENS * recipe.snapshots + _PATCH_TOKENS * recipe.patches
        count = tokens * recipe.batch * recipe.accumulation / self.accelerator.num_processes
        self._take_shifts(short)
        extra = self.accelerator.unwrap_model(model)(**short, use_cache=False, num_items_in_batch=count).loss
        return (found[0] + extra, *found[1:]) if isinstance(found, tuple) else found + extra

    def _take_shifts(self, inputs: dict[str, Any]) -> None:
        """Take the shifts out of the inputs of the next forward, for the hook that shifts its tokens."""
        shifts = [inputs.pop(name) for name in SHIFTS if name in inputs]
        if self.shifter:
            self.shifter.waiting = shifts

    def _compute_with_words(
        self, model: Any, inputs: dict[str, Any], words: dict[str, torch.Tensor], *args: Any, **options: Any
    ) -> Any:
        """Compute TRL's loss, and the loss of words of the videos in `inputs`."""
        if not (words and self.statistics):
            return super().compute_loss(model, inputs, *args, **options)
        plain = self.accelerator.unwrap_model(model)
        seen: list[torch.Tensor] = []
        hook = plain.model.visual.register_forward_hook(lambda _, __, out: seen.append(out.pooler_output))
        try:
            found = super().compute_loss(model, inputs, *args, **options)
        finally:
            hook.remove()
        # The text model's word vectors stay: only the tower follows them. Videos are embedded last.
        vectors = plain.get_input_embeddings().weight.detach()[self.statistics.word_ids].float()
        odds = self.statistics.odds.to(vectors.device)
        named = batch_loss(seen[-1], vectors, odds, inputs["video_grid_thw"], words)
        # DDP takes the mean of the processes' losses. So the step's loss is a mean over its pairs.
        share = self.recipe.words * self.accelerator.num_processes / (self.recipe.batch * self.recipe.accumulation)
        loss, *others = found if isinstance(found, tuple) else (found,)
        loss = loss + share * named
        return (loss, *others) if others else loss
