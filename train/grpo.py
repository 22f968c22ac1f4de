"""GRPO on TRL: groups of rollouts in the judge's own loop, with VR-Thinker's reward.

TRL's trainer can only append to one conversation, and its training forward has no videos. Here a row is a segment:
the rounds between two changes of what the judge sees. TRL's loss (`_compute_loss`: clipped ratio, plain KL, a weight
for each token), optimizer and handling of processes stay.

One optimizer step learns from `queries` groups of `group` rollouts, which the policy sampled at most
`steps_per_generation` - 1 steps ago (`train.generation`). The loss is the mean over a trajectory's tokens in all its
segments, and then over the step's trajectories. It does not depend on chunks or on the number of processes.
"""

from __future__ import annotations

import contextlib
import itertools
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

from train.checkpoints import MODEL, Resumable, arguments, checkpointing, documents_of, processing_class
from train.generation import Batch, generate, read_batches, write_batches
from train.policy.model import ADAPTER, load
from train.policy.rendering import Rendered
from train.policy.writing import Policy
from train.recipe import TrainingRecipe
from train.rollout_groups import TrainingRow, empty_row, mask_ends
from train.step_sizes import count_processes
from train.traces import LOG
from train.trainer_callbacks import Journal, Leg
from train.training_cases import Cases
from vrt_lite.errors import UsageError

Chunk = dict[str, Any]


def reinforce(
    recipe: TrainingRecipe,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the model in `start` and write it to RUN/model. Returns False if the leg's `minutes` ended first.

    A checkpoint is written `every` so many minutes and at the end of a leg, and the next call continues from it. Raises
    UsageError for fewer queries in a step than processes, and for models sharded by FSDP, which cannot write replies.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    trainer, leg = prepare(recipe, cases, start=start, run=run, minutes=minutes, every=every, began=began)
    return trainer.complete(leg)


def prepare(
    recipe: TrainingRecipe,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    minutes: float | None = None,
    every: float | None = None,
    began: float | None = None,
) -> tuple[Trainer, Leg]:
    """Create the trainer of a run, and the callback that ends its legs."""
    world = count_processes()
    if recipe.grpo.queries < world:
        raise UsageError(f"grpo.queries is {recipe.grpo.queries}, but must be at least the processes: {world}.")
    model, tokenizer = load(recipe, start, trainable=True)
    # With a new adapter, the reference is the model without it. An adapter in `start` is a part of the reference.
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
        # TRL needs a data set, but `generate` chooses the queries of a step.
        train_dataset=Dataset.from_dict({"prompt": [""] * world}),
        processing_class=processing_class(documents),
        callbacks=[leg, Journal(run / LOG, samples_a_step=recipe.grpo.queries * recipe.grpo.group)],
    )
    trainer.documents = documents
    return trainer, leg


