"""The list that `vrt-lite doctor` prints: findings by group, each with the next command."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from vrt_lite.diagnosis.finding import Finding
from vrt_lite.show.words import console_on, count_of, safe, terminal_width, wrap_line

_STYLES: Final = {"ok": "green", "note": "yellow", "problem": "bold red"}
_INDENT: Final = 11
"""Columns before a finding's text."""


def show_findings(groups: Mapping[str, Sequence[Finding]]) -> None:
    """Print all findings: in colour and wrapped on a terminal, else a line each. A command is never wrapped."""
    from rich.text import Text

    console, width = console_on(sys.stdout), terminal_width(sys.stdout)

    def tell(line: str, style: str = "") -> None:
        text = Text(safe(line, encoding=console.encoding))
        text.stylize(style, 0, _INDENT)
        console.print(text, soft_wrap=True)

    for group, findings in groups.items():
        if findings:
            tell(group, "bold")
        for finding in findings:
            heading = f"  {finding.level:<{_INDENT - 3}} "
            for line in wrap_line(heading + finding.text, width, indent=_INDENT - 2):
                tell(line, _STYLES[finding.level])
            if finding.next_step:
                tell(f"{' ' * _INDENT}next: {finding.next_step}")
    tell(describe_findings(groups))


def describe_findings(groups: Mapping[str, Sequence[Finding]]) -> str:
    """Say how many problems and notes there are."""
    counts = Counter(finding.level for findings in groups.values() for finding in findings)
    if not counts["problem"] and not counts["note"]:
        return "all is well"
    return f"{count_of(counts['problem'], 'problem')}, {count_of(counts['note'], 'note')}"
