"""Pairs of clips with their caption, as a user names them: on the command line, or in a CSV or JSONL file.

Knows how such a file is written. Refuses to know what a clip holds: a path that names no file is refused, no more.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrt_lite.errors import UsageError

_NEEDED = ("a", "b", "caption")
_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True)
class ClipPair:
    """Two clips made from one caption; "" for none."""

    a: Path
    b: Path
    caption: str = ""


_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EXAMPLE = ClipPair(_EXAMPLES / "a.mp4", _EXAMPLES / "b.mp4", "A red square moving right.")
"""The pair that comes with a checkout."""


def given_pairs(
    clips: Sequence[tuple[Path, Path]], captions: Sequence[str] = (), *, file: Path | None = None
) -> tuple[ClipPair, ...]:
    """The pairs named one by one, each with its caption or none with any, and after them those of `file`.

    UsageError for another number of captions, a clip that is no file, and what `read_pairs` refuses.
    """
    if captions and len(captions) != len(clips):
        raise UsageError(
            f"--caption is given {len(captions)} times and --clips {len(clips)} times: give one caption for every "
            "pair of clips, or none at all."
        )
    named = [ClipPair(a, b, caption) for (a, b), caption in zip(clips, captions or [""] * len(clips), strict=True)]
    for pair in named:
        _check(pair, "--clips")
    return (*named, *(read_pairs(file) if file else ()))


def read_pairs(path: Path) -> tuple[ClipPair, ...]:
    """The pairs of a CSV file with a header, or of a JSONL file with an object a line: a, b, caption.

    Other columns and keys are passed over. A relative path is meant from the file's own folder. UsageError, naming
    file and line, for anything that is no pair, and for a file without one.
    """
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"{path} is no list of pairs: its name must end in {', '.join(_FORMATS)}.")
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The list of pairs {path} cannot be read as UTF-8: {error}.") from error
    rows = _csv_rows(text, path) if kind == "csv" else _jsonl_rows(text, path)
    found: list[ClipPair] = []
    for number, row in rows:
        where = f"{path} line {number}"
        values = [row.get(key) for key in _NEEDED]
        if not all(isinstance(value, str) for value in values) or not (values[0] and values[1]):
            raise UsageError(f"{where} must give a, b and caption as text, a and b not empty.")
        a, b, caption = map(str, values)
        found.append(ClipPair(path.parent / a, path.parent / b, caption))
        _check(found[-1], where)
    if not found:
        raise UsageError(f"{path} holds no pair: needs at least one line with a, b and caption.")
    return tuple(found)


def _csv_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if missing := set(_NEEDED) - set(reader.fieldnames or ()):
            raise UsageError(f"{path} line 1 lacks the columns {', '.join(sorted(missing))}: needs a,b,caption.")
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UsageError(f"{path} line {reader.line_num} is not CSV: {error}.") from error


def _jsonl_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path} line {number} is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise UsageError(f"{path} line {number} is no object with a, b and caption.")
        yield number, row


def _check(pair: ClipPair, where: str) -> None:
    for clip in (pair.a, pair.b):
        if not clip.is_file():
            raise UsageError(f"{where} names {clip}, which is no file.")
