"""Shows how a pull goes: its lines, and a bar for the whole with the time left. All of it goes to stderr."""

from __future__ import annotations

import io
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from vrt_lite.show import print_line
from vrt_lite.show.words import format_time, interactive_console, live_on, percent, safe, spinner_for, status_row

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LINE_EVERY_SECONDS = 30.0


class _TransferState:
    """How much of the work is done. Any thread may add to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.total = 0
        self._words = ""
        self._done = 0
        self._start = 0.0

    def begin(self, words: str, total: int) -> None:
        """Begin anew with this much work."""
        with self.lock:
            self.total, self._words, self._done, self._start = total, words, 0, time.monotonic()

    def advance(self, count: int) -> None:
        """Add to what is done."""
        with self.lock:
            self._done += count

    @property
    def done(self) -> int:
        """What is done, within the total: what was lost may be more than came since the beginning."""
        return min(max(self._done, 0), self.total)

    @property
    def words(self) -> str:
        """What happens, and the share that is done."""
        return f"{self._words} {percent(self.done / self.total, digits=0)}" if self.total else self._words

    @property
    def time_left(self) -> str:
        """The time left at the mean speed so far, in words; "" if it is not known."""
        if not 0 < self.done < self.total:
            return ""
        seconds = (time.monotonic() - self._start) / self.done * (self.total - self.done)
        return f"{format_time(seconds)} left"


class TransferLines:
    """Prints a pull's lines, and every 30 seconds how far it is."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._state = _TransferState()
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def say(self, line: str) -> None:
        """Print a line."""
        if not self._quiet:
            print_line(line, self._stream)

    def begin(self, words: str, total: int) -> None:
        """Count from here."""
        self._state.begin(words, total)
        self._due = time.monotonic() + _LINE_EVERY_SECONDS

    def advance(self, count: int) -> None:
        """Count, and print a line if one is due."""
        self._state.advance(count)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _LINE_EVERY_SECONDS
            self.say(", ".join(filter(None, (self._state.words, self._state.time_left))))


class TransferBar:
    """Draws a bar on a terminal, and prints a pull's lines above it. rich draws in a thread of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spinner = spinner_for(console)
        self._state = _TransferState()
        self._live = live_on(console, self._render)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        self._console.print(Text(safe(line, encoding=self._console.encoding)), soft_wrap=True)

    def begin(self, words: str, total: int) -> None:
        """Show the bar from here."""
        self._state.begin(words, total)

    def advance(self, count: int) -> None:
        """Count; the bar follows at its next refresh."""
        self._state.advance(count)

    def _render(self) -> RenderableType:
        with self._state.lock:
            state, width = self._state, self._console.width
            words = state.words or "asking the hub"
            return status_row(self._spinner, words, state.time_left, width, done=state.done, total=state.total)


def open_transfer(*, quiet: bool = False, stream: TextIO | None = None) -> TransferBar | TransferLines:
    """Return a view of a pull on stderr: a bar on a terminal, else lines. It is a context manager."""
    to: TextIO | None = stream or sys.stderr
    if to is None:  # stderr was closed when this process started
        return TransferLines(io.StringIO(), quiet=True)
    if not quiet and (console := interactive_console(to)):
        return TransferBar(console)
    return TransferLines(to, quiet=quiet)
