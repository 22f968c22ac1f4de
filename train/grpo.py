"""GRPO on TRL: groups of rollouts by the judge's own loop, VR-Thinker's reward, a step of their gradients.

TRL's trainer only ever appends to one conversation, and leaves videos out of its training forward. Here a row is a
segment: a stretch of rounds between two changes of what the judge sees. TRL keeps its loss (`_compute_loss`: clipped
ratio, plain KL, one weight a token over the whole batch), its optimizer and its processes.

One optimizer step is `queries` groups of `group` rollouts. A group whose accuracy is all 0 or all 1 is dropped and
another query is drawn in its place, at most `resamples` times. Which queries a step draws and what is sampled for them
follows from recipe, step and case, never from the process: two processes take the same step as one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from train.cases import Cases
from train.checkpoints import MODEL, Journal, Leg, Resumable, arguments, documents_of, processing_class
from train.groups import Group, Row, draw, facts, masked, tokens
from train.policy.model import ADAPTER, load
from train.policy.rendering import Rendered
from train.policy.rollout import Rollout, rollouts
from train.policy.writing import Policy
from train.recipe import Recipe
from train.rewards import group_terms
from train.traces import LOG
from vrt_lite.errors import UsageError

Chunk = dict[str, Any]


def reinforce(
    recipe: Recipe,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the model in `start` into RUN/model; True when it is there, False when the leg's `minutes` ended first.

    The next call goes on from the last checkpoint, made `every` some minutes and at a leg's end. Raises UsageError for
    fewer queries a step than processes, and for models spread by FSDP, which cannot write.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    trainer, leg = prepare(recipe, cases, start=start, run=run, minutes=minutes, every=every, began=began)
    return trainer.complete(leg)


def prepare(
    recipe: Recipe,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    minutes: float | None = None,
    every: float | None = None,
    began: float | None = None,
) -> tuple[Trainer, Leg]:
    """The trainer of a run, before its first step, and what ends its legs."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if recipe.grpo.queries < world:
        raise UsageError(f"grpo.queries is {recipe.grpo.queries}, needs to be at least the processes: {world}.")
    model, tokenizer = load(recipe, start, trainable=True)
    # A new adapter switched off is the model that it adapts; one that training begins with is part of the reference.
    fresh = hasattr(model, "peft_config") and not (Path(start) / ADAPTER).is_file()
    reference = None if fresh or not recipe.grpo.kl else load(recipe, start, trainable=False)[0]
    leg = Leg(minutes, model=model, every=every, began=began)
    documents = documents_of(start, model)
    policy = Policy(model, tokenizer, recipe.profile, precision=recipe.model.precision, batch=recipe.grpo.rollouts)
    trainer = Trainer(
        recipe,
        cases,
        policy,
        reference=reference,
        args=_arguments(recipe, run=run),
        # TRL wants rows to hand out; which queries a step has is decided here.
        train_dataset=Dataset.from_dict({"prompt": [""] * world}),
        processing_class=processing_class(documents),
        callbacks=[leg, Journal(run / LOG, samples_a_step=recipe.grpo.queries * recipe.grpo.group)],
    )
    trainer.documents = documents
    return trainer, leg


