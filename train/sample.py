"""Rejection sampling: a stage's model writes several traces for each query, and a right one is kept.

A trace is kept if it has the strict format (`train.strict_format`) and all four of its judgements are right. The result
depends on recipe, model and cases, not on kills or on the number of processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from tqdm import tqdm

from train.data import Cases, append_rows, read_rows, right
from train.model import load
from train.recipe import TrainingRecipe
from train.rollout import Rollout, roll_out
from train.strict_format import conforms
from train.writing import Policy, Writer


def sample(recipe: TrainingRecipe, start: Path, cases: Cases, out: Path) -> None:
    """Sample the recipe's queries with a stage's checkpoint, as lines of traces (`train.data`) with counts.

    A killed run goes on after the last line. The processes of a launcher share the queries.
    """
    state, how = PartialState(cpu=not torch.cuda.is_available()), recipe.sample
    done = max(gather_object([len(list(read_rows(out))) if state.is_main_process else 0]))
    count = min(how.queries, len(cases))
    if done >= count:
        return
    writer = open_policy(recipe, start)
    at_once = max(writer.batch // how.samples, 1) * state.num_processes
    steps = tqdm(range(done, count, at_once), "sample", disable=not state.is_main_process)
    for begin in steps:
        turn = range(begin + state.process_index, min(begin + at_once, count), state.num_processes)
        rows = gather_object([_sample_queries(writer, cases, turn, recipe)])
        if state.is_main_process:
            # Each process took every n-th query.
            append_rows(out, (row for turn in itertools.zip_longest(*rows) for row in turn if row))


def open_policy(recipe: TrainingRecipe, folder: Path) -> Policy:
    """Load a checkpoint on this process's device, for writing only."""
    model, tokenizer = load(folder, recipe.model)
    device = PartialState().device if torch.cuda.is_available() else torch.device("cpu")
    precision, batch = recipe.model.precision, recipe.rollouts.batch
    return Policy(model.to(device).eval(), tokenizer, recipe.profile, precision=precision, batch=batch)


def is_right(rollout: Rollout) -> bool:
    """Whether a rollout has the strict format and is right about every label of its case."""
    if rollout.trial is None or not conforms(rollout.rounds):
        return False
    winners = {key: preference.winner for key, preference in rollout.trial.verdict.preferences.items()}
    return all(right(winners, rollout.case.labels).values())


def _sample_queries(
    writer: Writer, cases: Cases, numbers: Sequence[int], recipe: TrainingRecipe
) -> list[dict[str, Any]]:
    """Return a line for each query: the replies that are kept, and how many samples were well-formed and right."""
    how = recipe.sample
    groups = roll_out(
        writer,
        {f"{number}/{cases[number].key}": cases[number] for number in numbers},
        recipe.profile,
        samples=how.samples,
        temperature=recipe.rollouts.temperature,
        seed=recipe.model.seed,
    )
    rows: list[dict[str, Any]] = []
    for group in groups.values():
        kept = [rollout for rollout in group if is_right(rollout)]
        rows.append(
            {
                "key": group[0].case.key,
                "replies": [reply.text for reply in kept[0].replies] if kept else None,
                "samples": len(group),
                "well_formed": sum(conforms(rollout.rounds) for rollout in group),
                "right": len(kept),
            }
        )
    return rows
