"""GRPO (paper, section 3.2.3): groups of rollouts in the judge's own loop, with VR-Thinker's reward.

TRL's trainer can only append to one conversation, and its training forward has no videos. So this is transformers'
trainer with a step of its own. What is learned at once is a row: the rounds between two changes of what the judge sees.

The loss is TRL's: the clipped ratio times the advantage, and the plain KL to the starting model, as a mean over a
trajectory's tokens in all its rows, and then over the step's trajectories. It does not depend on how rows are put into
batches, or on the number of processes. Each process learns from what it wrote itself.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from trl.models import prepare_deepspeed, prepare_fsdp, unwrap_model_for_generation

from train.data import Cases, TrainingCase
from train.model import load
from train.recipe import TrainingRecipe
from train.rendering import Rendered, Segment, segments
from train.rewards import Terms, advantages, called, group_terms, informative
from train.rollout import Rollout, roll_out
from train.trainer import MODEL, JudgeTrainer, options_of
from train.writing import Policy
from vrt_lite.errors import UsageError
from vrt_lite.judge import opening


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A segment to learn from: all of a trajectory, or its rounds between two changes of what the judge sees.

    `ended` says for each learned reply whether the model drew its end. `logprobs` are the log-probabilities with which
    the learned tokens were drawn. `share` is 1/T for the T tokens of the trajectory in all its segments.
    """

    case: TrainingCase
    segment: Segment
    ended: tuple[bool, ...] = ()
    logprobs: tuple[float, ...] = ()
    advantage: float = 0.0
    share: float = 0.0


@dataclass(slots=True)
class StepData:
    """What a step learns from: this process's rows, and the step's trajectories in all processes."""

    rows: list[TrainingRow] = field(default_factory=list[TrainingRow])
    trajectories: int = 0
    facts: dict[str, float] = field(default_factory=dict[str, float])


def reinforce(recipe: TrainingRecipe, cases: Cases, *, start: Path, run: Path) -> None:
    """Train the model in `start` and write it to RUN/model, unless that is there. A killed run goes on."""
    if not (run / MODEL).is_dir():
        prepare(recipe, cases, start=start, run=run).complete()


def prepare(
    recipe: TrainingRecipe, cases: Cases, *, start: Path, run: Path, policy: type[Policy] = Policy
) -> GrpoTrainer:
    """Create the trainer of a run, whose rollouts a `policy` of this class writes."""
    how = recipe.grpo
    options = options_of(
        recipe,
        run,
        per_device_train_batch_size=1,
        max_steps=how.steps,
        learning_rate=how.learning_rate,
        lr_scheduler_type="constant",
    )
    model, tokenizer = load(start, recipe.model, trainable=True)
    # The reference of an adapter is the model without it.
    reference = load(start, recipe.model)[0] if how.kl and not recipe.model.lora_rank else None
    batch, precision = recipe.rollouts.batch, recipe.model.precision
    writer = policy(model, tokenizer, recipe.profile, precision=precision, batch=batch)
    return GrpoTrainer(recipe, cases, writer, start=start, reference=reference, args=options)


