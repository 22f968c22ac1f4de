"""Reads what is to be ranked: files, folders, patterns, or a table of clips. No clip is opened.

A table (CSV, TSV or JSONL) has a column `clip`, and may have `prompt` and `group`. Each group is ranked by itself, by
its prompt.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

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
"""The files of a folder that are taken, but for a still GIF or WebP. One that is named itself may have any suffix."""
_PATTERN = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Group:
    """Clips made from one prompt, which are ranked together. `name` is empty if there is only one group.

    `left_out` has a line for each folder that holds more than its clips.
    """

    name: str
    prompt: str
    clips: tuple[Path, ...]
    left_out: tuple[str, ...] = ()


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
        groups = _read_table(Path(tables[0]), prompt)
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
    everything = _list_visible(folder, recursive=recursive)
    clips = _choose_videos(everything)
    if clips:
        return clips, _describe_rest(folder, sorted(set(everything) - set(clips), key=natural_key))
    if is_clip_there(folder):
        return [folder], ""
    advice = "Name files of another kind one by one, or by a pattern."
    if any(path.is_dir() for path in everything):
        advice = "Give --recursive for those of its folders. A folder of numbered pictures is a clip if it is named."
    raise UsageError(f"The folder {str(folder)!r} holds no videos ({' '.join(sorted(VIDEO_SUFFIXES))}). {advice}")


def list_videos(folder: Path) -> list[Path]:
    """Return a folder's video files in natural order, also none. Raises OSError."""
    return _choose_videos(_list_visible(folder))


def _list_visible(folder: Path, *, recursive: bool = False) -> list[Path]:
    """List what is in a folder, or if `recursive` all files below it, but for what is hidden, in natural order."""
    found = folder.rglob("*") if recursive else folder.iterdir()
    visible = (path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return sorted((path for path in visible if not (recursive and path.is_dir())), key=natural_key)


def _choose_videos(paths: Sequence[Path]) -> list[Path]:
    named = (path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES and not path.is_dir())
    return [path for path in named if not _is_still(path)]


def _is_still(path: Path) -> bool:
    """Whether a file is a WebP or a whole GIF of one picture. What cannot be read is refused when it is opened."""
    tells = {".gif": _is_still_gif, ".webp": _is_still_webp}.get(path.suffix.lower())
    with contextlib.suppress(Exception):  # Pillow raises many kinds for damaged data
        if tells and path.is_file():
            with path.open("rb") as file:
                return tells(file)
    return False


def _is_still_webp(file: BinaryIO) -> bool:
    """Whether the header of a WebP tells of no animation."""
    head = file.read(21)
    return len(head) == 21 and head[8:12] == b"WEBP" and not (head[12:16] == b"VP8X" and head[20] & 2)


def _is_still_gif(file: BinaryIO) -> bool:
    """Whether a GIF has its last byte, and one picture. Of one that is still being written, more may come."""
    from PIL import Image

    file.seek(-1, os.SEEK_END)
    if file.read() != b";":
        return False
    with Image.open(file, formats=("GIF",)) as picture:
        return not getattr(picture, "is_animated", True)


def _describe_rest(folder: Path, rest: Sequence[Path]) -> str:
    """Describe what is left out of a folder in one line."""
    if not rest:
        return ""
    pictures = group_pictures(path.name for path in rest if path.is_file())
    grouped = {name for names in pictures.values() for name in names.values()}
    shown = [f"{len(names)} numbered pictures (give {folder / pattern})" for pattern, names in pictures.items()]
    shown += [path.name for path in rest if path.name not in grouped]
    more = ["…"] if len(shown) > _MOST_NAMED else []
    advice = " --recursive takes the videos of its folders." if any(path.is_dir() for path in rest) else ""
    return f"{folder}: {len(rest)} left out: {', '.join([*shown[:_MOST_NAMED], *more])}.{advice}"


def natural_key(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that puts 2 before 10."""
    parts = _DIGITS.split(str(path).casefold())
    return [(int(part) if part.isdecimal() else 0, part) for part in parts], str(path)


def _read_table(table: Path, prompt: str) -> tuple[Group, ...]:
    """Group the rows of a table; rows without a group are grouped by their prompt.

    Paths are absolute, or relative to the table's folder. UsageError if a group has two prompts.
    """
    clips: dict[tuple[str, str], list[Path]] = {}
    prompts: dict[tuple[str, str], str] = {}
    for place, row in read_whole_table(table, columns=("clip",)):
        clip, own, name = _read_row(place, row)
        key = ("group", name) if name else ("prompt", own or prompt)
        clips.setdefault(key, []).append(table.parent / clip)
        if own and prompts.setdefault(key, own) != own:
            raise UsageError(f"{place}: group {name!r} has two prompts. One group has one prompt.")
    if not clips:
        raise UsageError(f"The table {str(table)!r} lists no clips.")
    return tuple(
        Group("" if len(clips) == 1 and kind == "prompt" else name, prompts.get((kind, name), prompt), tuple(paths))
        for (kind, name), paths in clips.items()
    )


def _read_row(place: str, row: Row) -> tuple[str, str, str]:
    """Read a row's clip, prompt and group, "" where there is none."""
    known = {str(name).casefold(): value for name, value in row.items()}
    clip = known.get("clip")
    if not isinstance(clip, str) or not clip.strip() or "\0" in clip:
        raise UsageError(f"{place}: `clip` names no file.")
    texts: list[str] = []
    for name in ("prompt", "group"):
        if not isinstance(value := known.get(name), str | int | None):
            raise UsageError(f"{place}: `{name}` must be text.")
        texts.append("" if value is None else str(value))
    return clip, escape_surrogates(texts[0].strip()), texts[1]
