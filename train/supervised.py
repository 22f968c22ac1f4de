"""Cold start and refinement: TRL's SFTTrainer on the turns that a perfect judge, or a sampled trace, wrote.

A sample is one case: its replies are played through the judge's own loop, which gives the turns as inference has
them; the loss is on the replies alone, and one mean over all their tokens in a step, however these are spread over
micro-batches and processes. What is learned in which step follows from recipe and seed, so that a resumed run goes on
where it was without rendering what it has seen. Knows TRL; refuses to know what a case shows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from trl import SFTConfig, SFTTrainer

from train.cases import Case, Cases, Exchanged
from train.checkpoints import MODEL, Journal, Leg, Resumable, arguments, checkpointing, documents_of, processing_class
from train.curriculum import Curriculum, Syllabus
from train.muon import Muon
from train.policy.model import load
from train.policy.rendering import Collator, Rendered, Renderer, segments
from train.policy.rollout import rollouts
from train.policy.tokenizer import PAD, Tokenizer
from train.policy.writing import Policy
from train.recipe import Recipe, Supervised
from train.traces import LOG, Trace, replay
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated

_ASKED_AT_ONCE = 16
_LOGGED = 2_000
"""About as many steps as a log has lines."""


def supervise(
    recipe: Supervised,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    recipe_all: Recipe,
    traces: Sequence[Trace] | None = None,
    curriculum: Curriculum | None = None,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the model in `start` into RUN/model; True when it is there, False when the leg's `minutes` ended first.

    Learned are the cases' scripts, or `traces` of them, or a `curriculum`'s lessons instead. The next call goes on from
    the last checkpoint, made `every` some minutes and at a leg's end. Raises UsageError for a batch that the processes
    cannot share.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    lessons = _Lessons(cases, traces)
    numbers = order(len(lessons), recipe, seed=recipe_all.model.seed)
    steps = len(numbers) // (recipe.batch * recipe.accumulation)
    options = SFTConfig(
        **arguments(recipe_all, run=run, steps=steps, on_processor=True),
        **schedule(recipe, recipe_all, steps=steps),
        **checkpointing(recipe_all),
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
    )
    model, tokenizer = load(recipe_all, start, trainable=True)
    if not recipe.tower_share:  # then nothing is reckoned back through the tower either
        for weight in (weight for name, weight in model.named_parameters() if _kind(name, weight)[0]):
            weight.requires_grad_(False)
    leg = Leg(minutes, model=model, every=every, began=began)
    step = recipe.batch * recipe.accumulation
    callbacks: list[Any] = [leg, Journal(run / LOG, samples_a_step=step)]
    syllabus = None
    if curriculum:
        syllabus = curriculum.syllabus(len(numbers), recipe)
        callbacks.append(
            curriculum.examination(recipe, syllabus, partial(_overall, tokenizer, recipe_all.profile), run)
        )
        lessons = _Lessons(curriculum.lessons(numbers), None)
        numbers = np.arange(len(lessons))
    documents = documents_of(start, model)
    trainer = _Tutor(
        model,
        args=options,
        train_dataset=Dataset.from_dict({"lesson": numbers}),
        data_collator=_Teacher(lessons, tokenizer, recipe_all.profile, orders=1 if traces else recipe.orders),
        processing_class=processing_class(documents),
        callbacks=callbacks,
    )
    trainer.documents, trainer.recipe, trainer.syllabus = documents, recipe, syllabus
    return trainer.complete(leg)


def order(count: int, recipe: Supervised, *, seed: int) -> NDArray[np.int64]:
    """Which of `count` lessons is learned when: whole steps of shuffled epochs, at most `samples` different lessons.

    A last step that the epochs leave short is filled up from the next one. UsageError if there is no lesson.
    """
    if not count:
        raise UsageError("There is nothing to learn from: the cases have no script, or there are no traces.")
    used, step = min(count, recipe.samples), recipe.batch * recipe.accumulation
    total = -(-used * recipe.epochs // step) * step
    shuffled = [np.random.default_rng([seed, epoch]).permutation(used) for epoch in range(-(-total // used))]
    return np.concatenate(shuffled)[:total]


def schedule(recipe: Supervised, recipe_all: Recipe, *, steps: int) -> dict[str, Any]:
    """The Trainer's options of a stage of `steps` that learns in the given order: none of its data preparation."""
    batch, accumulation = _shared(recipe, int(os.environ.get("WORLD_SIZE", "1")))
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


def _overall(tokenizer: Tokenizer, profile: Profile, model: Any, cases: Sequence[Case]) -> list[bool]:
    """Of each case: whether the model's own verdict names the overall winner."""
    policy = Policy(model, tokenizer, profile, batch=_ASKED_AT_ONCE)
    found: dict[str, bool] = {}
    for rollout in rollouts(policy, cases, profile, samples=1, temperature=0.0, seed=0):
        verdict = rollout.trial.verdict if rollout.trial else None
        found[rollout.case.key] = verdict is not None and verdict.preferences["OA"].winner == rollout.case.labels["OA"]
    return [found[case.key] for case in cases]


