"""What is to be ranked, as it was asked for: files, folders, patterns, or a table of clips. Standard library only.

A table (CSV, TSV or JSONL) has a column `clip`, and may have `prompt` and `group`; a group is ranked by itself, by its
prompt. Refuses to know what is in a clip, and whether it can be opened.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from vrt_lite.errors import UsageError

VIDEO_SUFFIXES: Final = frozenset(
    (".mp4", ".m4v", ".mov", ".qt", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".3gp", ".3g2")
)
"""Of a folder, the files that are taken. A file that is named is taken whatever its suffix."""
TABLE_SUFFIXES: Final = frozenset((".csv", ".tsv", ".jsonl", ".ndjson"))
LARGEST_TABLE_BYTES: Final = 64 * 2**20
_PATTERN = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Group:
    """Clips that are ranked among themselves, made from one prompt. `name` is empty where there is one group only."""

    name: str
    prompt: str
    clips: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table; `place` says where it stands, for messages."""

    place: str
    clip: Path
    prompt: str
    group: str | None


def read_entries(arguments: Sequence[str], *, prompt: str = "") -> tuple[Group, ...]:
    """The groups that the arguments name: one table, or files, folders and patterns, which are one group.

    `prompt` is for all clips whose table gives none. A folder gives its videos, in natural order, and not those of its
    subfolders. A pattern (`*`, `?`, `[…]`, `**`) that no shell has replaced is replaced here. A file that is not there
    is no error yet: it is among the clips that cannot be opened. UsageError for what cannot be understood.
    """
    prompt = _sound(prompt)
    tables = [argument for argument in arguments if Path(argument).suffix.lower() in TABLE_SUFFIXES]
    if tables and len(arguments) > 1:
        raise UsageError(f"{tables[0]!r} is a table: give one table alone, or clips and folders.")
    if tables:
        return _groups(_rows(Path(tables[0])), prompt)
    clips = [path for argument in arguments for path in _paths(argument)]
    return (Group("", prompt, tuple(clips)),)


def _paths(argument: str) -> list[Path]:
    path = Path(argument)
    try:
        if path.is_dir():
            return _videos(path)
        if path.exists() or not _PATTERN.search(argument):
            return [path]
        found = sorted((Path(name) for name in glob.glob(argument, recursive=True)), key=natural)  # noqa: PTH207 - absolute
    except (OSError, ValueError) as error:
        raise UsageError(f"{argument!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not found:
        raise UsageError(f"No file matches {argument!r}.")
    return [path for path in found if not path.is_dir()]


def _videos(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if path.suffix.lower() in VIDEO_SUFFIXES and not _hidden(path)]
    if not found:
        raise UsageError(
            f"The folder {str(folder)!r} holds no videos ({' '.join(sorted(VIDEO_SUFFIXES))}). "
            "Name files of another kind one by one, or by a pattern."
        )
    return sorted(found, key=natural)


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.is_dir()


def natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Sorts 2 before 10."""
    parts = _DIGITS.split(str(path).casefold())
    return [(int(part) if part.isdecimal() else 0, part) for part in parts], str(path)


def _rows(table: Path) -> list[_Row]:
    text = _text(table)
    named = _json_lines(table, text) if table.suffix.lower() in (".jsonl", ".ndjson") else _csv_lines(table, text)
    rows = [_row(table, place, values) for place, values in named]
    if not rows:
        raise UsageError(f"The table {str(table)!r} lists no clips.")
    return rows


def _text(table: Path) -> str:
    try:
        with table.open("rb") as file:
            data = file.read(LARGEST_TABLE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"The table {str(table)!r} cannot be read: {reason}.") from error
    if len(data) > LARGEST_TABLE_BYTES:
        raise UsageError(f"The table {str(table)!r} has more than {LARGEST_TABLE_BYTES} bytes. Divide it.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The table {str(table)!r} is not UTF-8 text (byte {error.start}). Save it as UTF-8."
        ) from error


def _json_lines(table: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{str(table)!r}, line {number}"
        try:
            values: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{place}: no JSON ({error}).") from error
        if not isinstance(values, dict):
            raise UsageError(f'{place}: a JSON object is needed, such as {{"clip": "a.mp4"}}.')
        yield place, cast("dict[str, Any]", values)


def _csv_lines(table: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    heading = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=heading.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    try:
        for cells in reader:
            place = f"{str(table)!r}, line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if names is None:
                names = [cell.strip().casefold() for cell in cells]
                if "clip" not in names:
                    raise UsageError(f"{place}: no column `clip`. The first line names them: clip, prompt, group.")
                continue
            if len(cells) != len(names):
                raise UsageError(f"{place}: {len(cells)} cells, but the first line names {len(names)} columns.")
            yield place, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise UsageError(f"{str(table)!r}, line {reader.line_num}: no CSV ({error}).") from error


def _row(table: Path, place: str, values: Mapping[str, Any]) -> _Row:
    known = {str(name).casefold(): value for name, value in values.items()}
    for name in ("clip", "prompt", "group"):
        if not isinstance(known.get(name, ""), str | int | None) or isinstance(known.get(name), bool):
            raise UsageError(f"{place}: `{name}` must be text.")
    clip = known.get("clip")
    if not isinstance(clip, str) or not clip.strip() or "\0" in clip:
        raise UsageError(f"{place}: `clip` names no file.")
    prompt, group = known.get("prompt"), known.get("group")
    return _Row(
        place,
        # Beside the table, or wherever an absolute path says.
        table.parent / clip,
        "" if prompt is None else _sound(str(prompt).strip()),
        None if group is None or group == "" else str(group),
    )


def _sound(text: str) -> str:
    """Text without lone surrogates, which neither a judge nor a store can take: they become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _groups(rows: Sequence[_Row], prompt: str) -> tuple[Group, ...]:
    """Rows by group; rows without one are grouped by their prompt. UsageError if a group has two prompts."""
    members: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        key = ("group", row.group) if row.group is not None else ("prompt", row.prompt or prompt)
        members.setdefault(key, []).append(row)
    groups: list[Group] = []
    for (kind, name), found in members.items():
        prompts = {row.prompt: row.place for row in found if row.prompt}
        if len(prompts) > 1:
            place = list(prompts.values())[1]
            raise UsageError(f"{place}: group {name!r} has two prompts. One group has one prompt.")
        said = next(iter(prompts), prompt)
        shown = "" if len(members) == 1 and kind == "prompt" else name
        groups.append(Group(shown, said, tuple(row.clip for row in found)))
    return tuple(groups)
