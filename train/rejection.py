"""Rejection sampling: several traces a query from a stage's model, of which the right ones are kept to learn from.

A trace is kept if every reply could be used as it was, the last is a final answer, and all four of its judgements are
right. Two files, both only appended to: the traces, and beside them a line a query that has been sampled. What comes
out depends on recipe, model and cases, not on legs or on the number of processes.
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

from train.cases import Case, Cases, right
from train.policy.rollout import Rollout, open_policy, rollouts
from train.policy.writing import Policy
from train.recipe import Recipe
from train.rewards import well_formed
from train.traces import Trace, append_rows, append_traces, keep_rows, ledger, read_rows, read_traces
from vrt_lite.errors import UsageError

Row = dict[str, Any]


def sample(recipe: Recipe, stage_folder: Path, cases: Cases, out: Path, *, minutes: float | None = None) -> bool:
    """Sample the recipe's queries from a stage's checkpoint; kept traces go to `out`, JSON lines as `train.traces` has.

    True when all are sampled; False when the leg's minutes ended before, and the next call goes on there. Started by
    torchrun, processes share the queries. A batch at least is done a leg.
    """
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    state, how = PartialState(cpu=not torch.cuda.is_available()), recipe.rejection
    done = _resumed(out) if state.is_main_process else 0
    done = max(gather_object([done]))
    count = min(how.queries, len(cases))
    together = max(how.batch // how.samples, 1) * state.num_processes
    if done >= count:
        return True
    with open_policy(
        stage_folder, recipe.profile, device=str(state.device), precision=recipe.model.precision, batch=how.batch
    ) as policy:
        for begin in range(done, count, together):
            turn = range(begin + state.process_index, min(begin + together, count), state.num_processes)
            rows = list(_sampled(policy, {number: cases[number] for number in turn}, recipe))
            late = ends is not None and time.monotonic() >= ends
            gathered = gather_object([(rows, late)])
            if state.is_main_process:
                _write(out, _in_turn([theirs for theirs, _ in gathered]))
            if begin + together < count and any(late for _, late in gathered):
                return False
    return True


def keep(group: Sequence[Rollout], most: int) -> list[Trace]:
    """At most `most` traces of one query's rollouts, no two the same, earlier ones first."""
    good = [Trace(r.case.key, tuple(reply.text for reply in r.replies)) for r in group if is_right(r)]
    return list(dict.fromkeys(good))[:most]


def is_right(rollout: Rollout) -> bool:
    """Whether a trace is fit to learn from: well-formed to its end, and right about every label that there is."""
    if rollout.trial is None or not well_formed(rollout.rounds):
        return False
    winners = {key: preference.winner for key, preference in rollout.trial.verdict.preferences.items()}
    return all(right(winners, rollout.case.labels).values())


def _sampled(policy: Policy, queries: Mapping[int, Case], recipe: Recipe) -> Iterator[Row]:
    """Each query's line, with the replies of its kept traces. A case that is asked twice is two queries."""
    how = recipe.rejection
    asked = {f"{number}/{case.key}": case for number, case in queries.items()}
    groups: dict[str, list[Rollout]] = {name: [] for name in asked}
    for rollout in rollouts(
        policy,
        [replace(case, key=name) for name, case in asked.items()],
        recipe.profile,
        samples=how.samples,
        temperature=how.temperature,
        seed=recipe.model.seed,
    ):
        groups[rollout.case.key].append(rollout)
    for name, group in groups.items():
        group.sort(key=lambda rollout: rollout.number)
        yield {
            "key": asked[name].key,
            "samples": len(group),
            "well_formed": sum(well_formed(rollout.rounds) for rollout in group),
            "right": sum(map(is_right, group)),
            "kept": [trace.replies for trace in keep(group, how.kept_a_query)],
        }


def _in_turn(by_process: Sequence[Sequence[Row]]) -> list[Row]:
    """The queries' lines in the order of the queries, which processes took in turn."""
    return [row for turn in itertools.zip_longest(*by_process) for row in turn if row is not None]


def _write(out: Path, rows: Sequence[Row]) -> None:
    """The traces first: a query counts as sampled when its own line is there."""
    append_traces(out, [Trace(row["key"], tuple(replies)) for row in rows for replies in row["kept"]])
    append_rows(ledger(out), [{**row, "kept": len(row["kept"])} for row in rows])


def _resumed(out: Path) -> int:
    """How many queries are sampled; traces of a query that a kill left without its line are dropped."""
    rows = read_rows(ledger(out))
    traces, kept = len(read_traces(out)), sum(row["kept"] for row in rows)
    if traces < kept:
        raise UsageError(f"{out} has {traces} traces, its ledger tells of {kept}: remove both to sample anew.")
    if traces > kept:
        keep_rows(out, kept)
    return len(rows)
