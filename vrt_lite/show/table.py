"""A list of things with their values: a table on a terminal, aligned plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from vrt_lite.show.words import console_on, safe
from vrt_lite.show.wrapping import write_lines

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
"""Cells between two columns of a table."""
_PROSE = 24
"""Characters from which a text may take several lines although it has figures in it."""


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None) -> None:
    """Print rows under their headings; no row is cut short, and a column without a value is left out.

    On a terminal only columns of prose break, between words. Where even so the table is too wide, each value gets a
    line of its own below the first one of its row.
    """
    to = stream or sys.stdout
    columns = [column for column in zip(headings, *rows, strict=True) if any(column[1:]) or not rows]
    if not to.isatty():
        write_columns(columns, to)
        return
    console = console_on(to)
    shown = [[safe(cell, encoding=console.encoding) for cell in column] for column in columns]
    for gap in (GAP, 1):
        if widths := _fit_widths(shown, console.width - gap * (len(shown) - 1)):
            table = begin_table(gap)
            for (heading, *_), width in zip(shown, widths, strict=True):
                table.add_column(heading, width=width)
            for row in zip(*(cells for _, *cells in shown), strict=True):
                table.add_row(*row)
            console.print(table)
            return
    _write_records(columns, to)


def begin_table(gap: int = GAP) -> Table:
    """Return a table without lines and columns yet, with so many cells between two columns."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def _fit_widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return the widths of columns that together take `room` cells at most; None if words would break.

    The widest prose gets narrower first. A heading may take several lines, and so may texts without a figure.
    """
    from rich.cells import cell_len

    widths, least = list[int](), list[int]()
    for heading, *cells in columns:
        prose = not widths or any(len(cell) > _PROSE for cell in cells) or not any(map(str.isdigit, "".join(cells)))
        whole = [*heading.split(), *(" ".join(cells).split() if prose else cells)]
        widths.append(max(map(cell_len, [heading, *cells])))
        least.append(max(map(cell_len, whole), default=0))
    while sum(widths) > room:
        spare, at = max((width - narrow, at) for at, (width, narrow) in enumerate(zip(widths, least, strict=True)))
        if spare == 0:
            return None
        widths[at] -= 1
    return widths


def _write_records(columns: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Write each row as lines: its first value, and below it every other one after its heading."""
    (_, *names), *others = columns
    for at, name in enumerate(names, start=1):
        named = ((column[0].lower(), column[at]) for column in others if column[at])
        write_lines([name, *(f"  {f'{heading} {cell}'.strip()}" for heading, cell in named)], stream)


def write_columns(columns: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Write columns, each of which begins with its heading, as plain lines."""
    shown = [[safe(cell, encoding=stream.encoding or "utf-8") for cell in column] for column in columns]
    for row in zip(*([cell.ljust(max(map(len, column))) for cell in column] for column in shown), strict=True):
        stream.write("  ".join(row).rstrip() + "\n")
