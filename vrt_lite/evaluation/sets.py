"""Sets of labelled pairs: where a set lies, which layout it has, what is in it, and a sample of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from vrt_lite.disk import file_sha256
from vrt_lite.errors import UsageError
from vrt_lite.evaluation.layouts import (
    KEYS,
    LAYOUTS,
    LabelledPair,
    Layout,
    SkippedRow,
    layouts_of,
    pair_of,
    set_names,
)
from vrt_lite.evaluation.set_tables import SUFFIXES, columns, numbered_rows


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
    layout = [*named, *asked, structs.replace(fitting[0], split="")][0]
    if split not in (None, layout.split):
        raise UsageError(
            f"{table} is {layout.full_name}, not {split!r}: leave out --split, or give that split's table."
        )
    return layout


def read_set(place: Place) -> LabelledSet:
    """Read a whole set: the pairs that can be judged, and the rows left out with the reason. Opens no clip."""
    pairs: list[LabelledPair] = []
    left_out: list[SkippedRow] = []
    prompts: dict[str, str] = {}
    for number, row in numbered_rows(place.table):
        read = pair_of(place.layout, number, row)
        if isinstance(read, SkippedRow):
            left_out.append(read)
        else:
            # Many pairs share a prompt: one string for all of them.
            pairs.append(replace(read, prompt=prompts.setdefault(read.prompt, read.prompt)))
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
    if sample is not None and sample < len(pairs):
        random.Random(seed).shuffle(drawn)
    return [pairs[number] for number in sorted(drawn[:sample])][:limit]
