"""Tables of labelled pairs as they are published: CSV, TSV, JSONL, a JSON list or parquet, row by row.

A row is its values by column, or a line that says why it cannot be read: one broken row never hides the others. A file
that cannot be read at all is a UsageError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from vrt_lite.advice import install_extra
from vrt_lite.disk import open_to_read
from vrt_lite.errors import UsageError
from vrt_lite.tables import Row, read_rows

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
_MOST_BYTES = 2**30


def numbered_rows(path: Path) -> Iterator[tuple[int, Row | str]]:
    """Yield each row with its number, from 1: its values by column, or why it cannot be read.

    UsageError for a file that cannot be read, is no table, or is parquet while pyarrow is not here.
    """
    match path.suffix.lower():
        case ".csv" | ".tsv" | ".jsonl" | ".ndjson":
            rows = (row for _, row in read_rows(path, most_bytes=_MOST_BYTES))
        case ".json":
            rows = _json_rows(path)
        case ".parquet":
            rows = _parquet_rows(path)
        case _:
            raise UsageError(f"{path} is no table of pairs; one of {', '.join(SUFFIXES)} is.")
    try:
        yield from enumerate(rows, start=1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def columns(path: Path) -> frozenset[str]:
    """Return the columns of the first row that can be read; empty if there is none."""
    return next((frozenset(row) for _, row in numbered_rows(path) if not isinstance(row, str)), frozenset[str]())


def cell_text(value: object) -> str:
    """Return a cell as text; empty for a missing value (None, NaN, "nan", "null")."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas makes 1 a 1.0 where a neighbour is empty
    shown = str(value).strip()
    return "" if shown.lower() in ("nan", "none", "null", "<na>") else shown


def _json_rows(path: Path) -> Iterator[Row | str]:
    """Yield the objects of a list."""
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"{path} is larger than 1 GB; write it as JSONL.")
    try:
        with open_to_read(path) as file:
            found = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON as UTF-8 text: {error}. With a row in each line it is .jsonl.") from error
    if not isinstance(found, list):
        raise UsageError(f"{path} is no list of pairs. With a row in each line it is .jsonl.")
    for row in cast("list[object]", found):
        yield cast("Row", row) if isinstance(row, dict) else f"is not a JSON object: {json.dumps(row)[:40]}"


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs] - an extra
        from pyarrow import parquet  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise UsageError(
            f"{path.name} is parquet, which pyarrow reads. Install it: {install_extra('eval')} "
            "Or export the table as JSONL or CSV."
        ) from error
    arrow = cast("Any", pyarrow)
    try:
        with cast("Any", parquet).ParquetFile(path) as file:
            # Bytes of pictures or clips, where a row carries them, are not read.
            names = [field.name for field in file.schema_arrow if not arrow.types.is_binary(field.type)]
            for batch in file.iter_batches(1000, columns=names):
                yield from batch.to_pylist()
    except arrow.ArrowException as error:
        raise UsageError(f"{path} is no parquet that can be read: {' '.join(str(error).split())[:200]}") from error
