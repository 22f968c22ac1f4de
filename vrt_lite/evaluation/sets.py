"""Sets of labelled pairs: where one lies, which layout of `layouts.toml` it has, and what is in it. No clip is opened.

A table is CSV, TSV, JSONL, a JSON list or parquet, as published or a user's own. A label is 1 (the first clip is
better), 2 or 0 (a tie), by OA, TA, VQ and MQ; a dimension without a label is not there. One broken row never hides the
others: it is left out with a reason. A file that cannot be read at all is a UsageError.
"""

from __future__ import annotations

import json
import random
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from vrt_lite.advice import install_extra
from vrt_lite.disk import file_sha256, open_to_read
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.reading import read_plain
from vrt_lite.tables import Row, read_rows

KEYS: Final = ("OA", "TA", "VQ", "MQ")
SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
_MOST_BYTES = 2**30


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


_TOML: Final = Path(__file__).with_name("layouts.toml").read_text(encoding="utf-8")
LAYOUTS: Final = read_plain(tomllib.loads(_TOML)["layouts"], tuple[Layout, ...])
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
    # Many pairs share a prompt: one string for all of them.
    return LabelledPair(number, name or f"row {number}", a, b, sys.intern(prompt), labels, group)


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
    published = [layout for layout in LAYOUTS if not layout.own]
    names = {known.lower(): of.name for of in published for known in (of.name, of.repository, *of.aliases) if known}
    return names.get(name.strip().lower())


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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a set lies: its layout, its table, and the folder that its clips are in."""

    layout: Layout
    table: Path
    folder: Path


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A set as it was read. `sha256` is the digest of the table's file."""

    place: Place
    sha256: str
    pairs: tuple[LabelledPair, ...]
    left_out: tuple[SkippedRow, ...]

    @property
    def left_out_counts(self) -> dict[str, int]:
        """How many rows were left out, by kind."""
        return dict(Counter(row.kind for row in self.left_out))

    @property
    def label_counts(self) -> dict[str, tuple[int, int, int]]:
        """How many pairs are labelled 1, 2 and 0, by dimension; only dimensions that have labels."""
        counted = {key: Counter(pair.labels[key] for pair in self.pairs if key in pair.labels) for key in KEYS}
        return {key: (found[1], found[2], found[0]) for key, found in counted.items() if found}


def locate_set(where: Path, *, name: str | None = None, split: str | None = None, clips: Path | None = None) -> Place:
    """Find the table in a folder, or take the table itself; `clips` is where its clips are, if not beside it.

    In a folder the table is named as a published set's, of which `name` and `split` select one. The layout of a table
    itself is recognised by its columns, and its split by its name. UsageError if there is none.
    """
    if where.is_dir():
        wanted = layouts_of(name, split) if name or split else LAYOUTS
        layout, table = _find_table(where, wanted)
        return Place(layout, table, clips or where)
    if where.is_file():
        return Place(_recognise(where, split), where, clips or where.parent)
    what = "table" if where.suffix.lower() in SUFFIXES else "set"
    raise UsageError(
        f"There is no {what} {str(where)!r}. Give a name ({set_names()}), a folder, or a table of pairs "
        f"({', '.join(SUFFIXES)})."
    )


def _find_table(folder: Path, wanted: Sequence[Layout]) -> tuple[Layout, Path]:
    """Find the first table in a folder that is named and laid out as one of the wanted ones."""
    lacking = "no table is named as its tables are"
    for layout in wanted:
        for table in layout.list_tables(folder):
            if not (missing := layout.missing(columns(table))):
                return layout, table
            lacking = f"{table.name} has no column {', '.join(sorted(missing))}"
    meant = wanted[0].title if len({layout.name for layout in wanted}) == 1 else "a known set"
    raise UsageError(f"{folder} is not laid out as {meant}: {lacking}. Give a table as SET, its clips with --from.")


def _recognise(table: Path, split: str | None) -> Layout:
    """Find the layout of a table; its split is "" if neither its name nor the user tells it."""
    found = columns(table)
    fitting = [layout for layout in LAYOUTS if not layout.missing(found)]
    if not fitting:
        unread = (f"row {number} {row}" for number, row in numbered_rows(table) if isinstance(row, str))
        is_wrong = (
            "is no known table of pairs" if found else f"has no row that can be read: {next(unread, 'it has none')}"
        )
        raise UsageError(
            f"{table} {is_wrong}. A plain one has columns a, b, prompt and overall (A, B or same), "
            f"and may have TA, VQ, MQ, id and group; known layouts are {set_names()}."
        )
    named = (layout for layout in fitting if any(table.match(pattern) for pattern in layout.globs))
    asked = (layout for layout in fitting if layout.split == split)
    layout = [*named, *asked, msgspec.structs.replace(fitting[0], split="")][0]
    if split not in (None, layout.split):
        raise UsageError(
            f"{table} is {layout.full_name}, not {split!r}: leave out --split, or give that split's table."
        )
    return layout


def read_set(place: Place) -> LabelledSet:
    """Read a whole set: the pairs that can be judged, and the rows left out with the reason. Opens no clip."""
    pairs: list[LabelledPair] = []
    left_out: list[SkippedRow] = []
    for number, row in numbered_rows(place.table):
        read = pair_of(place.layout, number, row)
        if isinstance(read, SkippedRow):
            left_out.append(read)
        else:
            pairs.append(read)
    if not pairs:
        first = f" The first: {left_out[0].reason}." if left_out else ""
        raise UsageError(f"{place.table} has no pair that can be judged ({len(left_out)} rows left out).{first}")
    return LabelledSet(place, file_sha256(place.table), tuple(pairs), tuple(left_out))


def choose_pairs(
    pairs: Sequence[LabelledPair], *, limit: int | None = None, sample: int | None = None, seed: int = 0
) -> list[LabelledPair]:
    """Choose a random sample of pairs and return its first `limit`, in the table's order.

    With the same seed, a larger sample contains the smaller one.
    """
    drawn = list(range(len(pairs)))
    random.Random(seed).shuffle(drawn)
    return [pairs[number] for number in sorted(drawn[:sample])][:limit]


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
