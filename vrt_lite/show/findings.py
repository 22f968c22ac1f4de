"""The list that `vrt-lite doctor` prints: findings by group, each with the next command."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TextIO

from vrt_lite.diagnosis import Finding
from vrt_lite.show.words import console_on, safe, write_lines

_STYLES: Final = {"ok": "green", "note": "yellow", "problem": "bold red"}
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
    for level, line in list_lines(groups, width=console.width):
        text = Text(safe(line, encoding=to.encoding or "utf-8"))
        text.stylize(_STYLES.get(level, "bold"), 0, _INDENT if level in _STYLES else None)
        console.print(text, soft_wrap=True)


def list_lines(groups: Mapping[str, Sequence[Finding]], *, width: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield each line, with the level of the finding that it begins; "" for other lines."""
    for group, findings in groups.items():
        if findings:
            yield "", group
        for finding in findings:
            heading = f"  {finding.level:<{_INDENT - 3}} "
            lines = [finding.text]
            if width:
                lines = textwrap.wrap(finding.text, max(width - _INDENT, 20), break_on_hyphens=False)
            yield finding.level, heading + lines[0]
            for line in lines[1:]:
                yield "", " " * _INDENT + line
            if finding.next_step:
                yield "", f"{' ' * _INDENT}next: {finding.next_step}"
    yield "", describe_findings(groups)


def describe_findings(groups: Mapping[str, Sequence[Finding]]) -> str:
    """Say how many problems and notes there are."""
    counts = Counter(finding.level for findings in groups.values() for finding in findings)
    if not counts["problem"] and not counts["note"]:
        return "all is well"
    return f"{_count(counts['problem'], 'problem')}, {_count(counts['note'], 'note')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
