"""A step's samples: the same for any number of processes, and said beside the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from train.recipe import Supervised, load_recipe
from train.step_sizes import describe_step, split_step
from vrt_lite.errors import UsageError

SEVEN = load_recipe(Path(__file__).parents[2] / "train" / "configs" / "vr-thinker-7b.toml")


@pytest.mark.parametrize("processes", [1, 2, 4, 8, 32])
def test_the_7b_learns_from_the_papers_256_on_any_number_of_gpus(processes: int) -> None:
    for stage, own in (("cold-start", SEVEN.cold_start), ("refine", SEVEN.refine)):
        batch, accumulation = split_step(own, processes)
        assert (batch, batch * accumulation * processes) == (1, 256)
        line = describe_step(SEVEN, stage, processes)
        assert "= 256 (the paper: 1 x 32 accumulated x 8 GPUs = 256)" in line


def test_on_eight_gpus_the_lines_are_the_papers_own() -> None:
    assert [describe_step(SEVEN, stage, 8) for stage in ("cold-start", "sample", "grpo")] == [
        "cold-start: a step learns from 1 x 32 accumulated x 8 processes = 256 "
        "(the paper: 1 x 32 accumulated x 8 GPUs = 256)",
        "sample: 40000 queries x 4 samples, 8 at a time in each of 8 processes",
        "grpo: a step learns from 64 queries x 8 samples = 512, for 4 steps from one policy, shared by 8 processes "
        "(the paper: 64 queries x 8 samples = 512, for 4 steps from one policy)",
    ]


def test_another_recipe_says_what_it_has() -> None:
    recipe = replace(SEVEN, cold_start=Supervised(batch=4, accumulation=1, orders=2))
    line = describe_step(recipe, "cold-start", 2)
    assert line.startswith(
        "cold-start: a step learns from 2 x 1 accumulated x 2 processes = 4, each pair in both orders ("
    )
    with pytest.raises(UsageError, match="3 processes cannot share a step of batch = 4 and accumulation = 1"):
        describe_step(recipe, "cold-start", 3)
