"""A list of things with their values: a table on a terminal, aligned plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vrt_lite.show.words import console_on, print_lines, safe

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
"""Cells between two columns of a table."""


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings; no row is cut short, and a column without a value is left out.

    On a terminal only the widest column breaks, between words. Where even so the table is too wide, each value gets a
    line of its own below the first one of its row.
    """
    columns = [column for column in zip(headings, *rows, strict=True) if any(column[1:]) or not rows]
    if not sys.stdout.isatty():
        print_columns(columns)
        return
    from rich.cells import cell_len
    from rich.measure import Measurement

    console, table = console_on(sys.stdout), begin_table()
    shown = [[safe(cell, encoding=console.encoding) for cell in column] for column in columns]
    widths = [max(map(cell_len, column)) for column in shown]
    for (heading, *_), width in zip(shown, widths, strict=True):
        table.add_column(heading, width=width if width < max(widths) else None)
    for row in zip(*(cells for _, *cells in shown), strict=True):
        table.add_row(*row)
    needed = Measurement.get(console, console.options.update(width=2 * sum(widths)), table).minimum
    if needed > console.width:
        _print_records(columns)
    else:
        console.print(table)


def begin_table() -> Table:
    """Return a table without lines and columns yet."""
    from rich.table import Table

    return Table(
        box=None,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        header_style="dim",
        caption_style="dim",
        caption_justify="left",
    )


def _print_records(columns: Sequence[Sequence[str]]) -> None:
    """Print each row as lines: its first value, and below it every other one after its heading."""
    (_, *names), *others = columns
    for at, name in enumerate(names, start=1):
        named = ((column[0].lower(), column[at]) for column in others if column[at])
        print_lines([name, *(f"  {f'{heading} {cell}'.strip()}" for heading, cell in named)])


def print_columns(columns: Sequence[Sequence[str]]) -> None:
    """Print columns, each of which begins with its heading, as plain lines."""
    shown = [[safe(cell, encoding=sys.stdout.encoding or "utf-8") for cell in column] for column in columns]
    for row in zip(*([cell.ljust(max(map(len, column))) for cell in column] for column in shown), strict=True):
        print("  ".join(row).rstrip())
