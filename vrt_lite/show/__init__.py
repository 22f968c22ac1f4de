"""What users see: the judge at work, live on a terminal or in plain lines, and the verdict.

Progress goes to stderr and the verdict to stdout, so that a pipe gets the verdict alone.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import time
from typing import TYPE_CHECKING, TextIO

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
from vrt_lite.protocol.messages import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import describe
from vrt_lite.show.words import (
    chosen_share,
    console_on,
    count_frames,
    describe_event,
    describe_preference,
    describe_recommendation,
    format_range,
    format_time,
    interactive_console,
    name_clips,
    name_frames,
    name_round,
    safe,
    write_headline,
)

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement
    from vrt_lite.show.live import LiveView

LINE_EVERY_SECONDS = 30.0
"""How often plain lines tell the progress of something that takes long."""
__all__ = [
    "LINE_EVERY_SECONDS",
    "OrderSorter",
    "PlainView",
    "list_verdict",
    "safe",
    "show_verdict",
    "verdict_lines",
    "view",
]


def view(
    *, quiet: bool = False, verbose: bool = False, live: bool = True, stream: TextIO | None = None
) -> LiveView | PlainView:
    """Return a view of one comparison on stderr: live on a terminal, else plain lines. It is a context manager.

    With `verbose` the judge's reasoning stays on the screen. `live=False` is for when others also write to stderr.
    """
    to: TextIO | None = stream or sys.stderr
    if to is None:  # stderr was closed when this process started
        return PlainView(io.StringIO(), quiet=True)
    if live and not quiet and (console := interactive_console(to)):
        from vrt_lite.show.live import LiveView  # noqa: PLC0415 - rich only for a terminal

        return LiveView(console, verbose=verbose)
    return PlainView(to, quiet=quiet, verbose=verbose)


def show_verdict(judgement: Judgement, *, advise: bool = False, stream: TextIO | None = None) -> None:
    """Print the verdict on stdout: a panel on a terminal, plain lines elsewhere.

    With `advise` a panel of a bundled judge is followed by the judge to take in its place.
    """
    to = stream or sys.stdout
    if to.isatty():
        from vrt_lite.show.panel import VerdictPanel  # noqa: PLC0415 - rich only for a terminal

        console_on(to).print(VerdictPanel(judgement))
        if advise:
            from vrt_lite.show.better_judge import show_better_judge  # noqa: PLC0415

            show_better_judge(judgement, to)
    else:
        to.writelines(f"{line}\n" for line in verdict_lines(judgement, encoding=to.encoding or "utf-8"))


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


class PlainView:
    """Shows the judge at work in plain lines, one for each stage; none if `quiet`. With `verbose` also its text."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, verbose: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._verbose = verbose
        self._text = ""
        self._stage = self._working = ""
        self._predicted = ""
        self._began = 0.0
        self._due = math.inf

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exc: object) -> None:
        self._print_text("\n")

    def observe(self, event: Event) -> None:
        """Print a line if a stage begins or ends, and every 30 seconds of a judgement that takes long."""
        self._stage = describe_event(event) or self._stage
        if (now := time.monotonic()) >= self._due:
            self._due = now + LINE_EVERY_SECONDS
            self._print(f"{self._stage}, {format_time(now - self._began)} of {self._predicted}")
        match event:
            case Predicted(predicted, longer):
                self._began, self._due = now, now + LINE_EVERY_SECONDS
                self._predicted = format_range(predicted)
                second = f", or {format_range(longer)} with a second order" if longer else ""
                self._print(f"this will take {self._predicted} here{second}")
            case Working(what) if what != self._working:
                self._working = what
                self._print(what)
            case Loading() | Waiting():
                self._print(describe_event(event))
            case RoundBegan(order, _, frames):
                self._print(f"{describe_event(event)}: {name_frames(order, frames, '; ')}")
            case Encoding(0, total, order):
                self._print(f"encoding {total} frame group(s){', clips exchanged' * order}")
            case Prefill(0, total, order):
                self._print(f"reading {total} token(s){', clips exchanged' * order}")
            case Wrote(text):
                self._print_text(text)
            case RoundEnded(order, number):
                self._print_text("\n")
                self._print(f"{name_round(order, number)}: {describe_event(event)}")
            case _:
                pass

    def _print_text(self, text: str) -> None:
        """Print the complete lines of the judge's text, and keep the rest for later."""
        if self._verbose:
            *lines, self._text = (self._text + text).split("\n")
            for line in lines:
                if line.strip():
                    self._print(f"  {line}")

    def _print(self, line: str) -> None:
        if not self._quiet:
            print_line(line, self._stream)


def print_line(line: str, stream: TextIO) -> None:
    """Print a line of progress. If nobody reads it, it is dropped: the verdict must not be lost."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(f"{safe(line, encoding=stream.encoding or 'utf-8')}\n")
        stream.flush()


def list_verdict(judgement: Judgement) -> list[str]:
    """Return the verdict in plain lines for a client's user: the headline, then what `verdict_lines` tells."""
    return [f"{write_headline(judgement.verdict)}.", *verdict_lines(judgement)[1:]]


def verdict_lines(judgement: Judgement, *, encoding: str = "utf-8") -> list[str]:
    """Return the verdict in plain lines, each "key: value"; the first is the overall one."""
    verdict = judgement.verdict
    name = f" ({name_clips(judgement)[judgement.winner - 1]})" if judgement.winner else ""
    lines = [f"overall: {describe(verdict.overall)}{name}{chosen_share(verdict, OVERALL)} [{verdict.source}]"]
    for key in DIMENSIONS:
        lines.append(f"{key}: {describe_preference(judgement, key)}{chosen_share(verdict, key)}")
    if judgement.disagreements:
        lines.append(f"orders disagree: {', '.join(judgement.disagreements)}")
    if judgement.measures:
        # Only where something was measured.
        from vrt_lite.show.measure_rows import describe_measured, split_measure_rows  # noqa: PLC0415

        rows, alike = split_measure_rows(judgement.measures)
        lines += describe_measured(judgement)
        lines += [f"measured {row.name}: {' and '.join(row.values)} {row.unit}, {row.words}" for row in rows]
        lines += [f"measured alike: {alike}"] if alike else []
    lines.append(f"rounds: {' + '.join(str(len(order.rounds)) for order in judgement.orders) or 0}")
    lines.append(f"frames: {count_frames(judgement)}")
    lines.append(f"seconds: {judgement.timings.total:.2f}")
    lines += [f"judge: {judgement.model.name}, {judgement.scope}"] if judgement.scope else []
    if judgement.settings.effort != "full" or judgement.skipped_order or judgement.scores:
        from vrt_lite.show.efforts import describe_effort, describe_skipped_order  # noqa: PLC0415 - rarely needed

        lines += [line for line in (describe_skipped_order(judgement), describe_effort(judgement)) if line]
    warnings = [describe_recommendation(verdict), *judgement.warnings]
    lines += [f"warning: {warning}" for warning in warnings if warning]
    return [safe(line, encoding=encoding) for line in lines]
