"""Counts and lists the judgements of a ranking that are left."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

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

    def clips(self) -> Iterator[tuple[str, str]]:
        """Yield the clips' sha256 of every judgement that may be left, about as they will come."""
        return islice(self._clips(), self.most - self.done)

    def _clips(self) -> Iterator[tuple[str, str]]:
        for group in self.groups:
            if self.effort.pointwise:
                alone = [clip.sha256 for i, clip in enumerate(group.clips) if i not in group.alone]
                yield from zip(alone, alone, strict=True)
                continue
            pairs = list(combinations(range(len(group.clips)), 2))
            if self.effort.chooses(len(group.clips)):
                random.Random(0).shuffle(pairs)
            for i, j in pairs:
                given, exchanged = (i, j) in group.results, (j, i) in group.results
                if not given and (self.effort.both_orders or not exchanged):
                    yield group.clips[i].sha256, group.clips[j].sha256
                if self.effort.both_orders and not exchanged:
                    yield group.clips[j].sha256, group.clips[i].sha256