class Trainer(Resumable, GRPOTrainer):
    """TRL's trainer with the judge's own rollouts. `reference` is None where the model without its adapter is it."""

    def __init__(self, recipe: Recipe, cases: Cases, policy: Policy, *, reference: Any, **options: Any) -> None:
        super().__init__(model=policy.model, reward_funcs=_scored_with_the_group, **options)
        if self.is_fsdp_enabled:
            raise UsageError("GRPO runs on one GPU, with DDP, or with DeepSpeed: under FSDP a model cannot write.")
        self._recipe, self._cases, self._policy = recipe, cases, policy
        # Set late: TRL would load a reference of its own, by transformers' own classes.
        self.beta = recipe.grpo.kl
        if reference is not None:
            self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One optimizer step's gradients, chunk by chunk; the processes exchange them with the last one."""
        model.train()
        rows, count = self._generate_and_score_completions(inputs)
        total = torch.zeros((), device=self.accelerator.device)
        for number, chunk in enumerate(self._chunks(rows, count), start=1):
            last = number == count
            self.accelerator.gradient_state._set_sync_gradients(last)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, chunk)
                self.accelerator.backward(loss)
            total += loss.detach()
        self._step += 1
        return total

    def _generate_and_score_completions(self, inputs: Any) -> tuple[list[Row], int]:
        """This process's rows of the step, and how many chunks every process makes of its own."""
        checkpointing = self.args.gradient_checkpointing_kwargs
        with unwrap_model_for_generation(
            self.model_wrapped, self.accelerator, gradient_checkpointing_kwargs=checkpointing
        ):
            groups, spare = self._groups(self.state.global_step)
        rows = [row for group in groups for row in group.rows()]
        size = max(self._recipe.grpo.batch, 1)
        count = max(gather_object([max(-(-len(rows) // size), 1)]))
        if not rows:
            # Nothing to learn here: a row without weight keeps this process in step with the others.
            rows = [replace(next(spare.rows()), ended=(), advantage=0.0)]
        return rows, count

    def _groups(self, step: int) -> tuple[list[Group], Group]:
        """The groups that this process learns from in this step, and one that it sampled."""
        how = self._recipe.grpo
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        drawn = draw(len(self._cases), how.queries * (1 + how.resamples), seed=f"{self._recipe.model.seed}/{step}")
        kept: dict[int, Group] = {}
        missing = list(range(how.queries))
        made: dict[int, Group] = {}
        for attempt in range(1 + how.resamples):
            mine = {slot: drawn[attempt * how.queries + i] for i, slot in enumerate(missing) if i % world == rank}
            found = self._sampled(mine, seed=f"{self._recipe.model.seed}/{step}/{attempt}")
            made.update(found)
            kept.update({slot: group for slot, group in found.items() if group.informative})
            if not attempt:
                self._note(found.values())
            taught = set(gather_object(sorted(kept)))
            missing = [slot for slot in range(how.queries) if slot not in taught]
            if not missing:
                break
        self._metrics["train"]["groups"].append(float(how.queries - len(missing)))
        return [kept[slot] for slot in sorted(kept)], next(iter(made.values()))

    def _sampled(self, queries: Mapping[int, int], *, seed: str) -> dict[int, Group]:
        """A group of rollouts for each query, by slot. A query that is drawn twice is two."""
        how = self._recipe.grpo
        found = {slot: self._cases[index] for slot, index in queries.items()}
        cases = [replace(case, key=f"{slot}/{case.key}") for slot, case in found.items()]
        slots = {case.key: slot for case, slot in zip(cases, found, strict=True)}
        by_slot: dict[int, list[Rollout]] = {slot: [] for slot in queries}
        for rollout in rollouts(
            self._policy, cases, self._recipe.profile, samples=how.group, temperature=how.temperature, seed=seed
        ):
            by_slot[slots[rollout.case.key]].append(rollout)
        return {slot: self._group(sorted(made, key=lambda r: r.number)) for slot, made in by_slot.items()}

    def _group(self, made: Sequence[Rollout]) -> Group:
        terms = group_terms([r.rounds for r in made], made[0].case.labels, self._recipe.grpo)
        return Group(tuple(made), tuple(terms))

    def _note(self, groups: Iterable[Group]) -> None:
        """What the policy does before any group is dropped, over all processes, for the log."""
        mine = [told for group in groups for told in map(facts, group.rollouts, group.terms)]
        every: list[dict[str, float]] = gather_object(mine)
        for name in every[0]:
            self._metrics["train"][name].append(fmean(told[name] for told in every))

    def _chunks(self, rows: Sequence[Row], count: int) -> Iterator[Chunk]:
        """`count` chunks of one size; what the rows do not fill is filled up with rows that nothing is learned from."""
        size = max(self._recipe.grpo.batch, 1)
        learned = sum(gather_object([sum(map(tokens, rows))]))
        items = torch.tensor(float(learned), device=self.accelerator.device)
        rendered = self._rendered(rows)
        blank: tuple[Rendered, float] | None = None
        for _ in range(count):
            chunk = list(itertools.islice(rendered, size))
            blank = blank or (masked(chunk[0][0], ()), 0.0)
            yield self._chunk([*chunk, *[blank] * (size - len(chunk))], items)

    def _rendered(self, rows: Sequence[Row]) -> Iterator[tuple[Rendered, float]]:
        """Rows as the model reads them, each with its advantage. A case is open while its rows last."""
        for _, group in itertools.groupby(rows, key=lambda row: row.case.key):
            first = next(group)
            with first.case.open(self._recipe.profile) as frames:
                for row in itertools.chain([first], group):
                    yield masked(self._policy.renderer.render(row.segment, frames), row.ended), row.advantage

    def _chunk(self, rows: Sequence[tuple[Rendered, float]], items: Tensor) -> Chunk:
        """What TRL's loss takes. The first token stands as the prompt; the collated batch goes where pictures would."""
        inputs = self._policy.collated([rendered for rendered, _ in rows])
        ids, mask = inputs["input_ids"], inputs["labels"][:, 1:] != -100
        chunk: Chunk = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": inputs["attention_mask"][:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": mask.long(),
            "advantages": torch.tensor([worth for _, worth in rows], device=ids.device),
            "num_items_in_batch": items,
            "pixel_values": inputs,
        }
        if self.beta:
            with torch.no_grad(), self._reference() as model:
                chunk["ref_per_token_logps"], _ = self._scored(model, inputs)
        return chunk

    @contextlib.contextmanager
    def _reference(self) -> Iterator[Any]:
        """The model that training started from."""
        if self.ref_model is not None:
            yield self.ref_model
            return
        model = self.accelerator.unwrap_model(self.model)
        with model.disable_adapter():
            yield model

    def _scored(self, model: Any, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        with self._policy.autocast():
            return self._policy.logprobs(model, inputs, temperature=self._recipe.grpo.temperature)

    def _get_per_token_logps_and_entropies(
        self, model: Any, *_: Any, pixel_values: Any = None, **__: Any
    ) -> tuple[Tensor, Tensor, None]:
        """TRL's own leaves out videos and positions, and knows no token that is never written."""
        return (*self._scored(model, pixel_values), None)


def _arguments(recipe: Recipe, *, run: Path) -> GRPOConfig:
    """The Trainer's options: TRL's loss, one step a generation, saving left to `checkpoints`."""
    how = recipe.grpo
    return GRPOConfig(
        **arguments(recipe, run=run, steps=how.steps),
        per_device_train_batch_size=how.group,
        gradient_accumulation_steps=1,
        num_generations=how.group,
        max_completion_length=recipe.profile.max_new_tokens,
        max_steps=how.steps,
        learning_rate=how.learning_rate,
        lr_scheduler_type="constant",
        temperature=how.temperature,
        beta=0.0,  # the trainer sets its own, with a reference of its own
        use_bias_correction_kl=False,
        loss_type="dapo",
        activation_checkpointing=recipe.model.gradient_checkpointing,
        logging_steps=1,
    )


def _scored_with_the_group(*_: Any, **__: Any) -> list[float]:
    """Stands where TRL wants a reward of single completions: here a reward is a trace's in its group."""
    raise AssertionError("rewards are a group's")
