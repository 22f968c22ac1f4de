"""Reads CSV and JSONL tables row by row, with the line of each row for messages."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Final, TextIO, cast

from vrt_lite.disk import open_to_read
from vrt_lite.errors import UsageError

CSV_SUFFIXES: Final = frozenset((".csv", ".tsv"))
TABLE_SUFFIXES: Final = CSV_SUFFIXES | {".jsonl", ".ndjson"}
_LARGEST_BYTES = 64 * 2**20

Row = Mapping[str, object]


def read_rows(path: Path, *, most_bytes: int = _LARGEST_BYTES) -> Iterator[tuple[int, Row | str]]:
    """Each row with its line: its values by column, or what is wrong with it, to be put after "Line 3".

    A CSV file, also one with semicolons or tabs, begins with the names of its columns; any other file has a JSON object
    in each line. UsageError for a file that cannot be read, is too large, or is not UTF-8 text.
    """
    is_csv = path.suffix.lower() in CSV_SUFFIXES
    try:
        if path.stat().st_size > most_bytes:
            raise UsageError(f"The table {str(path)!r} has more than {most_bytes} bytes. Divide it.")
        with TextIOWrapper(open_to_read(path), encoding="utf-8-sig", newline="") as file:
            yield from _read_csv(file) if is_csv else read_json_lines(file)
    except (OSError, ValueError) as error:
        reason = (
            "it is not UTF-8 text" if isinstance(error, UnicodeError) else getattr(error, "strerror", None) or error
        )
        raise UsageError(f"The table {str(path)!r} cannot be read: {reason}.") from error


def read_whole_table(path: Path, *, columns: Collection[str]) -> Iterator[tuple[str, Row]]:
    """Each row with its place, "'FILE', line 3", and its values; rows of empty cells are skipped.

    UsageError, naming the place, for a row that cannot be read, and for a CSV file without one of the `columns`.
    """
    is_csv = path.suffix.lower() in CSV_SUFFIXES
    for line, row in read_rows(path):
        place = f"{str(path)!r}, line {line}"
        if isinstance(row, str):
            raise UsageError(f"{place} {row}.")
        if is_csv and (missing := set(columns) - {name.casefold() for name in row}):
            raise UsageError(f"{str(path)!r}, line 1 lacks the columns {', '.join(sorted(missing))}.")
        if not row or any(not isinstance(value, str) or value.strip() for value in row.values()):
            yield place, row


def read_json_lines(lines: TextIO) -> Iterator[tuple[int, Row | str]]:
    """The object in each line that is not empty, with the line's number, or what is wrong with the line."""
    for number, line in enumerate(lines, start=1):
        if text := line.strip():
            try:
                row = json.loads(text)
                yield number, cast("Row", row) if isinstance(row, dict) else f"is not a JSON object: {text[:40]}"
            except (ValueError, RecursionError) as error:
                yield number, f"is not JSON: {error}"


def _read_csv(file: TextIO) -> Iterator[tuple[int, Row | str]]:
    heading = file.readline()
    reader = csv.reader(chain([heading], file), delimiter=max(",;\t", key=heading.count), strict=True)
    try:
        names = [cell.strip() for cell in next(reader, list[str]())]
        for cells in filter(None, reader):
            fits = len(cells) == len(names)
            row = dict(zip(names, cells, strict=True)) if fits else f"has {len(cells)} cells, not {len(names)}"
            yield reader.line_num, row
    except csv.Error as error:
        yield reader.line_num, f"is not CSV: {error}"
