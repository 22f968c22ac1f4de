"""What users see: the judge at work, live on a terminal or in plain lines, and the verdict.

Progress goes to stderr and the verdict to stdout, so that a pipe gets the verdict alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from vrt_lite.show.words import console_on, safe

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement

__all__ = ["list_verdict", "safe", "show_verdict", "verdict_lines"]


def show_verdict(judgement: Judgement, *, advise: bool = False, stream: TextIO | None = None) -> None:
    """Print the verdict on stdout: a panel on a terminal, plain lines elsewhere.

    With `advise` a panel of a bundled judge is followed by the judge to take in its place.
    """
    to = stream or sys.stdout
    if to.isatty():
        from vrt_lite.show.panel import draw_verdict  # noqa: PLC0415 - rich only for a terminal

        console = console_on(to)
        console.print(draw_verdict(judgement, console))
        if advise:
            from vrt_lite.show.better_judge import show_better_judge  # noqa: PLC0415

            show_better_judge(judgement, to)
    else:
        to.writelines(f"{line}\n" for line in verdict_lines(judgement, encoding=to.encoding or "utf-8"))


def list_verdict(judgement: Judgement) -> list[str]:
    """Return the verdict in plain lines for a client's user: the headline, then what `verdict_lines` tells."""
    from vrt_lite.show.pair_words import write_headline  # noqa: PLC0415 - the package is imported for less

    return [f"{write_headline(judgement.verdict)}.", *verdict_lines(judgement)[1:]]


def verdict_lines(judgement: Judgement, *, encoding: str = "utf-8") -> list[str]:
    """Return the verdict in plain lines, each "key: value"; the first is the overall one."""
    from vrt_lite.show import pair_words as words  # noqa: PLC0415 - the package is imported for less

    overall, *rest = words.list_preferences(judgement)
    names, differ = words.name_clips(judgement), ", ".join(judgement.disagreements)
    winner = f"({names[judgement.winner - 1]})" if judgement.winner else ""
    parts = ("overall:", overall.words, winner, overall.share, f"[{judgement.verdict.source}]")
    lines = [" ".join(filter(None, parts)), *(f"{of.key}: {of.words} {of.share}".rstrip() for of in rest)]
    lines += [f"orders disagree: {differ}"] if differ else []
    lines += words.describe_measured(judgement)
    rows = words.list_measures(judgement)
    told = [row for row in rows if row.better != 0]
    lines += [f"measured {row.name}: {' and '.join(row.values)} {row.unit}, {row.words}" for row in told]
    lines += [f"measured alike: {words.list_alike(rows)}"] if len(told) < len(rows) else []
    lines.append(f"rounds: {' + '.join(str(len(order.rounds)) for order in judgement.orders) or 0}")
    lines += [f"frames: {words.count_frames(judgement)}", f"seconds: {judgement.timings.total:.2f}"]
    lines += [f"judge: {judgement.model.name}, {judgement.scope}"] if judgement.scope else []
    lines += [line for line in words.list_limits(judgement) if line != judgement.scope]
    warnings = [words.describe_recommendation(judgement.verdict), *judgement.warnings]
    lines += [f"warning: {warning}" for warning in warnings if warning]
    return [safe(line, encoding=encoding) for line in lines]
