"""Rejection sampling: a stage's model writes several traces for each query, and the right ones are kept.

A trace is kept if it has the strict format (`train.strict_format`) and all four of its judgements are right. Lines are
only appended to the two files: the traces, and the ledger with one line for each sampled query.
The result depends on recipe, model and cases, not on legs or on the number of processes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from train.policy.rollout import Rollout, open_policy, rollouts
from train.policy.writing import Policy
from train.recipe import TrainingRecipe
from train.strict_format import conforms
from train.traces import Trace, append_rows, append_traces, keep_rows, ledger, read_rows, read_traces
from train.training_cases import Cases, TrainingCase, right
from vrt_lite.errors import UsageError

LedgerRow = dict[str, Any]


def sample(
    recipe: TrainingRecipe, stage_folder: Path, cases: Cases, out: Path, *, minutes: float | None = None
) -> bool:
    """Sample the recipe's queries with a stage's checkpoint. Appends the kept traces to `out` (see `train.traces`).

    Returns True when all queries are sampled, and False if the leg's minutes ended first; the next call continues.
    Processes of torchrun share the queries. A leg samples at least one batch.
    """
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    state, how = PartialState(cpu=not torch.cuda.is_available()), recipe.rejection
    done = _count_sampled(out) if state.is_main_process else 0
    done = max(gather_object([done]))
    count = min(how.queries, len(cases))
    at_once = max(how.batch // how.samples, 1) * state.num_processes
    if done >= count:
        return True
    with open_policy(
        stage_folder, recipe.profile, device=str(state.device), precision=recipe.model.precision, batch=how.batch
    ) as policy:
        for begin in range(done, count, at_once):
            turn = range(begin + state.process_index, min(begin + at_once, count), state.num_processes)
            rows = list(_sample_queries(policy, {number: cases[number] for number in turn}, recipe))
            late = ends is not None and time.monotonic() >= ends
            gathered = gather_object([(rows, late)])
            if state.is_main_process:
                _write(out, _interleave([theirs for theirs, _ in gathered]))
            if begin + at_once < count and any(late for _, late in gathered):
                return False
    return True


def keep(group: Sequence[Rollout], most: int) -> list[Trace]:
    """Return at most `most` different right traces of one query's rollouts, the earlier ones first."""
    good = [Trace(r.case.key, tuple(reply.text for reply in r.replies)) for r in group if is_right(r)]
    return list(dict.fromkeys(good))[:most]


def is_right(rollout: Rollout) -> bool:
    """Whether a rollout has the strict format and is right about every label of its case."""
    if rollout.trial is None or not conforms(rollout.rounds):
        return False
    winners = {key: preference.winner for key, preference in rollout.trial.verdict.preferences.items()}
    return all(right(winners, rollout.case.labels).values())


def _sample_queries(policy: Policy, queries: Mapping[int, TrainingCase], recipe: TrainingRecipe) -> Iterator[LedgerRow]:
    """Yield each query's ledger line, with the replies of its kept traces. A case drawn twice is two queries."""
    how = recipe.rejection
    by_name = {f"{number}/{case.key}": case for number, case in queries.items()}
    groups: dict[str, list[Rollout]] = {name: [] for name in by_name}
    for rollout in rollouts(
        policy,
        [replace(case, key=name) for name, case in by_name.items()],
        recipe.profile,
        samples=how.samples,
        temperature=how.temperature,
        seed=recipe.model.seed,
    ):
        groups[rollout.case.key].append(rollout)
    for name, group in groups.items():
        group.sort(key=lambda rollout: rollout.number)
        yield {
            "key": by_name[name].key,
            "samples": len(group),
            "well_formed": sum(conforms(rollout.rounds) for rollout in group),
            "right": sum(map(is_right, group)),
            "kept": [trace.replies for trace in keep(group, how.kept_a_query)],
        }


def _interleave(by_process: Sequence[Sequence[LedgerRow]]) -> list[LedgerRow]:
    """Return the lines of all processes in the order of the queries: each process took every n-th query."""
    return [row for turn in itertools.zip_longest(*by_process) for row in turn if row is not None]


def _write(out: Path, rows: Sequence[LedgerRow]) -> None:
    """Write the traces, and then the ledger: a query counts as sampled when its ledger line exists."""
    append_traces(out, [Trace(row["key"], tuple(replies)) for row in rows for replies in row["kept"]])
    append_rows(ledger(out), [{**row, "kept": len(row["kept"])} for row in rows])


def _count_sampled(out: Path) -> int:
    """Count the sampled queries. Removes traces that have no ledger line because of a kill."""
    rows = read_rows(ledger(out))
    traces, kept = len(read_traces(out)), sum(row["kept"] for row in rows)
    if traces < kept:
        raise UsageError(f"{out} has {traces} traces, but its ledger lists {kept}: remove both files and sample again.")
    if traces > kept:
        keep_rows(out, kept)
    return len(rows)
