"""A list of things with their values: a table on a terminal, aligned plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from vrt_lite.show.words import console_on, safe


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None) -> None:
    """Print rows under their headings; no row is cut short."""
    to = stream or sys.stdout
    if not to.isatty():
        write_columns(headings, rows, to)
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(safe(cell, encoding=to.encoding or "utf-8") for cell in row))
    console_on(to).print(table)


def write_columns(headings: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Write rows under their headings as plain lines in aligned columns."""
    shown = [[safe(cell, encoding=stream.encoding or "utf-8") for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        stream.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
