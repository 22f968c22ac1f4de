"""The judge at work on one pair: what it does, and its reasoning as it streams."""

from __future__ import annotations

import time
from typing import Any, Final, TextIO

from vrt_lite.interfaces import (
    Encoding,
    Event,
    Loading,
    Observe,
    OrderEnded,
    Predicted,
    Prefill,
    RoundBegan,
    RoundEnded,
    Waiting,
    Working,
    Wrote,
)
from vrt_lite.protocol.tags import PartReader
from vrt_lite.show.screen import Screen, Status
from vrt_lite.show.words import describe_event, format_range, format_time, name_frames, name_round

_ROWS: Final = 12
_HEADINGS: Final = {
    "snapshot": "Snapshot",
    "think": "Reasoning",
    "recommend": "Recommends",
    "answer": "Answers",
    "final": "Final answer",
    "call": "Asks for frames",
}
"""By kind of part; what is outside of all tags has none."""
_EXCHANGED: Final = "Shown the other way round: what the judge now calls Video 1 is video 2."


class JudgeView(Screen):
    """A screen that shows one comparison; its other options are those of `Screen`.

    A pipe gets the judge's text only if `verbose`; a terminal then keeps it.
    """

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False, **of_screen: Any) -> None:
        super().__init__(stream, rows=None if verbose else _ROWS, **of_screen)
        self._tells_text = verbose or self.console is not None
        self._reader = PartReader()
        self._kind = self._text = self._working = self._predicted = ""
        self._start = time.monotonic()

    def __exit__(self, *exc: object) -> None:
        self._tell_lines(end=True)
        super().__exit__(*exc)

    def observe(self, event: Event) -> None:
        """Show what the judge does."""
        done = total = 0
        now = isinstance(event, Loading | Waiting)
        match event:
            case Predicted(predicted, longer):
                self._start, self._predicted = time.monotonic(), format_range(longer or predicted)
                second = f", or {format_range(longer)} with a second order" if longer else ""
                if not self.console:
                    self.say(f"this will take {format_range(predicted)} here{second}")
            case Working(what):
                now, self._working = what != self._working, what
            case RoundBegan(order, number, frames):
                self._reader, self._kind = PartReader(), ""
                self.step(f"{name_round(order, number)}: {name_frames(order, frames, '; ')}", "bold")
                if order and number == 1 and self._tells_text:
                    self.step(f"  {_EXCHANGED}", "yellow")
            case Encoding(done, total) | Prefill(done, total):
                now = done == 0
            case Wrote(text) if self._tells_text:
                for kind, part in self._reader.read(text):
                    self._tell_part(kind, part)
            case RoundEnded(order, number):
                self._tell_lines(end=True)
                self.step(f"{name_round(order, number)}: {describe_event(event)}")
                return
            case _:
                pass
        if words := describe_event(event):
            self.show(Status(words, done, total, self._describe_time), now=now)

    def _describe_time(self) -> str:
        seconds = time.monotonic() - self._start
        if not self._predicted:
            return format_time(seconds) if self.console else ""
        return f"{format_time(seconds)} of {self._predicted}" if self.console or seconds >= 1 else ""

    def _tell_part(self, kind: str, part: str) -> None:
        """Tell what the judge wrote: complete lines under a heading for each part, the rest as a draft."""
        if kind != self._kind:
            self._tell_lines(end=True)
            self._kind = kind
            if kind:
                self.step(_HEADINGS[kind], "bold")
        self._text += part
        self._tell_lines()

    def _tell_lines(self, *, end: bool = False) -> None:
        *lines, self._text = f"{self._text}\n".split("\n") if end else self._text.split("\n")
        for line in lines:
            if line.strip():
                self.step(f"  {line.expandtabs(4).strip()}")
        self._draft = f"  {self._text}"


class OrderSorter:
    """Tells a view of both orders as if the second came after the first; its progress is told at once.

    Both may be judged at once.
    """

    def __init__(self, show: Observe) -> None:
        self._show = show
        self._held: list[Event] | None = []

    def __call__(self, event: Event) -> None:
        """Tell of an event, now or when the first order has ended."""
        match event:
            case OrderEnded(0):
                held, self._held = self._held, None
                for each in held or ():
                    self._show(each)
            case RoundBegan(order=1) | RoundEnded(order=1) | Wrote(order=1) if self._held is not None:
                self._held.append(event)
            case _:
                self._show(event)
