"""Reads what is to be ranked: files, folders, patterns, or a table of clips. No clip is opened.

A table (CSV, TSV or JSONL) has a column `clip`, and may have `prompt` and `group`. Each group is ranked by itself, by
its prompt.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.clip_files import add_rate, group_pictures, is_clip_there
from vrt_lite.errors import UsageError
from vrt_lite.records.pairs import escape_surrogates
from vrt_lite.tables import TABLE_SUFFIXES, Row, read_whole_table

VIDEO_SUFFIXES: Final = frozenset(
    (
        *(".mp4", ".m4v", ".mov", ".qt", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg"),
        *(".3gp", ".3g2", ".gif", ".webp"),
    )
)
"""The files of a folder that are taken. A file that is named itself is taken with any suffix."""
_PATTERN = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_MOST_NAMED = 4
_MOST_FOLDERS = 50


@dataclass(frozen=True, slots=True)
class Group:
    """Clips made from one prompt, which are ranked together. `name` is empty if there is only one group.

    `left_out` has a line for each folder that holds more than its clips.
    """

    name: str
    prompt: str
    clips: tuple[Path, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table; `place` says where the row is, for messages."""

    place: str
    clip: Path
    prompt: str
    group: str | None


def read_entries(
    arguments: Sequence[str], *, prompt: str = "", fps: str | None = None, recursive: bool = False
) -> tuple[Group, ...]:
    """Read the groups that the arguments name: one table, or one group of files, folders and patterns.

    `prompt` is for all clips whose table has none, `fps` for numbered pictures without a frame rate. A folder gives its
    own videos in natural order, and if `recursive` those of its subfolders. A pattern (`*`, `?`, `[…]`, `**`) that no
    shell has expanded is expanded here. A missing file is no error yet: it is later left out. UsageError for a folder
    or a table that cannot be read.
    """
    prompt = escape_surrogates(prompt)
    tables = [argument for argument in arguments if Path(argument).suffix.lower() in TABLE_SUFFIXES]
    if tables and len(arguments) > 1:
        raise UsageError(f"{tables[0]!r} is a table: give one table alone, or clips and folders.")
    if tables:
        groups = _groups(_rows(Path(tables[0])), prompt)
    else:
        found = [_paths(argument, recursive=recursive) for argument in arguments]
        clips = tuple(path for paths, _ in found for path in paths)
        groups = (Group("", prompt, clips, tuple(line for _, line in found if line)),)
    rated = iter(add_rate([clip for group in groups for clip in group.clips], fps))
    return tuple(replace(group, clips=tuple(next(rated) for _ in group.clips)) for group in groups)


def _paths(argument: str, *, recursive: bool) -> tuple[list[Path], str]:
    """Return the clips that an argument names, and a line on what its folder holds beside them."""
    path = Path(argument)
    try:
        if path.is_dir():
            return list_folder(path, recursive=recursive)
        if path.exists() or not _PATTERN.search(argument):
            return [path], ""
        found = sorted((Path(name) for name in glob.glob(argument, recursive=True)), key=natural_key)  # noqa: PTH207 - absolute
        clips = [path for path in found if not path.is_dir() or is_clip_there(path)]
    except (OSError, ValueError) as error:
        raise UsageError(f"{argument!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not found:
        raise UsageError(f"No file matches {argument!r}.")
    return clips, ""


def list_folder(folder: Path, *, recursive: bool = False) -> tuple[list[Path], str]:
    """Return a folder's clips in natural order, and a line on what it holds beside them, "" for nothing.

    With `recursive` its subfolders' videos are clips too. A folder of numbered pictures alone is one clip. UsageError
    for a folder without clips.
    """
    everything = _list_below(folder) if recursive else _list_visible(folder)
    clips = _choose_videos(everything)
    if clips:
        return clips, _describe_rest(folder, sorted(set(everything) - set(clips), key=natural_key))
    if is_clip_there(folder):
        return [folder], ""
    folders = [path for path in everything[:_MOST_FOLDERS] if path.is_dir()]
    advice = "Name files of another kind one by one, or by a pattern."
    if any(map(is_clip_there, folders)):
        advice = f"Its folders of numbered pictures are clips: give {str(folder / '*')!r}."
    elif any(map(list_videos, folders)):
        advice = "Its folders hold some: give --recursive."
    raise UsageError(f"The folder {str(folder)!r} holds no videos ({' '.join(sorted(VIDEO_SUFFIXES))}). {advice}")


def list_videos(folder: Path) -> list[Path]:
    """Return a folder's video files in natural order, also none. Raises OSError."""
    return _choose_videos(_list_visible(folder))


def _list_visible(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=natural_key)


def _list_below(folder: Path) -> list[Path]:
    inside = (path for path in folder.rglob("*") if not path.is_dir())
    visible = (path for path in inside if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return sorted(visible, key=natural_key)


def _choose_videos(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES and not path.is_dir()]


def _describe_rest(folder: Path, rest: Sequence[Path]) -> str:
    """Describe what is left out of a folder, and why, in one line."""
    if not rest:
        return ""
    groups = group_pictures(path.name for path in rest if path.is_file())
    parts = [f"{len(names)} numbered pictures (give {folder / pattern})" for pattern, names in groups.items()]
    others: list[str] = []
    grouped = {name for names in groups.values() for name in names.values()}
    for path in (path for path in rest if path.name not in grouped):
        below = group_pictures(inner.name for inner in path.iterdir()) if path.is_dir() else {}
        if len(below) == 1:
            [(pattern, names)] = below.items()
            parts.append(f"{path.name} is a folder of {len(names)} numbered pictures (give {path / pattern})")
        elif path.is_dir():
            others.append(f"{path.name} is a folder{' (--recursive takes its videos)' if list_videos(path) else ''}")
        else:
            others.append(f"{path.name} is no clip")
    shown = [*parts[:_MOST_NAMED], *others[:_MOST_NAMED]]
    more = ["more"] if len(parts) + len(others) > len(shown) else []
    return f"{folder}: {len(rest)} left out: {'; '.join([*shown, *more])}."


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
