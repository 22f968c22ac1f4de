"""How many samples a step learns from, and how processes share them; beside the paper's numbers."""

from __future__ import annotations

import os
from typing import Final

from train.recipe import Supervised, TrainingRecipe
from vrt_lite.errors import UsageError

_PAPER: Final = "the paper: 1 x 32 accumulated x 8 GPUs = 256"
_PAPER_GRPO: Final = "the paper: 64 queries x 8 samples = 512, for 4 steps from one policy"


def count_processes() -> int:
    """Return the number of processes that torchrun or accelerate started, this one among them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this process is the one that writes and prints for all."""
    return os.environ.get("RANK", "0") == "0"


def split_step(recipe: Supervised, processes: int) -> tuple[int, int]:
    """Return batch and accumulation of each process: a step has the same samples for any number of processes."""
    if recipe.accumulation % processes == 0:
        return recipe.batch, recipe.accumulation // processes
    if recipe.batch % processes == 0:
        return recipe.batch // processes, recipe.accumulation
    raise UsageError(
        f"{processes} processes cannot share a step of batch = {recipe.batch} and accumulation = "
        f"{recipe.accumulation}: one of the two must be a multiple of {processes}."
    )


def describe_step(recipe: TrainingRecipe, stage: str, processes: int) -> str:
    """Return a line about the samples of a stage's step, and how the processes share them."""
    count = f"{processes} process{'es' if processes > 1 else ''}"
    if stage == "sample":
        how = recipe.rejection
        return f"sample: {how.queries} queries x {how.samples} samples, {how.batch} at a time in each of {count}"
    if stage == "grpo":
        how = recipe.grpo
        return (
            f"grpo: a step learns from {how.queries} queries x {how.group} samples = {how.queries * how.group}, for "
            f"{how.steps_per_generation} steps from one policy, shared by {count} ({_PAPER_GRPO})"
        )
    own = {"cold-start": recipe.cold_start, "refine": recipe.refine}[stage]
    batch, accumulation = split_step(own, processes)
    shares = f"{batch} x {accumulation} accumulated x {count} = {batch * accumulation * processes}"
    orders = ", each pair in both orders" if own.orders > 1 else ""
    return f"{stage}: a step learns from {shares}{orders} ({_PAPER})"
