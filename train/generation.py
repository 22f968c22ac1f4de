"""What one policy samples for several steps of GRPO: groups of rollouts, drawn until every one of them can teach.

The policy that samples, the behaviour policy, is renewed every `grpo.steps_per_generation` steps. A group that teaches
nothing is dropped and another query is drawn in its place, at most `grpo.resamples` times. Which queries a step draws
and what is sampled for them follows from recipe, weights, step and case, never from the process.

Groups are kept as they were written: processes exchange them so, and a checkpoint holds those that are still to be
learned from. Knows rollouts, rewards and JSON; refuses to know trainers and losses.
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

from train.cases import Case, Cases
from train.groups import Group, draw, facts
from train.policy.rollout import Rollout, replayed, rollouts
from train.policy.writing import Policy, Written
from train.recipe import Recipe
from train.rewards import group_terms
from vrt_lite.protocol.messages import Reply

_FILE = "generation.json"

Place = tuple[int, int]
"""A step, and a group's number in it."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A group as it was written: its query's index among the cases, and the replies of each rollout."""

    index: int
    written: tuple[tuple[Written, ...], ...]

    def group(self, cases: Cases, recipe: Recipe) -> Group:
        """The group, its rollouts played again."""
        case = cases[self.index]
        return _group([replayed(case, number, w, recipe.profile) for number, w in enumerate(self.written)], recipe)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step learns from, and what its log tells: of all rollouts before any group was dropped.

    `drawn` groups were sampled for it; `missing` more would be in it, but every group drawn for them taught nothing.
    """

    groups: tuple[Sampled, ...]
    drawn: int
    missing: int
    facts: Mapping[str, float]

    @property
    def lengths(self) -> list[int]:
        """The tokens of each trajectory."""
        return [sum(len(w.logprobs) for w in rollout) for group in self.groups for rollout in group.written]


@dataclass(frozen=True, slots=True)
class _Made:
    """One sampled group, as processes tell each other of it; `sampled` is None where it teaches nothing."""

    place: Place
    sampled: Sampled | None
    facts: Mapping[str, float]


def generate(
    policy: Policy, cases: Cases, recipe: Recipe, steps: range, *, process: int = 0, processes: int = 1
) -> dict[int, Batch]:
    """A batch for each of these steps, sampled by the policy as it is; the same in all `processes`, which share it.

    Where the bound is reached, the first process says so in a line.
    """
    how = recipe.grpo
    draws = 1 + how.resamples
    drawn = {step: draw(len(cases), how.queries * draws, seed=f"{recipe.model.seed}/{step}") for step in steps}
    missing = [(step, slot) for step in steps for slot in range(how.queries)]
    made: list[list[_Made]] = []
    kept: dict[Place, Sampled] = {}
    for attempt in range(draws):
        mine = {(step, slot): drawn[step][attempt * how.queries + slot] for step, slot in missing[process::processes]}
        found: list[_Made] = gather_object(_sampled(policy, cases, recipe, mine, attempt))
        made.append(sorted(found, key=lambda one: one.place))
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
            drawn=sum(one.place[0] == step for attempted in made for one in attempted),
            missing=sum(place[0] == step for place in missing),
            facts=_means([one.facts for one in made[0] if one.place[0] == step]),
        )
        for step in steps
    }


def write_batches(batches: Mapping[int, Batch], folder: Path) -> None:
    """Put the batches, by step, into a checkpoint's folder."""
    told = {step: {**asdict(batch), "groups": list(map(_told, batch.groups))} for step, batch in batches.items()}
    (folder / _FILE).write_text(json.dumps(told), encoding="utf-8")


def read_batches(folder: Path) -> dict[int, Batch]:
    """What `write_batches` put into a folder."""
    told: dict[str, Any] = json.loads((folder / _FILE).read_text("utf-8"))
    return {
        int(step): Batch(tuple(map(_read, batch["groups"])), batch["drawn"], batch["missing"], batch["facts"])
        for step, batch in told.items()
    }


def _told(sampled: Sampled) -> dict[str, Any]:
    written = [
        [{"text": w.reply.text, "tokens": w.reply.tokens, "logprobs": w.logprobs, "ended": w.ended} for w in rollout]
        for rollout in sampled.written
    ]
    return {"index": sampled.index, "written": written}


def _read(told: Mapping[str, Any]) -> Sampled:
    return Sampled(told["index"], tuple(tuple(map(_written, rollout)) for rollout in told["written"]))


def _written(told: Mapping[str, Any]) -> Written:
    return Written(Reply(told["text"], tuple(told["tokens"])), tuple(told["logprobs"]), told["ended"])


def _plain(written: Written) -> Written:
    """What is learned from: neither the odds of digits nor what writing cost."""
    return replace(written, reply=Reply(written.reply.text, written.reply.tokens))


def _sampled(policy: Policy, cases: Cases, recipe: Recipe, queries: Mapping[Place, int], attempt: int) -> list[_Made]:
    """A group of rollouts for each query, by place. A query that is drawn twice is two."""
    how = recipe.grpo
    found: dict[str, tuple[Place, int, Case]] = {}
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
    made: list[_Made] = []
    for key, (place, index, _) in found.items():
        group = _group(sorted(by_key[key], key=lambda rollout: rollout.number), recipe)
        sampled = Sampled(index, tuple(tuple(map(_plain, rollout.written)) for rollout in group.rollouts))
        told = _means(list(map(facts, group.rollouts, group.terms)))
        made.append(_Made(place, sampled if group.informative else None, told))
    return made


def _group(made: Sequence[Rollout], recipe: Recipe) -> Group:
    terms = group_terms([rollout.rounds for rollout in made], made[0].case.labels, recipe.grpo)
    return Group(tuple(made), tuple(terms))


def _means(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(one[name] for one in told) for name in told[0]}
