"""A list of things with their values: a table on a terminal, aligned plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from vrt_lite.show.words import console_on, safe
from vrt_lite.show.wrapping import write_lines

GAP = 2
"""Cells between two columns of a table."""
_PROSE = 24
"""Cells from which a text of several words may take several lines."""


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None) -> None:
    """Print rows under their headings; no row is cut short.

    On a terminal only columns of prose break, between words. Where even so the table is too wide, each value gets a
    line of its own below the first one of its row.
    """
    to = stream or sys.stdout
    if not to.isatty():
        write_columns(headings, rows, to)
        return
    from rich.table import Table
    from rich.text import Text

    console = console_on(to)
    shown = [[safe(cell, encoding=to.encoding or "utf-8") for cell in row] for row in rows]
    widths = fit_widths([headings, *shown], console.width)
    if widths is None:
        _write_records(headings, rows, to)
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", collapse_padding=True)
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, width=width)
    for row in shown:
        table.add_row(*map(Text, row))
    console.print(table)


def fit_widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return the widths of columns that fit into `room` cells, the widest prose narrowed first; None if none fit."""
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    # Prose becomes as narrow as its longest word; any other text stays on one line.
    narrowest = [
        max(cell_len(word) for cell in column for word in cell.split() or [""]) if width > _PROSE else width
        for column, width in zip(columns, widths, strict=True)
    ]
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    while excess > 0:
        spare, at = max((width - least, at) for at, (width, least) in enumerate(zip(widths, narrowest, strict=True)))
        if spare <= 0:
            return None
        widths[at] -= 1
        excess -= 1
    return widths


def _write_records(headings: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Write each row as lines: its first value, and below it every other one after its heading."""
    for row in rows:
        inner = " " * (len(row[0]) - len(row[0].lstrip()) + 2)
        named = zip(headings[1:], row[1:], strict=True)
        write_lines(
            [row[0], *(f"{inner}{f'{heading.lower()} ' if heading else ''}{cell}" for heading, cell in named if cell)],
            stream,
        )


def write_columns(headings: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Write rows under their headings as plain lines in aligned columns."""
    shown = [[safe(cell, encoding=stream.encoding or "utf-8") for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        stream.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
