"""Predicts how long the judgements take that are left in a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from vrt_lite.fitting.predicted_time import Prediction, RunForecast, measure_stages
from vrt_lite.judgement import Judgement

_MOST_SHARE = 0.05
"""The most of the time that goes into predicting: a thousand clips have a million orders of pairs."""


class RunClock:
    """The time of a run. `list_left` lists the clips of each judgement that is left, about as they will come.

    A clip is named by any text that no other clip has. `prediction` is None where nothing is known before the first
    judgement.
    """

    def __init__(
        self, prediction: Prediction | None, list_left: Callable[[], Iterable[tuple[str, str]]], *, jobs: int = 1
    ) -> None:
        self._forecast = RunForecast(prediction, jobs=jobs)
        self._list_left = list_left
        self._left: float | None = None
        self._known_at = self._due = 0.0

    def add(self, first: str, second: str, judgement: Judgement) -> None:
        """Add a judgement that was made now."""
        self._forecast.add(first, second, measure_stages(judgement))

    def seconds_left(self) -> float | None:
        """Seconds until the last judgement is made; None if that is not known yet."""
        began = time.monotonic()
        if began >= self._due:
            self._left = self._forecast.predict_seconds(self._list_left())
            self._known_at = time.monotonic()
            self._due = self._known_at + (self._known_at - began) / _MOST_SHARE
        return None if self._left is None else max(self._left - max(began - self._known_at, 0.0), 0.0)
