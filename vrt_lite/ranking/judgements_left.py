"""Counts the judgements of a ranking that are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.ranking.rank_run import Effort


@dataclass(frozen=True, slots=True)
class JudgementsLeft:
    """The judgements of these groups. At most `most` are made in all, fewer if the order is certain before that."""

    groups: Sequence[ClipGroup]
    effort: Effort

    @property
    def done(self) -> int:
        """How many judgements there are."""
        if self.effort.pointwise:
            return sum(len(group.alone) for group in self.groups)
        return sum(len(group.results) for group in self.groups)

    @property
    def most(self) -> int:
        """How many judgements there will be at most."""
        if self.effort.pointwise:
            return sum(len(group.clips) for group in self.groups)
        possible = sum(len(g.clips) * (len(g.clips) - 1) // 2 for g in self.groups) * (1 + self.effort.both_orders)
        return max(self.done, possible if self.effort.budget is None else min(possible, self.effort.budget))
