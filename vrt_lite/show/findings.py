"""The list that `vrt-lite doctor` prints: findings by group, each with the next command."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TextIO

from vrt_lite.diagnosis.finding import Finding
from vrt_lite.show.words import console_on, count_of, safe
from vrt_lite.show.wrapping import terminal_width, wrap_line, write_lines

_STYLES: Final = {"heading": "bold", "ok": "green", "note": "yellow", "problem": "bold red"}
_INDENT: Final = 11
"""Columns before a finding's text."""


def show_findings(groups: Mapping[str, Sequence[Finding]], *, stream: TextIO | None = None) -> None:
    """Print all findings: in colour and wrapped on a terminal, else a line each. A command is never wrapped."""
    to = stream or sys.stdout
    if not to.isatty():
        write_lines((line for _, line in list_lines(groups)), to)
        return
    from rich.text import Text

    console = console_on(to)
    for kind, line in list_lines(groups, width=terminal_width(to)):
        text = Text(safe(line, encoding=to.encoding or "utf-8"))
        text.stylize(_STYLES.get(kind, ""), 0, _INDENT)
        console.print(text, soft_wrap=True)


def list_lines(groups: Mapping[str, Sequence[Finding]], *, width: int = 0) -> Iterator[tuple[str, str]]:
    """Yield each line after what it begins: a "heading", or the level of a finding; "" for any other line."""
    for group, findings in groups.items():
        if findings:
            yield "heading", group
        for finding in findings:
            heading = f"  {finding.level:<{_INDENT - 3}} "
            first, *lines = wrap_line(heading + finding.text, width, indent=_INDENT - 2)
            yield finding.level, first
            for line in lines:
                yield "", line
            if finding.next_step:
                yield "", f"{' ' * _INDENT}next: {finding.next_step}"
    yield "", describe_findings(groups)


def describe_findings(groups: Mapping[str, Sequence[Finding]]) -> str:
    """Say how many problems and notes there are."""
    counts = Counter(finding.level for findings in groups.values() for finding in findings)
    if not counts["problem"] and not counts["note"]:
        return "all is well"
    return f"{count_of(counts['problem'], 'problem')}, {count_of(counts['note'], 'note')}"
