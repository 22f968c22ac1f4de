"""One view of work on stderr: rows and a status that vanish on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from vrt_lite.show.words import console_on, format_time, glyphs_for, percent, print_wrapped, safe, wrap_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EVERY_SECONDS: Final = 30.0
"""How often a pipe gets a line about what takes long."""
_REFRESHES_PER_SECOND: Final = 10
_WIDEST, _WIDEST_BAR = 88, 40
_LINES_OF_STATUS: Final = 2


@dataclass(frozen=True, slots=True)
class Status:
    """What is done now, how much of it, and what `clock` says of the time when it is asked."""

    words: str = ""
    done: int = 0
    total: int = 0
    clock: Callable[[], str] = str

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.words, self.clock())))


class Screen:
    """Shows work on stderr, or another stream. A context manager; any thread may call it, and rich draws in its own.

    `live=False` is for when others also write to stderr. Of the lines of `step` a terminal shows the last `rows`, above
    the status; None leaves all of them on it. `console` is the terminal, None in a pipe. On a terminal what `_board`
    draws in so many lines stands above all else, and `_draft`, a text that is being written, below the rows.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        live: bool = True,
        rows: int | None = 2,
        console: Console | None = None,
    ) -> None:
        to: TextIO | None = stream or sys.stderr  # None: it was closed when this process started
        self._stream = None if quiet else to
        # Each of these is read and replaced in one step, so that rich's thread needs no lock to draw them.
        self._status = Status("opening the clips")
        self._rows: deque[tuple[str, str]] = deque(maxlen=rows)
        self._board: Callable[[Console, int], RenderableType] | None = None
        self._draft = ""
        self._due = time.monotonic() + LINE_EVERY_SECONDS
        self._live = contextlib.ExitStack()
        if console is None and live and self._stream and self._stream.isatty():
            console = console_on(self._stream)
        self.console = console if console and console.is_interactive else None

    def __enter__(self) -> Self:
        if self.console:
            from rich.live import Live

            self._live.enter_context(
                Live(
                    get_renderable=self._render,
                    console=self.console,
                    transient=True,
                    refresh_per_second=_REFRESHES_PER_SECOND,
                    vertical_overflow="crop",
                )
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.close()

    def say(self, line: str, style: str = "") -> None:
        """Print a line that stays. If nobody reads it, it is dropped: the verdict must not be lost."""
        if self.console:
            lines = wrap_line(safe(line, encoding=self.console.encoding), self.console.width)
            self.console.print("\n".join(lines), style=style)
        else:
            self._due = time.monotonic() + LINE_EVERY_SECONDS
            with contextlib.suppress(OSError, ValueError):
                print_wrapped(line, self._stream)

    def step(self, line: str, style: str = "dim") -> None:
        """Tell what has happened."""
        if not self.console or self._rows.maxlen is None:
            self.say(line, style)
        else:
            self._rows.append((line, style))

    def show(self, status: Status, *, now: bool = False) -> None:
        """Show what is done from now on. A pipe gets a line `now`, or when one is due."""
        self._status = status
        if not self.console and status.words and (now or time.monotonic() >= self._due):
            self.say(str(status))

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.text import Text

        assert self.console
        rows, status, board = [*self._rows.copy(), (self._draft, "dim")], self._status, self._board
        width, height = self.console.size
        texts = [Text(safe(line, encoding=self.console.encoding), style) for line, style in rows if line.strip()]
        lines = [line for text in texts for line in text.wrap(self.console, min(width, _WIDEST))]
        above = [board(self.console, max(height - 6, 1))] if board else []
        most = min(self._rows.maxlen or height, max(height - 1 - _LINES_OF_STATUS, 1))
        words = f"{safe(status.words, encoding=self.console.encoding)}  "
        told = Text.assemble(words, (status.clock(), "dim"))
        told.truncate(width - 2, overflow="crop")
        spinner = Spinner(glyphs_for(self.console.options).spinner, told)
        spinner.start_time = 0.0  # so that each drawing has the frame of its moment
        bar = ProgressBar(status.total, status.done, width=min(width, _WIDEST_BAR), complete_style="cyan")
        return Group(*above, *lines[-most:], spinner, *([bar] if status.total else []))


class CountedWork(Screen):
    """A screen that shows how much of some work is done, and the time left at the mean speed so far.

    Any thread may add to it.
    """

    def __init__(self, words: str, **of_screen: Any) -> None:
        super().__init__(**of_screen)
        self._lock = threading.Lock()
        self.begin(words, 0)
        self.show(Status(words))

    def begin(self, words: str, total: int) -> None:
        """Begin anew with this much work."""
        with self._lock:
            self._words, self._total, self._start = words, total, time.monotonic()
            self._done = 0

    def advance(self, count: int) -> None:
        """Add to what is done."""
        with self._lock:
            self._done += count
            # Within the total: what was lost may be more than came since the beginning.
            done, seconds = min(max(self._done, 0), self._total), time.monotonic() - self._start
            left = self._total - done
            clock = f"{format_time(seconds / done * left)} left" if done and left else ""
            words = f"{self._words} {percent(done / self._total, digits=0)}" if self._total else self._words
            self.show(Status(words, done, self._total, lambda: clock))
