"""The rows from which a supervised stage learns: cases with their replies, rendered in a Trainer's collator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch

from train.drills import Drills, render_drills
from train.line_words import LineView, WordStatistics, collate_words, line_views
from train.patch_drills import render_patch
from train.policy.policy_tokenizer import PAD, PolicyTokenizer
from train.policy.rendering import Collator, Rendered, Renderer, Segment, segments
from train.recipe import Supervised, TrainingRecipe
from train.snapshot_drills import render_snapshot, snapshot_cases
from train.token_shifts import draw_shifts
from train.traces import Trace, replay
from train.training_cases import Cases, Exchanged, TrainingCase
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated

SHORT = "short_"
"""Begins the names of what snapshot drills add to a batch."""


def render(
    case: TrainingCase, replies: Sequence[str], renderer: Renderer, profile: Profile, *, orders: int = 1
) -> list[Rendered]:
    """Render a case with its replies: one row for each context in which replies were written.

    With `orders` 2, rows with the clips in the other order and their script follow.
    """
    return [row for row, _ in _rows(case, replies, renderer, profile, orders=orders)]


def _rows(
    case: TrainingCase, replies: Sequence[str], renderer: Renderer, profile: Profile, *, orders: int
) -> list[tuple[Rendered, list[LineView]]]:
    """Render a case's rows, each with its lines about clips. Rows in the other order have none: the lines are equal."""
    with case.open(profile) as frames:
        parts = _segments(case, replies, profile)
        rows = [(renderer.render(segment, frames), list(line_views(segment))) for segment in parts]
        if orders > 1 and case.exchanged:
            other = case.exchanged()
            swapped: FrameStore = Exchanged(frames)
            rows += [(renderer.render(part, swapped), []) for part in _segments(other, other.script, profile)]
    return rows


def _segments(case: TrainingCase, replies: Sequence[str], profile: Profile) -> list[Segment]:
    visible, _ = replay(case, replies, profile)
    return segments(visible, [Generated(reply) for reply in replies[: len(visible)]])


class RepliedCases:
    """Cases with their replies, by number."""

    def __init__(self, cases: Cases, traces: Sequence[Trace] | None) -> None:
        self._cases, self._traces = cases, traces
        self._place = {} if traces is None else {cases[i].key: i for i in range(len(cases))}
        if traces and (unknown := next((t.key for t in traces if t.key not in self._place), "")):
            raise UsageError(
                f"Trace {unknown} is of none of the {len(cases)} cases: give those that it was sampled from."
            )

    def __len__(self) -> int:
        return len(self._cases if self._traces is None else self._traces)

    def __getitem__(self, number: int) -> tuple[TrainingCase, tuple[str, ...]]:
        if self._traces is None:
            case = self._cases[number]
            return case, case.script
        trace = self._traces[number]
        return self._cases[self._place[trace.key]], trace.replies


class LessonCollator:
    """The collator. It renders the cases, so that they are rendered in the workers, and `drills` drills a case."""

    def __init__(
        self,
        lessons: RepliedCases,
        tokenizer: PolicyTokenizer,
        recipe_all: TrainingRecipe,
        recipe: Supervised,
        statistics: WordStatistics | None,
    ) -> None:
        profile, count = recipe_all.profile, len(lessons)
        self._lessons, self._profile, self._recipe, self._statistics = lessons, profile, recipe, statistics
        self._snapshots = snapshot_cases(recipe_all.data, recipe.snapshots * count)
        self._first_patch = recipe_all.data.first * recipe.patches
        self._tokenizer, self._drills = tokenizer, Drills(recipe.drills * count)
        self._renderer, self._collate = Renderer(tokenizer, profile), Collator(tokenizer.id(PAD))

    def __call__(self, rows: Sequence[Mapping[str, int]]) -> dict[str, torch.Tensor]:
        """Build the batch of these lessons."""
        numbers = [row["lesson"] for row in rows]
        lessons = [self._lessons[number] for number in numbers]
        orders = self._recipe.orders
        by_pair = [_rows(case, replies, self._renderer, self._profile, orders=orders) for case, replies in lessons]
        rendered, views = map(list, zip(*itertools.chain.from_iterable(by_pair), strict=True))
        origins = [f"{case.key} {n}" for (case, _), own in zip(lessons, by_pair, strict=True) for n in range(len(own))]
        drills = [self._drills[number] for number in _numbers(numbers, self._recipe.drills)]
        texts = render_drills(drills, self._tokenizer, self._renderer, self._profile)
        batch = self._join([*rendered, *texts], origins)
        short, drilled = self._short_rows(numbers)
        if short:  # beside whole traces they would be padded to three times their length
            batch |= {SHORT + name: value for name, value in self._join(short, drilled).items()}
        if self._statistics:
            videos = [len(row.video_grids) for row in rendered]
            batch |= collate_words(views, videos, self._tokenizer, self._statistics.word_ids)
        return batch

    def _join(self, rows: Sequence[Rendered], origins: Sequence[str]) -> dict[str, torch.Tensor]:
        """Join rows to a batch, with shifts for those of footage. The first ones are of the cases `origins`, by key."""
        batch = self._collate(rows)
        if self._recipe.shift:
            seeds = [[*origin.encode()] if origin.startswith("footage") else None for origin in origins]
            batch |= draw_shifts(rows, [*seeds, *[None] * (len(rows) - len(seeds))], most=self._recipe.shift)
        return batch

    def _short_rows(self, numbers: Sequence[int]) -> tuple[list[Rendered], list[str]]:
        """Render the snapshot drills and the patch drills of these lessons. Returns also the keys of the former."""
        drilled = _numbers(numbers, self._recipe.snapshots)
        cases = [self._snapshots[number] for number in drilled]
        snapshots = [
            render_snapshot(case, self._tokenizer, self._renderer, self._profile, later=number // 2 % 2 == 1)
            for number, case in zip(drilled, cases, strict=True)
        ]
        seeds = [self._first_patch + number for number in _numbers(numbers, self._recipe.patches)]
        patches = [render_patch(seed, self._tokenizer, self._renderer) for seed in seeds]
        return [*snapshots, *patches], [case.key for case in cases]


def _numbers(lessons: Sequence[int], each: int) -> list[int]:
    """Return the numbers of the drills of these lessons, which have so many `each`."""
    return [lesson * each + i for lesson in lessons for i in range(each)]