class Trainer(Resumable, GRPOTrainer):
    """TRL's trainer with the judge's own rollouts. If `reference` is None, it is the model without its adapter."""

    def __init__(self, recipe: TrainingRecipe, cases: Cases, policy: Policy, *, reference: Any, **options: Any) -> None:
        super().__init__(model=policy.model, reward_funcs=_unused_reward, **options)
        if self.is_fsdp_enabled:
            raise UsageError("GRPO runs on one GPU, with DDP, or with DeepSpeed: under FSDP a model cannot write.")
        self._recipe, self._cases, self._policy = recipe, cases, policy
        self._batches: dict[int, Batch] = {}
        # Set after TRL's constructor, which would otherwise load its own reference.
        self.beta = recipe.grpo.kl
        if reference is not None:
            self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute one optimizer step's gradients, chunk by chunk. The processes exchange them in the last chunk."""
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
        """Return the batch that all processes learn from in this step."""
        step = self.state.global_step
        if step not in self._batches:
            self._batches = self._generate(step)
        batch = self._batches.pop(step)
        figures = {
            **batch.facts,
            "groups": len(batch.groups),
            "groups/drawn": batch.drawn,
            "groups/missing": batch.missing,
        }
        for name, value in figures.items():
            self._metrics["train"][name].append(float(value))
        return batch

    def _rows(self, batch: Batch) -> list[TrainingRow]:
        """Return this process's rows of a step."""
        mine = batch.groups[self.accelerator.process_index :: self.accelerator.num_processes]
        rows = [row for sampled in mine for row in sampled.group(self._cases, self._recipe).rows()]
        # A process without rows takes an empty row, because all processes must run the same number of chunks.
        return rows or [empty_row(self._cases[0], self._recipe.profile)]

    def _generate(self, step: int) -> dict[int, Batch]:
        """Sample batches with the current policy, for this step and the steps before the next sampling."""
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

    def _chunks(self, rows: Sequence[TrainingRow], lengths: Sequence[int]) -> tuple[Iterator[Chunk], int]:
        """Return chunks of equal size, and their number, which is the same in each process. Empty rows fill them.

        `lengths` are the tokens of each trajectory of the step, over all processes.
        """
        size = max(self._recipe.grpo.batch, 1)
        count = max(gather_object([-(-len(rows) // size)]))
        return self._fill_chunks(rows, count, size, lengths), count

    def _fill_chunks(
        self, rows: Sequence[TrainingRow], count: int, size: int, lengths: Sequence[int]
    ) -> Iterator[Chunk]:
        rendered = self._render_rows(rows)
        empty: tuple[Rendered, TrainingRow] | None = None
        for _ in range(count):
            chunk = list(itertools.islice(rendered, size))
            empty = empty or (mask_ends(chunk[0][0], ()), empty_row(chunk[0][1].case, self._recipe.profile))
            yield self._chunk([*chunk, *[empty] * (size - len(chunk))], lengths)

    def _render_rows(self, rows: Sequence[TrainingRow]) -> Iterator[tuple[Rendered, TrainingRow]]:
        """Render rows. A case is open until its last row is rendered."""
        for _, group in itertools.groupby(rows, key=lambda row: row.case.key):
            first = next(group)
            with first.case.open(self._recipe.profile) as frames:
                for row in itertools.chain([first], group):
                    yield mask_ends(self._policy.renderer.render(row.segment, frames), row.ended), row

    def _chunk(self, rows: Sequence[tuple[Rendered, TrainingRow]], lengths: Sequence[int]) -> Chunk:
        """Build the input of TRL's loss. The first token is the prompt; the collated batch is under "pixel_values".

        TRL divides the masked sum by the step's tokens. In the mask, the weight of a token is the mean length of all
        trajectories over the length T of its own. So the loss is the mean over trajectories of sums divided by T.
        """
        inputs = self._policy.collate([rendered for rendered, _ in rows])
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
                chunk["ref_per_token_logps"], _ = self._score(model, inputs)
        return chunk

    @contextlib.contextmanager
    def _reference(self) -> Iterator[Any]:
        """Give the model that training started from."""
        if self.ref_model is not None:
            yield self.ref_model
            return
        model = self.accelerator.unwrap_model(self.model)
        with model.disable_adapter():
            yield model

    def _score(self, model: Any, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        with self._policy.autocast():
            return self._policy.logprobs(model, inputs, temperature=self._recipe.grpo.temperature)

    def _get_per_token_logps_and_entropies(
        self, model: Any, *_: Any, pixel_values: Any = None, **__: Any
    ) -> tuple[Tensor, Tensor, None]:
        """Replace TRL's method, which has no videos, positions or tokens that are never written."""
        return (*self._score(model, pixel_values), None)


def _arguments(recipe: TrainingRecipe, *, run: Path) -> GRPOConfig:
    """Return TRL's options."""
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
        beta=0.0,  # the trainer sets it later
        use_bias_correction_kl=False,
        loss_type="dapo",
        logging_steps=1,
    )


def _unused_reward(*_: Any, **__: Any) -> list[float]:
    """Fill TRL's argument for a reward function. It is never called: rewards are computed for a group of traces."""
    raise AssertionError("TRL must not compute rewards")
