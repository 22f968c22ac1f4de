"""A list of things with their values: a table for a person at a terminal, aligned plain lines for all else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from vrt_lite.display.escape import safe


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None) -> None:
    """Print rows under their headings; no row is cut short."""
    to = stream or sys.stdout
    shown = [[safe(cell, encoding=to.encoding or "utf-8") for cell in row] for row in rows]
    if to.isatty():
        from rich import box
        from rich.table import Table

        from vrt_lite.display.terminal import console_on  # noqa: PLC0415 - rich only for a terminal

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in headings:
            table.add_column(heading, overflow="fold")
        for row in shown:
            table.add_row(*row)
        console_on(to).print(table)
        return
    widths = [max(map(len, column)) for column in zip(headings, *shown, strict=True)]
    for row in (headings, *shown):
        to.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