class GrpoTrainer(JudgeTrainer):
    """Takes steps on groups of rollouts of a policy, which is renewed every `steps_per_generation` steps."""

    def __init__(
        self, recipe: TrainingRecipe, cases: Cases, policy: Policy, *, start: Path, reference: Any, **options: Any
    ) -> None:
        steps = [0] * recipe.grpo.steps * options["args"].world_size  # a trainer needs data; a step chooses its queries
        super().__init__(policy.model, start, recipe.profile, train_dataset=steps, data_collator=_collate, **options)
        if recipe.grpo.queries < self.accelerator.num_processes:
            raise UsageError(
                f"grpo.queries is {recipe.grpo.queries}, but must be at least the {self.accelerator.num_processes} "
                "processes."
            )
        self._recipe, self._how, self._cases, self._policy = recipe, recipe.grpo, cases, policy
        self._steps: dict[int, StepData] = {}
        self._facts: defaultdict[str, list[float]] = defaultdict(list)
        self._reference = None if reference is None else self._prepare_reference(reference)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute one optimizer step's gradients, batch by batch. The processes exchange them in the last one."""
        model.train()
        step = self.state.global_step
        if step not in self._steps:
            self._steps = self._generate(step)
        data = self._steps.pop(step)
        for name, value in data.facts.items():
            self._facts[name].append(value)
        # All processes run the same number of batches, because they exchange gradients: empty rows fill the last ones.
        count = max(gather_object([-(-len(data.rows) // self._how.batch)]))
        total = torch.zeros((), device=self.accelerator.device)
        for number, rows in enumerate(self._batches(data.rows, max(count, 1)), start=1):
            last = number >= count
            self.accelerator.gradient_state._set_sync_gradients(last)
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self.compute_row_loss(model, rows, trajectories=data.trajectories)
                self.accelerator.backward(loss * self.accelerator.num_processes)  # whose mean they take
            total += loss.detach()
        return total * self.accelerator.num_processes

    def compute_row_loss(
        self, model: Any, rows: Sequence[tuple[Rendered, TrainingRow]], *, trajectories: int
    ) -> Tensor:
        """Compute the part of these rows in the loss of a step with so many trajectories."""
        inputs = self._policy.collate([rendered for rendered, _ in rows])
        drawn = inputs["labels"][:, 1:] != -100
        old = torch.zeros(drawn.shape, device=drawn.device)
        old[drawn] = torch.tensor([logprob for _, row in rows for logprob in row.logprobs], device=drawn.device)
        advantage, share = (
            torch.tensor([values], device=drawn.device).T
            for values in ([row.advantage for _, row in rows], [row.share / max(trajectories, 1) for _, row in rows])
        )
        now = self._score(model, inputs)
        ratio = (now - old).exp()
        clipped = ratio.clamp(1 - self._how.clip, 1 + self._how.clip)
        losses = -torch.minimum(ratio * advantage, clipped * advantage)
        weight = drawn * share
        if self._how.kl:
            with torch.no_grad(), self._open_reference() as reference:
                before = self._score(reference, inputs)
            kl = (before - now).exp() - (before - now) - 1
            losses = losses + self._how.kl * kl
            self._facts["kl"].append((kl.detach() * weight).sum().item())
        outside = ((ratio < 1 - self._how.clip) & (advantage < 0)) | ((ratio > 1 + self._how.clip) & (advantage > 0))
        self._facts["clipped"].append((outside * weight).sum().item())
        return (losses * weight).sum()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the figures of the rollouts too: sums of a step over the processes, and means over the steps."""
        if "loss" in logs:
            steps = max(len(self._facts["groups"]), 1)
            gathered = gather_object([dict(self._facts)])
            for name in gathered[0]:
                of_all = (sum(facts[name]) for facts in gathered if name in facts)
                logs[name] = (sum(of_all) if name in ("kl", "clipped") else sum(gathered[0][name])) / steps
            self._facts.clear()
        super().log(logs, start_time)

    def _generate(self, step: int) -> dict[int, StepData]:
        """Write the rollouts of this step and of the steps before the next renewal with the current policy."""
        renewed = self._how.steps_per_generation
        steps = range(step, min(step - step % renewed + renewed, self._how.steps))
        with whole_weights(self.model_wrapped, self.accelerator):
            place = self.accelerator.process_index, self.accelerator.num_processes
            return generate(self._policy, self._cases, self._recipe, steps, *place)

    def _batches(self, rows: Sequence[TrainingRow], count: int) -> Iterator[list[tuple[Rendered, TrainingRow]]]:
        """Yield so many batches of rendered rows, the last of which may have rows without a loss."""
        empty = _render_empty(self._cases[0], self._policy)
        rendered = itertools.chain(self._render(rows), itertools.repeat(empty))
        for _ in range(count):
            yield list(itertools.islice(rendered, self._how.batch))

    def _render(self, rows: Sequence[TrainingRow]) -> Iterator[tuple[Rendered, TrainingRow]]:
        """Render rows. A case is open until its last row is rendered."""
        for _, group in itertools.groupby(rows, key=lambda row: id(row.case)):
            first = next(group)
            with first.case.open(self._recipe.profile) as frames:
                for row in itertools.chain([first], group):
                    yield mask_ends(self._policy.renderer.render(row.segment, frames), row.ended), row

    def _score(self, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        with self._policy.autocast():
            return self._policy.logprobs(model, inputs, temperature=self._recipe.rollouts.temperature)

    @contextlib.contextmanager
    def _open_reference(self) -> Iterator[Any]:
        """Give the model that training started from."""
        if self._reference is not None:
            yield self._reference
            return
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            yield self.model_wrapped

    def _prepare_reference(self, reference: Any) -> Any:
        """Put the reference on this process's device, sharded as the policy is."""
        if self.is_deepspeed_enabled:
            return prepare_deepspeed(reference, self.accelerator)
        if self.is_fsdp_enabled:
            return prepare_fsdp(reference, self.accelerator)
        return self.accelerator.prepare_model(reference, evaluation_mode=True)


def generate(
    policy: Policy, cases: Cases, recipe: TrainingRecipe, steps: range, process: int = 0, processes: int = 1
) -> dict[int, StepData]:
    """Sample the groups of these steps with the policy. The `processes` share the queries, and keep what they wrote.

    A group that teaches nothing is dropped, and another query is drawn instead, at most `grpo.resamples` times. The
    queries of a step and their rollouts depend on recipe, weights and step, never on the process.
    """
    how, draws = recipe.grpo, 1 + recipe.grpo.resamples
    queries = {
        step: draw_indices(len(cases), how.queries * draws, seed=f"{recipe.model.seed}/{step}") for step in steps
    }
    found = {step: StepData() for step in steps}
    missing = [(step, slot) for step in steps for slot in range(how.queries)]
    told: list[tuple[int, int, dict[str, float], bool]] = []
    for attempt in range(draws):
        mine = missing[process::processes]
        named = {f"{step}/{attempt}/{slot}": cases[queries[step][attempt * how.queries + slot]] for step, slot in mine}
        groups = roll_out(
            policy,
            named,
            recipe.profile,
            samples=how.group,
            temperature=recipe.rollouts.temperature,
            seed=recipe.model.seed,
        )
        outcomes: list[tuple[int, int, dict[str, float], bool]] = []
        for (step, slot), group in zip(mine, groups.values(), strict=True):
            terms = group_terms([rollout.rounds for rollout in group], group[0].case.labels, how.reward)
            if good := informative(terms):
                found[step].rows += rows_of(group, terms)
            outcomes.append((step, slot, describe_group(group, terms), good))
        told += (gathered := sorted(gather_object(outcomes), key=lambda one: one[:2]))
        missing = [(step, slot) for step, slot, _, good in gathered if not good]
        if not missing:
            break
    if missing and not process:
        print(
            f"steps {steps[0] + 1} to {steps[-1] + 1}: {len(missing)} of {len(steps) * how.queries} groups taught "
            f"nothing in {draws} draws (grpo.resamples = {how.resamples}); the steps go on without them.",
            file=sys.stderr,
        )
    for step, data in found.items():
        own = [one for one in told if one[0] == step]
        kept = sum(good for *_, good in own)
        first = [facts for _, _, facts, _ in own[: how.queries]]  # before any group was dropped
        data.trajectories = kept * how.group
        data.facts = {name: fmean(facts[name] for facts in first) for name in first[0]}
        data.facts |= {"groups": kept, "groups/drawn": len(own), "groups/missing": how.queries - kept}
    return found


def draw_indices(cases: int, count: int, *, seed: str) -> list[int]:
    """Draw the indices of `count` of the cases. They are different if there are enough cases."""
    drawing = random.Random(seed)
    found: list[int] = []
    while len(found) < count:
        found += drawing.sample(range(cases), min(cases, count - len(found)))
    return found


def rows_of(group: Sequence[Rollout], terms: Sequence[Terms]) -> Iterator[TrainingRow]:
    """Yield all segments of all rollouts of a group, in order."""
    worth = advantages([each.total for each in terms])
    for rollout, advantage in zip(group, worth, strict=True):
        written = iter(rollout.written)
        for segment in segments(rollout.visible, rollout.replies):
            learned = list(itertools.islice(written, len(segment.learned)))
            logprobs = tuple(itertools.chain.from_iterable(reply.logprobs for reply in learned))
            ended = tuple(reply.ended for reply in learned)
            yield TrainingRow(rollout.case, segment, ended, logprobs, advantage, 1 / max(rollout.tokens, 1))


def describe_group(group: Sequence[Rollout], terms: Sequence[Terms]) -> dict[str, float]:
    """Return the means of a group for the log."""
    return {
        "reward": fmean(each.total for each in terms),
        "reward/format": fmean(each.format for each in terms),
        "reward/accuracy": fmean(each.accuracy for each in terms),
        "reward/gain": fmean(each.gain for each in terms),
        "reward/explore": fmean(each.explore for each in terms),
        "called": fmean(called(rollout.rounds) for rollout in group),
        "rounds": fmean(len(rollout.rounds) for rollout in group),
        "tokens": fmean(rollout.tokens for rollout in group),
    }


def mask_ends(rendered: Rendered, ended: Sequence[bool]) -> Rendered:
    """Remove the loss on ends of replies that the model did not draw: the template ends a reply that was cut.

    If `ended` is empty, nothing has a loss.
    """
    learned = rendered.learned.copy()
    if not ended:
        learned[:] = False
        return replace(rendered, learned=learned)
    ends = [i for i, here in enumerate(learned) if here and not learned[i + 1 : i + 2].any()]
    for end, was_drawn in zip(ends, ended, strict=True):
        learned[end] = was_drawn
    return replace(rendered, learned=learned)


@contextlib.contextmanager
def whole_weights(model: Any, accelerator: Any) -> Iterator[None]:
    """Have all weights on each GPU while replies are written: there, each process is at another token.

    FSDP's shards are gathered once and stay; TRL gathers those of ZeRO-3.
    """
    shards = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for shard in shards:
        shard.set_reshard_after_forward(False, recurse=False)
        shard.unshard()
    with contextlib.nullcontext() if shards else unwrap_model_for_generation(model, accelerator):
        yield
    for shard in shards:
        shard.set_reshard_after_forward(True, recurse=False)
        shard.reshard()


def _render_empty(case: TrainingCase, policy: Policy) -> tuple[Rendered, TrainingRow]:
    """Render a case's opening without a loss."""
    row = TrainingRow(case, Segment(opening(case.pair, policy.profile), frozenset()))
    with case.open(policy.profile) as frames:
        return mask_ends(policy.renderer.render(row.segment, frames), ()), row


def _collate(rows: list[int]) -> dict[str, Tensor]:
    return {"rows": torch.tensor(rows)}
