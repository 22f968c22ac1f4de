"""Predicts how long the judgements take that are left in a run."""

from __future__ import annotations

from collections.abc import Callable

from vrt_lite.interfaces import TimeRange
from vrt_lite.records.judgement import Judgement


class RunClock:
    """The time of a run: that of its judgements so far, before the first one what is `predicted` of each, if anything.

    `count_left` counts the judgements that are left, `jobs` are made at once.
    """

    def __init__(self, predicted: TimeRange | None, count_left: Callable[[], int], *, jobs: int = 1) -> None:
        self._predicted = predicted
        self._count_left = count_left
        self._jobs = jobs
        self._judged = 0
        self._seconds = 0.0

    def add(self, judgement: Judgement) -> None:
        """Add a judgement that was made now. Loading is left out: it is done once."""
        t = judgement.timings
        self._judged += 1
        self._seconds += t.vision + t.prefill + t.generate + t.other

    def predict(self) -> TimeRange | None:
        """Between what all that is left will take; None if that is not known yet."""
        mean = self._seconds / self._judged if self._judged else None
        each = TimeRange(mean, mean) if mean else self._predicted
        return each and each.times(self._count_left() / self._jobs)

    def seconds_left(self) -> float | None:
        """About the seconds until the last judgement is made; None if that is not known yet."""
        left = self.predict()
        return left and left.middle
