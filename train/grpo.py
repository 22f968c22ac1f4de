"""GRPO on TRL: groups of rollouts by the judge's own loop, VR-Thinker's reward, a step of their gradients.

TRL's trainer only ever appends to one conversation, and leaves videos out of its training forward. Here a row is a
segment: a stretch of rounds between two changes of what the judge sees. TRL keeps its loss (`_compute_loss`: clipped
ratio, plain KL, a weight a token), its optimizer and its processes.

One optimizer step is `queries` groups of `group` rollouts, which the policy sampled at most `steps_per_generation` - 1
steps ago (`train.generation`). The loss is the mean over a trajectory's own tokens, in all its segments, and then over
the step's trajectories, however these are spread over chunks and processes: two processes take the same step as one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from train.cases import Cases
from train.checkpoints import MODEL, Journal, Leg, Resumable, arguments, checkpointing, documents_of, processing_class
from train.generation import Batch, generate, read_batches, write_batches
from train.groups import Row, blank, masked
from train.policy.model import ADAPTER, load
from train.policy.rendering import Rendered
from train.policy.writing import Policy
from train.recipe import Recipe
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
        self._batches: dict[int, Batch] = {}
        # Set late: TRL would load a reference of its own, by transformers' own classes.
        self.beta = recipe.grpo.kl
        if reference is not None:
            self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One optimizer step's gradients, chunk by chunk; the processes exchange them with the last one."""
        model.train()
        batch = self._batch()
        chunks, count = self._chunks(self._rows(batch), batch.lengths)
        total = torch.zeros((), device=self.accelerator.device)
        for number, chunk in enumerate(chunks, start=1):
            last = number == count
            self.accelerator.gradient_state._set_sync_gradients(last)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, chunk)
                self.accelerator.backward(loss)
            total += loss.detach()
        self._step += 1
        return total

    def _batch(self) -> Batch:
        """What all processes learn from in this step."""
        step = self.state.global_step
        if step not in self._batches:
            self._batches = self._generated(step)
        batch = self._batches.pop(step)
        told = {
            **batch.facts,
            "groups": len(batch.groups),
            "groups/drawn": batch.drawn,
            "groups/missing": batch.missing,
        }
        for name, value in told.items():
            self._metrics["train"][name].append(float(value))
        return batch

    def _rows(self, batch: Batch) -> list[Row]:
        """This process's share of a step."""
        mine = batch.groups[self.accelerator.process_index :: self.accelerator.num_processes]
        rows = [row for sampled in mine for row in sampled.group(self._cases, self._recipe).rows()]
        # Nothing to learn here: a row without weight keeps this process in step with the others.
        return rows or [blank(self._cases[0], self._recipe.profile)]

    def _generated(self, step: int) -> dict[int, Batch]:
        """What the policy as it is samples for this step, and for those up to its renewal."""
        renewed = max(self._recipe.grpo.steps_per_generation, 1)
        steps = range(step, min(step - step % renewed + renewed, self._recipe.grpo.steps))
        with unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        ):
            return generate(
                self._policy,
                self._cases,
                self._recipe,
                steps,
                process=self.accelerator.process_index,
                processes=self.accelerator.num_processes,
            )

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            write_batches(self._batches, Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._batches = read_batches(Path(checkpoint))

    def _chunks(self, rows: Sequence[Row], lengths: Sequence[int]) -> tuple[Iterator[Chunk], int]:
        """Chunks of one size, as many in each process, and their number. What rows do not fill teaches nothing.

        `lengths` are the tokens of each trajectory of the step, over all processes.
        """
        size = max(self._recipe.grpo.batch, 1)
        count = max(gather_object([-(-len(rows) // size)]))
        return self._filled(rows, count, size, lengths), count

    def _filled(self, rows: Sequence[Row], count: int, size: int, lengths: Sequence[int]) -> Iterator[Chunk]:
        rendered = self._rendered(rows)
        empty: tuple[Rendered, Row] | None = None
        for _ in range(count):
            chunk = list(itertools.islice(rendered, size))
            empty = empty or (masked(chunk[0][0], ()), blank(chunk[0][1].case, self._recipe.profile))
            yield self._chunk([*chunk, *[empty] * (size - len(chunk))], lengths)

    def _rendered(self, rows: Sequence[Row]) -> Iterator[tuple[Rendered, Row]]:
        """Rows as the model reads them. A case is open while its rows last."""
        for _, group in itertools.groupby(rows, key=lambda row: row.case.key):
            first = next(group)
            with first.case.open(self._recipe.profile) as frames:
                for row in itertools.chain([first], group):
                    yield masked(self._policy.renderer.render(row.segment, frames), row.ended), row

    def _chunk(self, rows: Sequence[tuple[Rendered, Row]], lengths: Sequence[int]) -> Chunk:
        """What TRL's loss takes. The first token stands as the prompt; the collated batch goes where pictures would.

        TRL divides the masked sum by the step's tokens. In the mask a token weighs the trajectories' mean length over
        the length T of its own: what comes out is the mean over trajectories of sums that are divided by T.
        """
        inputs = self._policy.collated([rendered for rendered, _ in rows])
        ids, drawn = inputs["input_ids"], inputs["labels"][:, 1:] != -100
        device, mean = ids.device, sum(lengths) / max(len(lengths), 1)
        old = torch.zeros(drawn.shape, device=device)
        old[drawn] = torch.tensor([logprob for _, row in rows for logprob in row.logprobs], device=device)
        chunk: Chunk = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": inputs["attention_mask"][:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": drawn * torch.tensor([[mean * row.share] for _, row in rows], device=device),
            "old_per_token_logps": old,
            "advantages": torch.tensor([row.advantage for _, row in rows], device=device),
            "num_items_in_batch": torch.tensor(float(sum(lengths)), device=device),
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
        **checkpointing(recipe),
        per_device_train_batch_size=how.group,
        gradient_accumulation_steps=1,
        num_generations=how.group,
        max_completion_length=recipe.profile.max_new_tokens,
        max_steps=how.steps,
        learning_rate=how.learning_rate,
        lr_scheduler_type="constant",
        temperature=how.temperature,
        epsilon=how.clip,
        beta=0.0,  # the trainer sets its own, with a reference of its own
        use_bias_correction_kl=False,
        loss_type="dapo",
        logging_steps=1,
    )


def _scored_with_the_group(*_: Any, **__: Any) -> list[float]:
    """Stands where TRL wants a reward of single completions: here a reward is a trace's in its group."""
    raise AssertionError("rewards are a group's")
