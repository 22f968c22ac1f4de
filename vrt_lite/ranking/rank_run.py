"""How much of a ranking is judged, and the description of its run, as values that are kept in the store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vrt_lite.errors import UsageError
from vrt_lite.ranking.clip_groups import ClipGroup, add_stored
from vrt_lite.records.judgement import Record
from vrt_lite.records.ladders import ExcludedClip, RankedClip

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.runs.run import Run

ALL_PAIRS_UP_TO = 12
"""Up to this many clips in a group, every pair is judged, unless a budget or a confidence is given."""
CONFIDENCE = 0.8
"""How certain each place must be if judgements are chosen and no confidence is given.

A higher value is rarely reached: two judgements of a pair, by a judge that never contradicts itself, give about 0.85.
"""


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


class RankAbout(Record, frozen=True, kw_only=True):
    """The clips in their groups, the judge's key, its model's name and scope, and how much was to be judged."""

    groups: tuple[ClipGroup, ...] = ()
    prompts: tuple[str, ...] = ()
    judge: str = ""
    model: str = ""
    scope: str = ""
    options: Effort = Effort()
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