def render(
    case: Case, replies: Sequence[str], renderer: Renderer, profile: Profile, *, orders: int = 1
) -> list[Rendered]:
    """A case with what was written about it, as the model reads it: a row for each context that was written in.

    With `orders` 2 the same pictures follow in the other order, with the script of that.
    """
    with case.open(profile) as frames:
        rows = _rows(case, replies, renderer, profile, frames)
        if orders > 1 and case.exchanged:
            other = case.exchanged()
            rows += _rows(other, other.script, renderer, profile, Exchanged(frames))
    return rows


def _rows(
    case: Case, replies: Sequence[str], renderer: Renderer, profile: Profile, frames: FrameStore
) -> list[Rendered]:
    visible, _ = replay(case, replies, profile)
    told = segments(visible, [Generated(reply) for reply in replies[: len(visible)]])
    return [renderer.render(segment, frames) for segment in told]


class _Lessons:
    """A case and its replies, by number."""

    def __init__(self, cases: Cases, traces: Sequence[Trace] | None) -> None:
        self._cases, self._traces = cases, traces
        self._place = {} if traces is None else {cases[i].key: i for i in range(len(cases))}
        if traces and (unknown := next((t.key for t in traces if t.key not in self._place), "")):
            raise UsageError(
                f"Trace {unknown} is of none of the {len(cases)} cases: give those that it was sampled from."
            )

    def __len__(self) -> int:
        return len(self._cases if self._traces is None else self._traces)

    def __getitem__(self, number: int) -> tuple[Case, tuple[str, ...]]:
        if self._traces is None:
            case = self._cases[number]
            return case, case.script
        trace = self._traces[number]
        return self._cases[self._place[trace.key]], trace.replies


class _Teacher:
    """The collator: lessons are rendered where they are batched, so that a worker sends bytes, and none is skipped."""

    def __init__(self, lessons: _Lessons, tokenizer: Tokenizer, profile: Profile, *, orders: int) -> None:
        self._lessons, self._profile, self._orders = lessons, profile, orders
        self._renderer, self._collate = Renderer(tokenizer, profile), Collator(tokenizer.id(PAD))

    def __call__(self, rows: Sequence[Mapping[str, int]]) -> dict[str, torch.Tensor]:
        rendered: list[Rendered] = []
        for row in rows:
            case, replies = self._lessons[row["lesson"]]
            rendered += render(case, replies, self._renderer, self._profile, orders=self._orders)
        return self._collate(rendered)


class Tutor(Resumable):
    """Mixed in before a Trainer that learns in a given order, at the rates of `recipe`.

    A step's loss is one mean; the tower has a rate of its own, and so have matrices that Muon teaches.
    """

    recipe: Supervised
    syllabus: Syllabus | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The class says no, and the Trainer would then weigh every micro-batch alike, however much of it is learned.
        self.model_accepts_loss_kwargs = True

    def _get_train_sampler(self: Any, *args: Any, **options: Any) -> Any:
        return self.syllabus or super()._get_train_sampler(*args, **options)  # type: ignore[misc]

    def create_optimizer(self: Any, model: Any = None) -> Any:
        """As the Trainer has it, each of its groups split by what has a rate of its own."""
        recipe: Supervised = self.recipe
        if self.optimizer is not None or (recipe.muon == 0 and recipe.tower_share == 1):
            return super().create_optimizer(model)  # type: ignore[misc]
        if recipe.muon:
            if self.is_fsdp_enabled or self.is_deepspeed_enabled:
                raise UsageError("muon needs whole matrices: leave it out of a recipe for FSDP or DeepSpeed.")
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
    """Whether a weight is of the tower, and whether it is a layer's matrix: none that words are looked up in."""
    return "visual." in name, weight.ndim == 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight"))


class _Tutor(Tutor, SFTTrainer):
    """TRL's trainer, with a loss that is right over micro-batches."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """As TRL has it. Padding stands on the right, where nothing before it looks: a mask would only cost time."""
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
        return super().compute_loss(model, inputs, *args, **options)


def _shared(recipe: Supervised, processes: int) -> tuple[int, int]:
    """Batch and accumulation of each process, so that a step learns the same whatever their number."""
    if recipe.accumulation % processes == 0:
        return recipe.batch, recipe.accumulation // processes
    if recipe.batch % processes == 0:
        return recipe.batch // processes, recipe.accumulation
    raise UsageError(
        f"{processes} processes cannot share a step of batch = {recipe.batch} and accumulation = "
        f"{recipe.accumulation}: one of the two must be a multiple of {processes}."
    )
