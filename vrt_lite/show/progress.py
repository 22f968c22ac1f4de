"""Shows the progress of a run: live on a terminal, as occasional lines in a pipe. All of it goes to stderr."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from vrt_lite.interfaces import Event, Loading, TimeRange, Waiting
from vrt_lite.show import LINE_EVERY_SECONDS, print_line
from vrt_lite.show.leaderboard import board
from vrt_lite.show.run_words import LONG_SECONDS, describe_judgement, describe_prediction
from vrt_lite.show.words import (
    count_of,
    describe_event,
    format_time,
    interactive_console,
    live_on,
    safe,
    spinner_for,
    status_row,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from vrt_lite.ranking.clip_groups import ClipGroup
    from vrt_lite.ranking.ladder import Ladder
    from vrt_lite.ranking.rank import RankProgress

_RATED_EVERY_SECONDS = 0.4
_LINE_EVERY_SHARE = 0.05
_JUDGEMENTS_OF_A_CLIP = 3
"""So many of each clip give a first order of them: a budget to name where all pairs take long."""
_LEAST_BUDGET = 20


@dataclass(frozen=True, slots=True)
class RunState:
    """The progress of a run. `figures` are its results so far, `last` is the last judgement; both are words."""

    done: int = 0
    total: int = 0
    seconds_left: float | None = None
    figures: str = ""
    last: str = ""

    def describe_time_left(self, since: float = 0.0) -> str:
        """The time left in words, so many seconds after this was the state; empty if it is not known, or is over."""
        left = 0.0 if self.seconds_left is None else self.seconds_left - since
        return f"{format_time(left)} left" if left > 0 else ""

    def describe(self, stage: str = "", since: float = 0.0) -> str:
        """Return the state in one line, with what is done now, so many seconds after this was the state."""
        parts = (f"{self.done} of {self.total}", self.figures, self.describe_time_left(since))
        counts, last = ", ".join(filter(None, parts)), stage or self.last
        return f"{counts}: {last}" if last else counts


class LineScreen:
    """Prints states as lines: each one that has a last judgement, else one every 30 seconds or 5 % of the run.

    While a judgement lasts longer than that, a line says every 30 seconds what is done.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._state = self._printed = RunState()
        self._due = self._shown = 0.0
        self._stage = ""

    def __enter__(self) -> LineScreen:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._state.done != self._printed.done:
            self._print_state()

    def begin(self, words: str, state: RunState) -> None:
        """Print the words, if any, and take this state as printed."""
        self._state = self._printed = state
        self._shown = time.monotonic()
        if words:
            self._print(words)

    def show_event(self, event: Event) -> None:
        """Print that something large is loaded, or waited for, and what is done if a line is due."""
        self._stage = describe_event(event) or self._stage
        if isinstance(event, Loading | Waiting):
            self._print(self._stage)
        since = time.monotonic() - self._shown
        if self._state.total and self._stage and since >= LINE_EVERY_SECONDS and time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_EVERY_SECONDS
            self._print(self._state.describe(self._stage, since))

    def show_state(self, state: RunState) -> None:
        """Print the state if a line is due."""
        self._state, self._shown = state, time.monotonic()
        step = state.done - self._printed.done >= _LINE_EVERY_SHARE * state.total
        if state.last or step or state.done == state.total or time.monotonic() >= self._due:
            self._print_state()

    def _print_state(self) -> None:
        self._printed, self._due = self._state, time.monotonic() + LINE_EVERY_SECONDS
        self._print(self._state.describe())

    def _print(self, line: str) -> None:
        if not self._quiet:
            print_line(line, self._stream)


