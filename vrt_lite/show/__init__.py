"""What users see: the judge at work, live on a terminal or in plain lines, and the verdict.

Progress goes to stderr and the verdict to stdout, so that a pipe gets the verdict alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import describe
from vrt_lite.show.words import (
    chosen_share,
    console_on,
    count_frames,
    describe_preference,
    describe_recommendation,
    list_keys,
    name_clips,
    safe,
    write_headline,
)

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement

__all__ = ["list_verdict", "safe", "show_verdict", "verdict_lines"]


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


def list_verdict(judgement: Judgement) -> list[str]:
    """Return the verdict in plain lines for a client's user: the headline, then what `verdict_lines` tells."""
    return [f"{write_headline(judgement.verdict)}.", *verdict_lines(judgement)[1:]]


def verdict_lines(judgement: Judgement, *, encoding: str = "utf-8") -> list[str]:
    """Return the verdict in plain lines, each "key: value"; the first is the overall one."""
    verdict = judgement.verdict
    name = f" ({name_clips(judgement)[judgement.winner - 1]})" if judgement.winner else ""
    lines = [f"overall: {describe(verdict.overall)}{name}{chosen_share(verdict, OVERALL)} [{verdict.source}]"]
    for key in list_keys(judgement)[1:]:
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
