"""Drills of footage: one span of a training clip twice, each with faults of its own.

In pairs to judge, most clips have no fault, and some kinds come once in thirty clips. A text model that has read few of
them does not name them, even where the tower's tokens do: of its own training clips it named 1 of 12 with bending. Here
most clips have a visual fault, a motion fault or both, and kinds that are hard to see come more often. Every second
drill is of a pair to judge, so that a judge also learns how rare faults are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from train.footage.footage_pairs import FootagePairs, case_of_spans
from train.footage.footage_spans import draw_varied_span, join_some, shows_when_called
from train.training_cases import LazyCases, TrainingCase
from train.world.captions import draw_unrelated_caption
from train.world.draw_faults import draw_own_faults
from train.world.values import Scene


class FootageDrills(LazyCases):
    """`count` drills from seed `first` on, of the training clips in `folder`. Raises UsageError without clips."""

    def __init__(self, folder: Path, *, first: int, count: int) -> None:
        self._folder, self._seeds = folder, range(first, first + count)
        self._pairs = FootagePairs(folder, "train", first=first, count=count)

    def __len__(self) -> int:
        return len(self._seeds)

    def make(self, place: int) -> TrainingCase:
        """Build the drill of a seed. All random numbers are NumPy's."""
        seed = self._seeds[place]
        if seed % 2:
            return self._pairs[place]
        rng = np.random.default_rng((seed, 14))
        span = join_some(rng, draw_varied_span(rng, self._pairs.clips), self._pairs.clips)
        drawn = (draw_own_faults(rng, span.spec) for _ in range(2))
        own = [tuple(fault for fault in faults if shows_when_called(span, fault)) for faults in drawn]
        a, b = (replace(span, spec=replace(span.spec, defects=faults)) for faults in own)
        scene = Scene(seed, draw_unrelated_caption(rng), None, (a.spec, b.spec), False)
        return case_of_spans(self._folder, f"footage:drill:{seed}", scene, (a, b))
