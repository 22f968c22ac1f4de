"""The groups of clips that a ranking is about, and how much of it is judged, as values that are kept in the store.

Clips are numbers from 0 within their group. A result for (i, j) is one judgement with clip i shown as video 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Record
from vrt_lite.records.ladders import ExcludedClip, RankedClip
from vrt_lite.records.pairs import JudgedPair, Result, derive_result, join_results

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.runs.store import Run

ALL_PAIRS_UP_TO = 12
"""Up to this many clips in a group, every pair is judged, unless a budget or a confidence is given."""
CONFIDENCE = 0.8
"""How certain each place must be if judgements are chosen and no confidence is given.

A higher value is rarely reached: two judgements of a pair, by a judge that never contradicts itself, give about 0.85.
"""


class ClipGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group of clips made from one prompt, and the results so far, to which new ones are added.

    `alone` are those of clips that were judged by themselves, by number: `results` then follow from them.
    """

    name: str
    prompt: str
    clips: tuple[RankedClip, ...]
    results: dict[tuple[int, int], Result] = {}
    alone: dict[int, Result] = {}

    def add(self, i: int, j: int, result: Result) -> None:
        """Add the result of a pair, or of one clip (i = j) and so of its pairs with all others."""
        if i != j:
            self.results[i, j] = result
        elif not result.second:
            for other in self.alone.keys() - {i}:
                low, high = (result, self.alone[other]) if i < other else (self.alone[other], result)
                self.results[min(i, other), max(i, other)] = derive_result(low, high)
            self.alone[i] = result

    @property
    def judged(self) -> tuple[Result, ...]:
        """The judgements that were made: of clips, or of pairs."""
        return tuple((self.alone or self.results).values())

    def pairs(self) -> dict[tuple[int, int], JudgedPair]:
        """Return the pairs i < j with a result, perhaps a failure, of at least one order."""
        content, get = [clip.sha256 for clip in self.clips], self.results.get
        return {
            (i, j): JudgedPair(content[i], content[j], self.prompt, get((i, j)), get((j, i)))
            for i, j in sorted({(min(order), max(order)) for order in self.results})
        }


def add_stored(groups: Iterable[ClipGroup], results: Iterable[Result]) -> None:
    """Add to each group the stored results that are about its clips and its prompt, one for each order."""
    stored = [result for pair in join_results(results) for result in pair.results]
    for group in groups:
        number = {clip.sha256: i for i, clip in enumerate(group.clips)}
        for result in stored:
            i, j = number.get(result.first), number.get(result.second or result.first)
            if i is not None and j is not None and result.prompt == group.prompt:
                group.add(i, j, result)


def find_members(groups: Iterable[ClipGroup]) -> Callable[[Result], bool]:
    """Return a test for a result: whether one of the groups has its prompt and its clips."""
    members: dict[str, list[set[str]]] = {}
    for group in groups:
        members.setdefault(group.prompt, []).append({clip.sha256 for clip in group.clips})
    return lambda of: any({of.first, of.second or of.first} <= clips for clips in members.get(of.prompt, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is judged. One judgement is one order of one pair; `budget` includes those of earlier calls.

    Without a budget or a confidence, every pair of a group of up to 12 clips is judged. Otherwise the judgement that
    tells most is next, until the budget is spent, or each clip is better than the next with this confidence (default
    0.8). Without `both_orders` a pair is judged in one order only. With `exclude_flagged` clips with a measured fault
    are left out. `pointwise` is for a judge that judges each clip by itself: all pairs then follow.
    """

    both_orders: bool = True
    budget: int | None = None
    confidence: float | None = None
    exclude_flagged: bool = False
    pointwise: bool = False

    def for_judge(self, judge: Judge) -> Effort:
        """The effort as this judge can make it. UsageError for a limit on pairs where none are judged."""
        if not judge.pointwise:
            return self
        if self.budget is not None or self.confidence is not None:
            raise UsageError("This judge judges each clip once, by itself: leave --budget and --stop-at out.")
        return replace(self, both_orders=False, pointwise=True)

    def count(self, groups: Sequence[ClipGroup]) -> tuple[int, int]:
        """Count the judgements of these groups, and how many there will be at most.

        There are fewer if the order is certain before that.
        """
        done = sum(len(group.judged) for group in groups)
        if self.pointwise:
            return done, sum(len(group.clips) for group in groups)
        possible = sum(math.comb(len(group.clips), 2) for group in groups) * (1 + self.both_orders)
        return done, max(done, possible if self.budget is None else min(possible, self.budget))


ALL_PAIRS = Effort()
"""What is judged if nothing else is said."""


class RankAbout(Record, frozen=True, kw_only=True):
    """The clips in their groups, the judge's key, name and scope, and how much was to be judged."""

    groups: tuple[ClipGroup, ...] = ()
    prompts: tuple[str, ...] = ()
    judge: str = ""
    model: str = ""
    scope: str = ""
    options: Effort = ALL_PAIRS
    left_out: tuple[ExcludedClip, ...] = ()

    @property
    def clips(self) -> tuple[RankedClip, ...]:
        """The clips of all groups."""
        return tuple(clip for group in self.groups for clip in group.clips)


def read_rank_about(run: Run) -> RankAbout:
    """Read what a ranking's run is about; StoreError if it is something else."""
    return run.read_about(RankAbout, "a ranking")


def read_groups(run: Run) -> tuple[ClipGroup, ...]:
    """Read the groups of a run with the results stored by now, whether the run has ended or not."""
    groups = read_rank_about(run).groups
    add_stored(groups, run.all_results())
    return groups
