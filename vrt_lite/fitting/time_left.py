"""Tells how much time a judgement still takes, from what was predicted for it and from its progress."""

from __future__ import annotations

import time

from vrt_lite.interfaces import Encoding, Event, Predicted, Prefill, RoundBegan, Wrote

_LEAST_SHARE = 0.05
"""From this share of the work on, the prediction is corrected by the time that the work has taken."""


class TimeLeft:
    """The time left of a judgement that was predicted. `observe` gets its events."""

    def __init__(self, predicted: Predicted) -> None:
        self._predicted = predicted
        self._whole = predicted.seconds
        self._began: float | None = None
        self._done = 0.0
        self._stage = 0.0

    def observe(self, event: Event) -> None:
        """Take note of progress."""
        p = self._predicted
        match event:
            case Encoding(done, _) | Prefill(done, _):
                if self._began is None:
                    self._began = time.monotonic()
                unit = p.pair if isinstance(event, Encoding) else p.read
                if done == 0:
                    self._done += self._stage
                self._stage = done * unit
            case RoundBegan(order=1):
                self._whole = p.most_seconds or p.seconds
            case Wrote(text) if text:
                self._done += p.write
            case _:
                pass

    def seconds(self) -> float | None:
        """Seconds left; None if there is more work than was predicted.

        Work that takes longer or shorter than predicted changes what is left by the same ratio.
        """
        done, whole = self._done + self._stage, self._whole
        if done >= whole:
            return None
        if self._began is None or done < _LEAST_SHARE * whole:
            return whole - done
        return (whole - done) * (time.monotonic() - self._began) / done