class LiveScreen:
    """Draws the state on a terminal until it closes: the leaderboard of a ranking, the last judgement, a status row.

    Events come in one thread, rich draws in another.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spinner = spinner_for(console)
        self._lock = threading.Lock()
        self._state = RunState()
        self._shown = time.monotonic()
        self._stage = "reading the clips"
        self._ladder: Ladder | None = None
        self._live = live_on(console, self._render)

    def __enter__(self) -> LiveScreen:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def begin(self, words: str, state: RunState) -> None:
        """Show the first state. Its bar says what the words say elsewhere, but for a long time, which is printed."""
        if words and (state.seconds_left or 0) >= LONG_SECONDS:
            self._console.print(safe(words, encoding=self._console.encoding))
        self.show_state(state)

    def show_event(self, event: Event) -> None:
        """Show what the judge does."""
        if stage := describe_event(event):
            with self._lock:
                self._stage = stage

    def show_state(self, state: RunState) -> None:
        """Show this state from the next refresh on."""
        with self._lock:
            self._state, self._stage, self._shown = state, "", time.monotonic()

    def show_ladder(self, ladder: Ladder | None) -> None:
        """Show the best of a leaderboard, if any, above the state: as many as the terminal has lines for."""
        with self._lock:
            self._ladder = ladder

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        with self._lock:
            state, stage, ladder = self._state, self._stage, self._ladder
            left = state.describe_time_left(time.monotonic() - self._shown)
        encoding, (width, height) = self._console.encoding, self._console.size
        rows: list[RenderableType] = []
        if ladder and ladder.standings:
            most = max(height - 5, 1)
            rows.append(board(ladder, self._console, most=most))
            if (more := len(ladder.standings) - most) > 0:
                rows.append(Text(f"and {more} more", "dim"))
        if state.last:
            rows.append(Text(safe(state.last, encoding=encoding), "dim", no_wrap=True, overflow="crop"))
        counts = f"{state.done} of {state.total}" if state.total else ""
        words = safe(", ".join(filter(None, (counts, state.figures, stage))), encoding=encoding)
        status = status_row(self._spinner, words, left, width, done=state.done, total=state.total)
        return Group(*rows, status)


def open_screen(*, quiet: bool = False, live: bool = True, stream: TextIO | None = None) -> LiveScreen | LineScreen:
    """Return a screen on stderr for a run; `live=False` is for when others also write to stderr."""
    to: TextIO | None = stream or sys.stderr
    if to is None:  # stderr was closed when this process started
        return LineScreen(io.StringIO(), quiet=True)
    if live and not quiet and (console := interactive_console(to)):
        return LiveScreen(console)
    return LineScreen(to, quiet=quiet)


class _RunView:
    """Shows a run on its screen. A context manager; `done` counts its judgements, also those of earlier calls."""

    def __init__(self, screen: LiveScreen | LineScreen) -> None:
        self.done: int = 0
        self._screen = screen

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._screen.__exit__(*exc)

    def observe(self, event: Event) -> None:
        """Show what the judge does."""
        self._screen.show_event(event)


class RankingView(_RunView):
    """Shows a ranking at work: its leaderboard on a terminal, a line for each judgement elsewhere."""

    def __init__(self, screen: LiveScreen | LineScreen) -> None:
        super().__init__(screen)
        self._groups: Sequence[ClipGroup] = ()
        self._due = 0.0

    def begins(self, groups: Sequence[ClipGroup], done: int, most: int, predicted: TimeRange | None) -> None:
        """Show how many judgements there will be, how long they will take, and what is known already."""
        self._groups, self.done = groups, done
        clips = sum(len(group.clips) for group in groups)
        words = f"{clips} clips, at most {count_of(most, 'judgement')}, {done} of them made before"
        budget = round(_JUDGEMENTS_OF_A_CLIP * clips, -1)
        state = RunState(done, most, predicted and predicted.middle)
        self._screen.begin(words + describe_prediction(predicted, most - done, budget), state)
        self._rate(groups[0])

    def judged(self, progress: RankProgress) -> None:
        """Show the result of a pair."""
        self.done = progress.done
        last = describe_judgement(self._groups, progress)
        self._screen.show_state(RunState(progress.done, progress.most, progress.seconds_left, last=last))
        self._rate(self._groups[progress.label[0]])

    def _rate(self, group: ClipGroup) -> None:
        """Draw the leaderboard anew, at most a few times a second."""
        screen, start = self._screen, time.monotonic()
        if not isinstance(screen, LiveScreen) or start < self._due:
            return
        from vrt_lite.ranking.ladder import rate_group  # noqa: PLC0415 - numpy

        ladder = rate_group(group)
        end = time.monotonic()
        # Rating hundreds of clips takes longer, and must not hold up the judge.
        self._due = end + max(_RATED_EVERY_SECONDS, 10 * (end - start))
        screen.show_ladder(ladder)


class EvaluationView(_RunView):
    """Shows an evaluation at work: counts, the accuracy so far, and the time left."""

    def __init__(self, screen: LiveScreen | LineScreen, *, total: int) -> None:
        super().__init__(screen)
        screen.begin("", RunState(total=total))
        self._total = total
        self._failed = 0
        self._right_of = {"tau": (0, 0), "diff": (0, 0)}

    def begins(self, judgements: int, predicted: TimeRange | None) -> None:
        """Say how long so many judgements will take, if that is known."""
        budget = max(round(judgements // 10, -1), _LEAST_BUDGET)
        words = describe_prediction(predicted, judgements, budget)
        self._screen.begin(
            words and f"{count_of(judgements, 'judgement')}{words}",
            RunState(self.done, self._total, predicted and predicted.middle),
        )

    def count(self, label: int | None, verdict: int | None, *, seconds_left: float | None) -> None:
        """Count a pair. `label` and `verdict` are the overall ones, None where there is none."""
        self.done += 1
        self._failed += verdict is None
        if label is not None and verdict is not None:
            for measure in ("tau", "diff") if label else ("tau",):
                right, of = self._right_of[measure]
                self._right_of[measure] = right + (label == verdict), of + 1
        left = None if self.done == self._total else seconds_left
        self._screen.show_state(RunState(self.done, self._total, left, self._figures()))

    def _figures(self) -> str:
        parts = [f"{measure} {100 * right / of:.1f}" for measure, (right, of) in self._right_of.items() if of]
        return ", ".join([*parts, f"{self._failed} failed"] if self._failed else parts)
