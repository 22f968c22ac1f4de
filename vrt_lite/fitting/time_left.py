"""Tells how much time a judgement still takes, from what was predicted for it and from its progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from vrt_lite.interfaces import Encoding, Event, Predicted, Prefill, Wrote

_LEAST_SHARE = 0.05
"""From this share of the work on, the prediction is corrected by the time that the work has taken."""


class TimeLeft:
    """The time left of a judgement that was predicted. `observe` gets its events."""

    def __init__(self, predicted: Predicted, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._predicted = predicted
        self._clock = clock
        self._began: float | None = None
        self._done = 0.0
        self._stage = 0.0

    def observe(self, event: Event) -> None:
        """Take note of progress."""
        p = self._predicted
        match event:
            case Encoding(done, _) | Prefill(done, _):
                if self._began is None:
                    self._began = self._clock()
                unit = p.pair if isinstance(event, Encoding) else p.read
                if done == 0:
                    self._done += self._stage
                self._stage = done * unit
            case Wrote(text) if text:
                self._done += p.write
            case _:
                pass

    def seconds(self) -> float:
        """Seconds left. Work that takes longer or shorter than predicted changes what is left by the same ratio."""
        done, whole = self._done + self._stage, self._predicted.seconds
        left = max(whole - done, 0.0)
        if self._began is None or done < _LEAST_SHARE * whole:
            return left
        return left * (self._clock() - self._began) / done
