"""A ranking at work: its leaderboard, live on a terminal, or a line a judgement where there is none.

Both go to stderr. Knows rich, which is imported where a terminal is; refuses to know what is asked next.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from vrt_lite.display.escape import safe
from vrt_lite.display.plain import name_wait, say_line
from vrt_lite.interfaces import Encoding, Event, Loading, Prefill, RoundBegan, Waiting, Wrote
from vrt_lite.protocol.tags import OVERALL

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from vrt_lite.ranking.contest import Contest
    from vrt_lite.ranking.ladder import Ladder
    from vrt_lite.ranking.rank import Progress

_RATED_EVERY_SECONDS = 0.4
_WIDEST_BAR = 30


def rank_view(*, quiet: bool = False, live: bool = True, stream: TextIO | None = None) -> LiveBoard | PlainBoard:
    """What watches a ranking, on stderr: live on a terminal, else plain lines. A context manager."""
    to: TextIO | None = stream or sys.stderr
    if to is None:  # closed by whoever started us
        return PlainBoard(io.StringIO(), quiet=True)
    if live and not quiet and to.isatty():
        from vrt_lite.display.terminal import console_on  # noqa: PLC0415 - rich only for a terminal

        console = console_on(to)
        if console.is_interactive:
            return LiveBoard(console)
    return PlainBoard(to, quiet=quiet)


class PlainBoard:
    """A line a judgement; no control codes, nothing if `quiet`."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.done = 0
        self._stream = stream
        self._quiet = quiet
        self._contests: Sequence[Contest] = ()

    def __enter__(self) -> PlainBoard:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to take away."""

    def begins(self, contests: Sequence[Contest], done: int, most: int) -> None:
        """Say how many judgements there will be."""
        self._contests, self.done = contests, done
        clips = sum(len(contest.clips) for contest in contests)
        self._say(f"{clips} clips, at most {most} judgements, {done} of them made before")

    def judged(self, progress: Progress) -> None:
        """Say what came of a pair."""
        self.done = progress.done
        left = "" if progress.seconds_left is None else f", {tell_time(progress.seconds_left)} left"
        self._say(f"{progress.done} of {progress.most}{left}: {tell_answer(self._contests, progress)}")

    def observe(self, event: Event) -> None:
        """Say that something large is loaded, or waited for."""
        match event:
            case Loading(what):
                self._say(f"loading {what}")
            case Waiting(what, attempt):
                self._say(name_wait(what, attempt))
            case _:
                pass

    def _say(self, line: str) -> None:
        if not self._quiet:
            say_line(line, self._stream)


class LiveBoard:
    """The places as they stand, and how far it is; both go when the view closes, as the leaderboard follows.

    Events come in one thread, rich draws in another.
    """

    def __init__(self, console: Console) -> None:
        from vrt_lite.display.glyphs import glyphs_for  # noqa: PLC0415 - rich only for a terminal
        from vrt_lite.display.terminal import live_on  # noqa: PLC0415

        self.done = 0
        self._console = console
        self._glyphs = glyphs_for(console.options)
        self._lock = threading.Lock()
        self._contests: Sequence[Contest] = ()
        self._ladder: Ladder | None = None
        self._progress: Progress | None = None
        self._most = 0
        self._stage = "Reading the clips"
        self._began = time.monotonic()
        self._due = 0.0
        self._live = live_on(console, self._render)

    def __enter__(self) -> LiveBoard:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def begins(self, contests: Sequence[Contest], done: int, most: int) -> None:
        """Show what is known already."""
        from vrt_lite.ranking.ladder import rank  # noqa: PLC0415 - numpy

        ladder = rank(contests[0])
        with self._lock:
            self._contests, self.done, self._most, self._ladder = contests, done, most, ladder
            self._stage = ""

    def judged(self, progress: Progress) -> None:
        """Rate anew, at most some times a second."""
        from vrt_lite.ranking.ladder import rank  # noqa: PLC0415 - numpy

        ladder, began = None, time.monotonic()
        if began > self._due:
            ladder = rank(self._contests[progress.label[0]])
            ended = time.monotonic()
            # Of hundreds of clips that takes longer, and must not hold up the judge.
            self._due = ended + max(_RATED_EVERY_SECONDS, 10 * (ended - began))
        with self._lock:
            self._progress, self.done, self._most = progress, progress.done, progress.most
            self._ladder, self._stage = ladder or self._ladder, ""

    def observe(self, event: Event) -> None:
        """Show what the judge is at."""
        match event:
            case Loading(what):
                stage = f"loading {what}"
            case Encoding():
                stage = "encoding frames"
            case Prefill():
                stage = "reading"
            case RoundBegan(_, number):
                stage = f"round {number}"
            case Waiting(what, attempt):
                stage = name_wait(what, attempt)
            case Wrote(text) if text:
                stage = "writing"
            case _:
                return
        with self._lock:
            self._stage = stage

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from vrt_lite.display.leaderboard import board  # noqa: PLC0415 - rich only for a terminal

        width, height = self._console.size
        with self._lock:
            ladder, progress, stage = self._ladder, self._progress, self._stage
            done, most = self.done, self._most
        row = self._status(done, most, stage, progress, width)
        if ladder is None or not ladder.standings:
            return row
        encoding = self._console.encoding
        room = max(height - 5, 1)
        parts: list[RenderableType] = [board(ladder, width, glyphs=self._glyphs, encoding=encoding, most=room)]
        if len(ladder.standings) > room:
            parts.append(Text(f"and {len(ladder.standings) - room} more", "dim"))
        if progress:
            said = safe(tell_answer(self._contests, progress), encoding=encoding)
            line = Text(said, "dim", no_wrap=True)
            line.truncate(width, overflow="ellipsis" if self._glyphs.ellipsis == "…" else "crop")
            parts.append(line)
        return Group(*parts, row)

    def _status(self, done: int, most: int, stage: str, progress: Progress | None, width: int) -> RenderableType:
        from rich.text import Text

        from vrt_lite.display.terminal import append_bar, spinner  # noqa: PLC0415 - rich only for a terminal

        spin = spinner(time.monotonic() - self._began, self._glyphs)
        counted = f"{done} of {most}" if most else ""
        left = progress.seconds_left if progress else None
        time_left = f"{tell_time(left)} left" if left is not None else ""
        encoding = self._console.encoding
        row = Text(f"{spin} {counted}", no_wrap=True)
        room = min(width - row.cell_len - len(time_left) - 6, _WIDEST_BAR)
        append_bar(row, done, most, room=room, glyphs=self._glyphs)
        row.append(f"  {time_left}" if time_left else "")
        row.append(f"  {safe(stage, encoding=encoding)}", "dim")
        row.truncate(width, overflow="crop")
        return row


def tell_answer(contests: Sequence[Contest], progress: Progress) -> str:
    """One judgement in a line, by the clips' names."""
    number, i, j = progress.label
    one, two = (contests[number].clips[clip].name for clip in (i, j))
    if not progress.result.winners:
        return f"{one} and {two}: no verdict ({progress.result.error})"
    winner, odds = progress.result.winners[OVERALL], progress.result.odds.get(OVERALL)
    share = f" {odds[winner]:.2f}" if odds else ""
    return (f"{one} and {two} tie", f"{one} beats {two}", f"{two} beats {one}")[winner] + share


def tell_time(seconds: float) -> str:
    """A span as a person says it: 8 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
