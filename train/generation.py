"""Samples groups of rollouts for several steps of GRPO.

The policy that samples, the behaviour policy, is renewed every `grpo.steps_per_generation` steps. A group that teaches
nothing is dropped, and another query is drawn instead, at most `grpo.resamples` times. The queries of a step and their
rollouts depend on recipe, weights, step and case, never on the process.

Groups are stored as written replies. In this form processes exchange them, and a checkpoint has the groups that are
not learned from yet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from accelerate.utils import gather_object

from train.policy.rollout import Rollout, replay_rollout, rollouts
from train.policy.writing import Policy, WrittenReply
from train.recipe import TrainingRecipe
from train.rewards import group_terms
from train.rollout_groups import RolloutGroup, draw_indices, facts
from train.training_cases import Cases, TrainingCase
from vrt_lite.protocol.messages import Reply

_FILE = "generation.json"

Place = tuple[int, int]
"""A step, and a group's number in it."""


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """A group as written: its query's index among the cases, and the replies of each rollout."""

    index: int
    written: tuple[tuple[WrittenReply, ...], ...]

    def group(self, cases: Cases, recipe: TrainingRecipe) -> RolloutGroup:
        """Replay the rollouts of the group."""
        case = cases[self.index]
        return _group(
            [replay_rollout(case, number, w, recipe.profile) for number, w in enumerate(self.written)], recipe
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step learns from, and the figures for its log: means of all rollouts before any group was dropped.

    `drawn` groups were sampled for it. `missing` groups are not in it: all their draws taught nothing.
    """

    groups: tuple[WrittenGroup, ...]
    drawn: int
    missing: int
    facts: Mapping[str, float]

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each trajectory."""
        return [sum(len(w.logprobs) for w in rollout) for group in self.groups for rollout in group.written]


@dataclass(frozen=True, slots=True)
class _SampledGroup:
    """One sampled group, as processes exchange it; `sampled` is None if it teaches nothing."""

    place: Place
    sampled: WrittenGroup | None
    facts: Mapping[str, float]


def generate(
    policy: Policy, cases: Cases, recipe: TrainingRecipe, steps: range, *, process: int = 0, processes: int = 1
) -> dict[int, Batch]:
    """Sample a batch for each of these steps with the policy. All `processes` share the work and get the same batches.

    If `grpo.resamples` is reached, the first process prints a line about it.
    """
    how = recipe.grpo
    draws = 1 + how.resamples
    drawn = {step: draw_indices(len(cases), how.queries * draws, seed=f"{recipe.model.seed}/{step}") for step in steps}
    missing = [(step, slot) for step in steps for slot in range(how.queries)]
    attempts: list[list[_SampledGroup]] = []
    kept: dict[Place, WrittenGroup] = {}
    for attempt in range(draws):
        mine = {(step, slot): drawn[step][attempt * how.queries + slot] for step, slot in missing[process::processes]}
        found: list[_SampledGroup] = gather_object(_sample_groups(policy, cases, recipe, mine, attempt))
        attempts.append(sorted(found, key=lambda one: one.place))
        kept |= {one.place: one.sampled for one in found if one.sampled}
        missing = [place for place in missing if place not in kept]
        if not missing:
            break
    if missing and not process:
        print(
            f"steps {steps[0] + 1} to {steps[-1] + 1}: {len(missing)} of {len(steps) * how.queries} groups taught "
            f"nothing in {draws} draws (grpo.resamples = {how.resamples}); the steps go on without them.",
            file=sys.stderr,
            flush=True,
        )
    return {
        step: Batch(
            groups=tuple(kept[place] for place in sorted(kept) if place[0] == step),
            drawn=sum(one.place[0] == step for attempted in attempts for one in attempted),
            missing=sum(place[0] == step for place in missing),
            facts=_means([one.facts for one in attempts[0] if one.place[0] == step]),
        )
        for step in steps
    }


def write_batches(batches: Mapping[int, Batch], folder: Path) -> None:
    """Write the batches, by step, into a checkpoint's folder."""
    steps = {step: {**asdict(batch), "groups": list(map(_to_json, batch.groups))} for step, batch in batches.items()}
    (folder / _FILE).write_text(json.dumps(steps), encoding="utf-8")


def read_batches(folder: Path) -> dict[int, Batch]:
    """Read what `write_batches` wrote."""
    steps: dict[str, Any] = json.loads((folder / _FILE).read_text("utf-8"))
    return {
        int(step): Batch(tuple(map(_from_json, batch["groups"])), batch["drawn"], batch["missing"], batch["facts"])
        for step, batch in steps.items()
    }


def _to_json(sampled: WrittenGroup) -> dict[str, Any]:
    written = [
        [{"text": w.reply.text, "tokens": w.reply.tokens, "logprobs": w.logprobs, "ended": w.ended} for w in rollout]
        for rollout in sampled.written
    ]
    return {"index": sampled.index, "written": written}


def _from_json(group: Mapping[str, Any]) -> WrittenGroup:
    return WrittenGroup(group["index"], tuple(tuple(map(_reply_from_json, rollout)) for rollout in group["written"]))


def _reply_from_json(reply: Mapping[str, Any]) -> WrittenReply:
    return WrittenReply(Reply(reply["text"], tuple(reply["tokens"])), tuple(reply["logprobs"]), reply["ended"])


def _without_odds(written: WrittenReply) -> WrittenReply:
    """Return the reply without the odds of digits and the usage, which are not learned from."""
    return replace(written, reply=Reply(written.reply.text, written.reply.tokens))


def _sample_groups(
    policy: Policy, cases: Cases, recipe: TrainingRecipe, queries: Mapping[Place, int], attempt: int
) -> list[_SampledGroup]:
    """Sample a group of rollouts for each query, by place. A case drawn twice is two queries."""
    how = recipe.grpo
    found: dict[str, tuple[Place, int, TrainingCase]] = {}
    for (step, slot), index in queries.items():
        case = cases[index]
        named = replace(case, key=f"{step}/{attempt}/{slot}/{case.key}")
        found[named.key] = (step, slot), index, named
    by_key: dict[str, list[Rollout]] = {key: [] for key in found}
    for rollout in rollouts(
        policy,
        [case for _, _, case in found.values()],
        recipe.profile,
        samples=how.group,
        temperature=how.temperature,
        seed=recipe.model.seed,
    ):
        by_key[rollout.case.key].append(rollout)
    groups: list[_SampledGroup] = []
    for key, (place, index, _) in found.items():
        group = _group(sorted(by_key[key], key=lambda rollout: rollout.number), recipe)
        sampled = WrittenGroup(index, tuple(tuple(map(_without_odds, rollout.written)) for rollout in group.rollouts))
        means = _means(list(map(facts, group.rollouts, group.terms)))
        groups.append(_SampledGroup(place, sampled if group.informative else None, means))
    return groups


def _group(group: Sequence[Rollout], recipe: TrainingRecipe) -> RolloutGroup:
    terms = group_terms([rollout.rounds for rollout in group], group[0].case.labels, recipe.grpo)
    return RolloutGroup(tuple(group), tuple(terms))


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(row[name] for row in rows) for name in rows[0]}
