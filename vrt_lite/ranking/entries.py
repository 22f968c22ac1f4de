"""Reads what is to be ranked: files, folders, patterns, or a table of clips. No clip is opened.

A table (CSV, TSV or JSONL) has a column `clip`, and may have `prompt` and `group`. Each group is ranked by itself, by
its prompt.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vrt_lite.errors import UsageError
from vrt_lite.runs.question import escape_surrogates
from vrt_lite.tables import TABLE_SUFFIXES, Row, read_whole_table

VIDEO_SUFFIXES: Final = frozenset(
    (".mp4", ".m4v", ".mov", ".qt", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".3gp", ".3g2")
)
"""The files of a folder that are taken. A file that is named itself is taken with any suffix."""
_PATTERN = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Group:
    """Clips made from one prompt, which are ranked together. `name` is empty if there is only one group."""

    name: str
    prompt: str
    clips: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table; `place` says where the row is, for messages."""

    place: str
    clip: Path
    prompt: str
    group: str | None


def read_entries(arguments: Sequence[str], *, prompt: str = "") -> tuple[Group, ...]:
    """Read the groups that the arguments name: one table, or one group of files, folders and patterns.

    `prompt` is for all clips whose table has none. A folder gives its own videos in natural order, not those of its
    subfolders. A pattern (`*`, `?`, `[…]`, `**`) that no shell has expanded is expanded here. A missing file is no
    error yet: it is later left out. UsageError for a folder or a table that cannot be read.
    """
    prompt = escape_surrogates(prompt)
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
        found = sorted((Path(name) for name in glob.glob(argument, recursive=True)), key=natural_key)  # noqa: PTH207 - absolute
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
    return sorted(found, key=natural_key)


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.is_dir()


def natural_key(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that puts 2 before 10."""
    parts = _DIGITS.split(str(path).casefold())
    return [(int(part) if part.isdecimal() else 0, part) for part in parts], str(path)


def _rows(table: Path) -> list[_Row]:
    rows = [_row(table, place, values) for place, values in read_whole_table(table, columns=("clip",))]
    if not rows:
        raise UsageError(f"The table {str(table)!r} lists no clips.")
    return rows


def _row(table: Path, place: str, values: Row) -> _Row:
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
        # Relative to the table's folder, or absolute.
        table.parent / clip,
        "" if prompt is None else escape_surrogates(str(prompt).strip()),
        None if group is None or group == "" else str(group),
    )


def _groups(rows: Sequence[_Row], prompt: str) -> tuple[Group, ...]:
    """Group the rows; rows without a group are grouped by their prompt. UsageError if a group has two prompts."""
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
        title = "" if len(members) == 1 and kind == "prompt" else name
        groups.append(Group(title, next(iter(prompts), prompt), tuple(row.clip for row in found)))
    return tuple(groups)
