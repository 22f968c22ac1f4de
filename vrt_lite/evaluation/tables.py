"""Tables of pairs as they are published: CSV, JSONL, JSON and parquet, row by row. Knows formats, no columns.

A row is a plain mapping, or a line that says why it cannot be read: one broken row never hides the others. A file that
cannot be read at all is a UsageError.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from vrt_lite.errors import UsageError

SUFFIXES: Final = (".csv", ".jsonl", ".json", ".parquet")
_FIELD_BYTES = 2**20  # a caption; the csv module's own limit is smaller than some captions
_JSON_BYTES = 2**30

Row = Mapping[str, Any]


def rows(path: Path) -> Iterator[tuple[int, Row | str]]:
    """Each row with its number, from 1: its values by column, or why it cannot be read.

    A byte order mark is passed over. CSV has a heading line; JSON is a list of objects, or JSONL under that name.
    UsageError for a file that cannot be read, is no table, or is parquet while pyarrow is not here.
    """
    readers = {".csv": _csv, ".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path} is no table of pairs; one of {', '.join(SUFFIXES)} is.")
    try:
        yield from enumerate(reader(path), start=1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}). Convert it.") from error


def columns(path: Path) -> frozenset[str]:
    """The columns of the first row that can be read; empty for a table without one."""
    for _, row in rows(path):
        if not isinstance(row, str):
            return frozenset(row)
    return frozenset()


def text(value: Any) -> str:
    """A cell as text: empty for what stands for nothing (None, NaN, "nan", "null")."""
    if value is None or value != value:  # noqa: PLR0124 - NaN is not itself
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas makes 1 a 1.0 where a neighbour is empty
    shown = str(value).strip()
    return "" if shown.lower() in ("nan", "none", "null", "<na>") else shown


def _csv(path: Path) -> Generator[Row | str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        before = csv.field_size_limit(_FIELD_BYTES)
        try:
            yield from _csv_rows(csv.reader(file), path)
        finally:
            csv.field_size_limit(before)


def _csv_rows(reader: Iterator[list[str]], path: Path) -> Generator[Row | str]:
    try:
        heading = [name.strip() for name in next(reader, list[str]())]
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV: {error}.") from error
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield f"is no CSV: {error}"
            continue
        if cells is None:
            return
        if not cells:
            continue
        if len(cells) != len(heading):
            yield f"has {len(cells)} cells, not {len(heading)}"
        else:
            yield dict(zip(heading, cells, strict=True))


def _jsonl(path: Path) -> Generator[Row | str]:
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                yield _object(line)


def _json(path: Path) -> Generator[Row | str]:
    if path.stat().st_size > _JSON_BYTES:
        raise UsageError(f"{path} is larger than 1 GB; write it as JSONL.")
    whole = path.read_text(encoding="utf-8-sig")
    try:
        found = json.loads(whole)
    except (ValueError, RecursionError) as error:
        if whole.lstrip().startswith("{"):
            yield from _jsonl(path)
            return
        raise UsageError(f"{path} is no JSON: {error}.") from error
    if not isinstance(found, list):
        raise UsageError(f"{path} is no list of pairs.")
    for row in cast("list[Any]", found):
        yield cast("Row", row) if isinstance(row, dict) else f"is no object but {json.dumps(row)[:40]}"


def _object(line: str) -> Row | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    return cast("Row", row) if isinstance(row, dict) else f"is no object but {line.strip()[:40]}"


def _parquet(path: Path) -> Generator[Row | str]:
    try:
        import pyarrow  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs] - an extra
        from pyarrow import parquet  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise UsageError(
            f"{path.name} is parquet, which pyarrow reads. Install it: pip install 'vrt-lite[eval]' "
            "Or export the table as JSONL or CSV."
        ) from error
    arrow = cast("Any", pyarrow)
    try:
        with cast("Any", parquet).ParquetFile(path) as file:
            # Bytes of pictures or clips, where a row carries them, are not read.
            wanted = [field.name for field in file.schema_arrow if not arrow.types.is_binary(field.type)]
            for batch in file.iter_batches(1000, columns=wanted):
                yield from batch.to_pylist()
    except arrow.ArrowException as error:
        raise UsageError(f"{path} is no parquet that can be read: {' '.join(str(error).split())[:200]}") from error
