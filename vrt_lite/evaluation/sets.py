"""Sets of labelled pairs: where a set lies, which layout it has, what is in it, and a sample of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
    recognise,
    set_names,
)
from vrt_lite.evaluation.set_tables import SUFFIXES, columns, numbered_rows

_FOLDERS = ("", "video_generation", "data")


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

    `name` and `split` select a published set; without them the set is recognised by its columns and its table's name.
    UsageError if there is none, or more than one.
    """
    requested = layouts_of(name, split) if name or split else ()
    if where.is_file():
        return Place(_find_layout(where, requested, split), where, clips or where.parent)
    suffixes = ", ".join(SUFFIXES)
    if not where.is_dir():
        if where.suffix.lower() in SUFFIXES:
            raise UsageError(f"There is no table {str(where)!r}. Give the path of one: {suffixes}.")
        raise UsageError(
            f"There is no set {str(where)!r}. Give a name ({set_names()}), a folder, or a table of pairs ({suffixes})."
        )
    for known in requested or LAYOUTS:
        for table in known.list_tables(where):
            if not known.missing(columns(table)):
                return Place(known, table, clips or where)
    return _only_table(where, requested, split, clips or where)


def _find_layout(table: Path, requested: Sequence[Layout], split: str | None) -> Layout:
    """Find the layout of a table. If layouts are `requested`, one must fit; it gives the split if the name does not.

    UsageError if none fits, or if the table is of another split.
    """
    found = columns(table)
    known = recognise(table, found)
    fitting = [layout for layout in requested if not layout.missing(found)]
    if requested and not fitting:
        missing = ", ".join(sorted(requested[0].missing(found)))
        raise UsageError(f"{table} is not laid out as {requested[0].title}: it has no column {missing}.")
    if known is None:
        raise UsageError(
            f"{table} is no known table of pairs. A plain one has columns a, b, prompt and overall (A, B or same), "
            f"and may have TA, VQ, MQ, id and group; known layouts are {set_names()}."
        )
    if split and known.split not in ("", split):
        raise UsageError(f"{table} is {known.full_name}, not {split!r}: leave out --split, or give that split's table.")
    return fitting[0] if split else known


def _only_table(folder: Path, requested: Sequence[Layout], split: str | None, clips: Path) -> Place:
    """Find the only table in a folder that has a known layout, whatever its name."""
    paths = [path for name in _FOLDERS for path in sorted((folder / name).glob("*"))]
    found: list[Place] = []
    refused: list[UsageError] = []
    for table in (path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()):
        try:
            found.append(Place(_find_layout(table, requested, split), table, clips))
        except UsageError as error:
            refused.append(error)
    if len(found) > 1:
        names = ", ".join(place.table.name for place in found[:5])
        raise UsageError(f"{folder} has more than one table of pairs ({names}); give the one that is meant.")
    if found:
        return found[0]
    if refused:
        raise refused[0]
    meant = requested[0].title if requested else "any known set"
    raise UsageError(f"{folder} is not laid out as {meant}: it has no table of pairs. Give the table itself as SET.")


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
