"""What users see: the judge at work, live on a terminal or in plain lines, and the verdict.

Progress goes to stderr and the verdict to stdout, so that a pipe gets the verdict alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vrt_lite.show.words import console_on, print_lines, safe

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement

__all__ = ["safe", "show_verdict"]


def show_verdict(judgement: Judgement, *, advise: bool = False) -> None:
    """Print the verdict on stdout: a panel on a terminal, plain lines elsewhere.

    With `advise` a panel of a bundled judge is followed by the judge to take in its place.
    """
    if sys.stdout.isatty():
        from vrt_lite.show.panel import draw_verdict  # noqa: PLC0415 - rich only for a terminal

        console = console_on(sys.stdout)
        console.print(draw_verdict(judgement, console))
        if advise:
            from vrt_lite.show.better_judge import show_better_judge  # noqa: PLC0415

            show_better_judge(judgement)
    else:
        from vrt_lite.show.pair_words import verdict_lines  # noqa: PLC0415

        print_lines(verdict_lines(judgement))
