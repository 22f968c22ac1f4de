"""What a person sees: the judge at work, live on a terminal or in plain lines, and the verdict.

Progress goes to stderr and the verdict to stdout, so that a pipe gets the verdict alone. Chooses between the ways
to show; rich is imported only where a terminal is. Refuses to know options, exit statuses and how a judgement came
about.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

from vrt_lite.display.escape import safe
from vrt_lite.display.plain import PlainView, verdict_lines

if TYPE_CHECKING:
    from vrt_lite.display.live import LiveView
    from vrt_lite.judgement import Judgement

__all__ = ["PlainView", "safe", "show_verdict", "verdict_lines", "view"]


def view(
    *, quiet: bool = False, verbose: bool = False, live: bool = True, stream: TextIO | None = None
) -> LiveView | PlainView:
    """What watches a comparison, on stderr: live on a terminal, else plain lines. A context manager.

    `verbose` leaves the judge's reasoning on the screen. `live=False` is for when others write there too.
    """
    to: TextIO | None = stream or sys.stderr
    if to is None:  # closed by whoever started us
        return PlainView(io.StringIO(), quiet=True)
    if live and not quiet and to.isatty():
        from vrt_lite.display.live import LiveView  # noqa: PLC0415 - rich only for a terminal
        from vrt_lite.display.terminal import console_on  # noqa: PLC0415

        console = console_on(to)
        if console.is_interactive:
            return LiveView(console, verbose=verbose)
    return PlainView(to, quiet=quiet, verbose=verbose)


def show_verdict(judgement: Judgement, *, stream: TextIO | None = None) -> None:
    """Print the verdict on stdout: a panel for a person at a terminal, plain lines for all else."""
    to = stream or sys.stdout
    if to.isatty():
        from vrt_lite.display.panel import VerdictPanel  # noqa: PLC0415 - rich only for a terminal
        from vrt_lite.display.terminal import console_on  # noqa: PLC0415

        console_on(to).print(VerdictPanel(judgement))
    else:
        to.writelines(f"{line}\n" for line in verdict_lines(judgement, encoding=to.encoding or "utf-8"))
