"""Reads labelled pairs from published sets and plain tables, each by its layout in `layouts.toml`.

A label is 1 (the first clip is better), 2 or 0 (a tie), by OA, TA, VQ and MQ; a dimension without a label is not there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.set_tables import SUFFIXES, cell_text
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.tables import Row

KEYS: Final = ("OA", "TA", "VQ", "MQ")


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A row that can be judged. `a` and `b` name clips as the table does; `row` counts from 1 in the table."""

    row: int
    name: str
    a: str
    b: str
    prompt: str
    labels: Mapping[str, int]
    group: str = ""


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that is not judged: `kind` is "broken", "discarded" or "unlabelled"; `reason` is for a user."""

    row: int
    kind: str
    reason: str


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one split of a set is laid out; `layouts.toml` explains the fields. `split` is "" where it is not known."""

    name: str
    title: str
    split: str = ""
    a: str
    b: str
    prompt: str = "prompt"
    labels: Mapping[str, tuple[str, ...]]
    spellings: Mapping[str, int]
    unlabelled: tuple[str, ...] = ()
    folders: tuple[str, ...] = ("",)
    tables: tuple[str, ...]
    preset: str | None = None
    repository: str = ""
    aliases: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    megabytes: int = 0
    own: bool = False

    @property
    def full_name(self) -> str:
        """The set and its split, for a user."""
        return f"{self.title}, split {self.split}" if self.split else self.title

    @property
    def globs(self) -> list[str]:
        """Patterns of its table under the set's folder, the likeliest first."""
        return [f"{folder}{name}{end}" for folder in self.folders for name in self.tables for end in SUFFIXES]

    def list_tables(self, folder: Path) -> Iterator[Path]:
        """Yield the tables in a folder that are named as this one is, the likeliest first."""
        return (table for pattern in self.globs for table in sorted(folder.glob(pattern)))

    def missing(self, columns: frozenset[str]) -> frozenset[str]:
        """Return the columns that the layout needs and a table does not have."""
        if self.own:
            return frozenset((self.a, self.b)) - {column.strip().lower() for column in columns}
        labels = (path[0] for path in self.labels.values() if len(path) == 1)
        return frozenset((self.a, self.b, self.prompt, *labels)) - columns


_TABLE: Final = tomllib.loads(Path(__file__).with_name("layouts.toml").read_text(encoding="utf-8"))
LAYOUTS: Final = msgspec.convert(_TABLE["layouts"], tuple[Layout, ...])
"""Every split of the published sets, and as the last a plain table of pairs."""


def pair_of(layout: Layout, number: int, row: Row | str) -> LabelledPair | SkippedRow:
    """Read one row of a table by its layout. Never raises: a row that cannot be judged is a `SkippedRow`."""
    if isinstance(row, str):
        return SkippedRow(number, "broken", f"row {number} {row}")
    if layout.own:
        row = {name.strip().lower(): cell for name, cell in row.items()}
        row = {"overall": row.get("oa"), "prompt": "", **row}
    if cell_text(row.get("discard")).lower() in ("true", "1", "yes"):
        return SkippedRow(number, "discarded", f"row {number} is marked discard")
    try:
        a, b, prompt = _read_clip(row[layout.a]), _read_clip(row[layout.b]), cell_text(row[layout.prompt])
        labels = _read_labels(layout, row)
        if len(prompt) > LONGEST_PROMPT:
            raise ValueError(f"has a prompt of {len(prompt)} characters (at most {LONGEST_PROMPT})")
    except (KeyError, ValueError) as error:
        reason = f"has no {error}" if isinstance(error, KeyError) else str(error)
        return SkippedRow(number, "broken", f"row {number} {reason}")
    if not labels:
        return SkippedRow(number, "unlabelled", f"row {number} has no label")
    name, group = (cell_text(row.get(column)) if layout.own else "" for column in ("id", "group"))
    return LabelledPair(number, name or f"row {number}", a, b, prompt, labels, group)


def _read_clip(cell: object) -> str:
    """Read a clip's name or address; the form {"path": …, "bytes": …} of a data set library is read as well."""
    name = cell_text(cast("Row", cell).get("path") if isinstance(cell, Mapping) else cell)
    if not name or "\0" in name:
        raise ValueError("names no clip")
    return name


def _read_labels(layout: Layout, row: Row) -> dict[str, int]:
    """Read the labels by dimension; an empty cell is no label. ValueError for an unknown spelling."""
    found: dict[str, int] = {}
    for key, path in layout.labels.items():
        word = cell_text(_find_cell(row, path)).lower()
        if word in layout.spellings:
            found[key] = layout.spellings[word]
        elif word and word not in layout.unlabelled:
            raise ValueError(f"has the {key} label {word[:40]!r}; known are {', '.join(layout.spellings)}")
    return found


def _find_cell(row: object, path: Sequence[str]) -> object:
    for name in path:
        row = cast("Row", row).get(name) if isinstance(row, Mapping) else None
    return row


def set_names() -> str:
    """Return the names of the published sets."""
    return ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS if not layout.own))


def find_set_name(name: str) -> str | None:
    """Find a published set by its name or the name of its hub repository; None if there is none."""
    given = name.strip().lower()
    for layout in LAYOUTS:
        known = (layout.name, layout.repository, *layout.aliases)
        if given and not layout.own and given in map(str.lower, known):
            return layout.name
    return None


def layouts_of(name: str | None = None, split: str | None = None) -> tuple[Layout, ...]:
    """Return the layouts of a set's splits (None: of all sets), the usual one first, or only that of one split.

    UsageError, with the known splits, for an unknown split.
    """
    known = [layout for layout in LAYOUTS if name in (None, layout.name)]
    found = tuple(layout for layout in known if split in (None, layout.split))
    if not found:
        choice = ", ".join(dict.fromkeys(layout.split for layout in known if layout.split))
        raise UsageError(f"{name or 'No known set'} has {'no' if name else 'a'} split {split!r}; known are {choice}.")
    return found
