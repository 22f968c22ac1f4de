"""The judge at work on one pair: what it does, and its reasoning as it streams."""

from __future__ import annotations

import re
import time
from typing import Any, Final, Self, TextIO

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
from vrt_lite.show.progress import Screen, Status
from vrt_lite.show.words import capitalize_first, describe_event, format_range, format_time, name_frames, name_round

_ROWS: Final = 12
_HEADINGS: Final = {
    "snapshot": "Snapshot",
    "think": "Reasoning",
    "recommend answer": "Recommends",
    "recommended answer": "Recommends",
    "answer": "Answers",
    "final answer": "Final answer",
    "tool call": "Asks for frames",
}
"""By tag: its heading. Any other tag is text."""
# The repeats are bounded, as the parser's are. An unfinished tag waits until it is known to be one.
_TAG: Final = re.compile(
    rf"<[ \t\n]{{0,4}}(/?)[ \t\n]{{0,4}}({'|'.join(_HEADINGS).replace(' ', '[ _]')})[ \t\n]{{0,4}}>", re.IGNORECASE
)
_UNFINISHED_TAG: Final = re.compile(r"<[^<>]{0,32}\Z")
_EXCHANGED: Final = "Shown the other way round: what the judge now calls Video 1 is video 2."


class JudgeView:
    """Shows one comparison on a `Screen` with these options. A context manager.

    A pipe gets the judge's text only if `verbose`; a terminal then keeps it.
    """

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False, **of_screen: Any) -> None:
        self._screen = Screen(stream, rows=None if verbose else _ROWS, **of_screen)
        self._tells_text = verbose or self._screen.is_live
        self._text = self._working = self._predicted = ""
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._tell_text(end=True)
        self._screen.__exit__(*exc)

    def observe(self, event: Event) -> None:
        """Show what the judge does."""
        done = total = 0
        now = isinstance(event, Loading | Waiting)
        match event:
            case Predicted(predicted, longer):
                self._start, self._predicted = time.monotonic(), format_range(longer or predicted)
                second = f", or {format_range(longer)} with a second order" if longer else ""
                if not self._screen.is_live:
                    self._screen.say(f"this will take {format_range(predicted)} here{second}")
            case Working(what):
                now, self._working = what != self._working, what
            case RoundBegan(order, number, frames):
                self._tell(f"{name_round(order, number)}: {name_frames(order, frames, '; ')}", "bold")
                if order and number == 1 and self._tells_text:
                    self._screen.step(f"  {_EXCHANGED}", "yellow")
            case Encoding(done, total) | Prefill(done, total):
                now = done == 0
            case Wrote(text) if self._tells_text:
                self._text += text
                if "\n" in text or ">" in text:
                    self._tell_text()
                self._screen.draft(f"  {_UNFINISHED_TAG.sub('', self._text)}")
            case RoundEnded(order, number):
                self._tell_text(end=True)
                self._tell(f"{name_round(order, number)}: {describe_event(event)}")
            case _:
                pass
        if (words := describe_event(event)) and not isinstance(event, RoundEnded):
            self._screen.show(Status(words, done, total, self._describe_time), now=now)

    def _tell(self, line: str, style: str = "dim") -> None:
        self._screen.step(capitalize_first(line) if self._screen.is_live else line, style)

    def _describe_time(self) -> str:
        seconds = time.monotonic() - self._start
        if not self._screen.is_live and not (self._predicted and seconds >= 1):
            return ""
        return format_time(seconds) + (f" of {self._predicted}" if self._predicted else "")

    def _tell_text(self, *, end: bool = False) -> None:
        """Tell the lines of the judge's text that are complete, under headings in the place of tags; keep the rest."""
        ends = [self._text.rfind("\n") + 1, *(tag.end() for tag in _TAG.finditer(self._text))]
        cut = len(self._text) if end else max(ends)
        complete, self._text = self._text[:cut].expandtabs(4), self._text[cut:]
        for line in map(str.strip, _TAG.sub(_name_tag, complete).split("\n")):
            if line:
                heading = line in _HEADINGS.values()
                self._screen.step(line if heading else f"  {line}", "bold" if heading else "dim")
        self._screen.draft("")


def _name_tag(tag: re.Match[str]) -> str:
    return "\n" if tag[1] else f"\n{_HEADINGS[tag[2].lower().replace('_', ' ')]}\n"


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
            case OrderEnded():
                pass
            case RoundBegan(order=1) | RoundEnded(order=1) | Wrote(order=1) if self._held is not None:
                self._held.append(event)
            case _:
                self._show(event)
