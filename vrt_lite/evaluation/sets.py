"""A set of labelled pairs: found, recognised, read and chosen from. Knows folders and layouts; judges nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.layouts import (
    KEYS,
    LAYOUTS,
    PAIRS,
    LabelledPair,
    Layout,
    LeftOut,
    names,
    pair_of,
    recognise,
    splits_of,
)
from vrt_lite.evaluation.tables import SUFFIXES, columns, rows
from vrt_lite.models.files import sha256

_BELOW = ("video_generation", "data")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a set lies: its layout, its table, and the folder that its clips are in."""

    layout: Layout
    table: Path
    folder: Path


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A set as it was read. `sha256` is of the table's bytes."""

    place: Place
    sha256: str
    pairs: tuple[LabelledPair, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def left_out_counts(self) -> dict[str, int]:
        """How many rows were left out, by kind."""
        return dict(Counter(row.kind for row in self.left_out))

    @property
    def label_counts(self) -> dict[str, list[int]]:
        """How many pairs are labelled 1, 2 and 0, by dimension; only dimensions that have labels."""
        counted = {key: Counter(pair.labels[key] for pair in self.pairs if key in pair.labels) for key in KEYS}
        return {key: [found[label] for label in (1, 2, 0)] for key, found in counted.items() if found}


def locate(where: Path, *, name: str | None = None, split: str | None = None, clips: Path | None = None) -> Place:
    """The table in a folder, or the table itself; `clips` is where its clips are, if not beside it.

    `name` and `split` say which published set is meant; without them it is recognised by its columns and its table's
    name. UsageError if there is none, or more than one.
    """
    asked = splits_of(name, split) if name or split else ()
    if where.is_file():
        return Place(_layout_of(where, asked, split), where, clips or where.parent)
    if not where.is_dir():
        raise UsageError(
            f"There is no set {str(where)!r}. Give a name ({', '.join(names())}), a folder, or a table of pairs "
            f"({', '.join(SUFFIXES)})."
        )
    for known in asked or (*LAYOUTS, PAIRS):
        for pattern in known.tables:
            for table in sorted(where.glob(pattern)):
                if not known.missing(columns(table)):
                    return Place(known, table, clips or where)
    return _only_table(where, asked, split, clips)


def _layout_of(table: Path, asked: Sequence[Layout], split: str | None) -> Layout:
    """What a table is of, held to what was asked for; a split that its name does not tell is taken to be that one."""
    found = columns(table)
    known = recognise(table, found)
    fitting = [layout for layout in asked if not layout.missing(found)]
    if asked and not fitting:
        missing = ", ".join(sorted(asked[0].missing(found)))
        raise UsageError(f"{table} is not laid out as {asked[0].title}: it has no column {missing}.")
    if known is None:
        raise UsageError(
            f"{table} is no known table of pairs. A plain one has columns a, b, prompt and overall (A, B or same), "
            f"and may have TA, VQ, MQ, id and group; known layouts are {', '.join(names())}."
        )
    if split and known.split not in ("", split):
        raise UsageError(f"{table} is {known.called}, not {split!r}: leave out --split, or give that split's table.")
    return fitting[0] if split else known


def _only_table(folder: Path, asked: Sequence[Layout], split: str | None, clips: Path | None) -> Place:
    """The one table in a folder that is laid out in a known way, whatever its name."""
    places = [folder, *(below for name in _BELOW if (below := folder / name).is_dir())]
    paths = [path for place in places for path in sorted(place.iterdir())]
    tables = [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]
    found: list[Place] = []
    for table in tables[:50]:
        seen = columns(table)
        known = recognise(table, seen)
        fitting = [layout for layout in asked if not layout.missing(seen)]
        if known and (fitting or not asked) and not (split and known.split):
            found.append(Place(fitting[0] if split else known, table, clips or folder))
    if len(found) > 1:
        shown = ", ".join(place.table.name for place in found[:5])
        raise UsageError(f"{folder} has more than one table of pairs ({shown}); give the one that is meant.")
    if not found:
        if not asked:
            raise UsageError(f"{folder} has no table of pairs in a known layout. Give the table itself as SET.")
        looked = " or ".join(asked[0].expected)
        shown = asked[0].called if split else asked[0].title
        raise UsageError(f"{folder} is not laid out as {shown}: {looked} is not there. Give the table as SET.")
    return found[0]


def read(place: Place) -> LabelledSet:
    """All of a set: what can be judged, and what was left out and why. The clips are not looked at."""
    pairs: list[LabelledPair] = []
    left_out: list[LeftOut] = []
    prompts: dict[str, str] = {}
    for number, row in rows(place.table):
        match pair_of(place.layout, number, row):
            case LabelledPair() as pair:
                # Many pairs share a prompt: one string for all of them.
                kept = prompts.setdefault(pair.prompt, pair.prompt)
                pairs.append(
                    LabelledPair(pair.row, pair.name, pair.a, pair.b, kept, pair.labels, pair.group)
                    if kept is not pair.prompt
                    else pair
                )
            case LeftOut() as left:
                left_out.append(left)
    if not pairs:
        first = f" The first: {left_out[0].why}." if left_out else ""
        raise UsageError(f"{place.table} has no pair that can be judged ({len(left_out)} rows left out).{first}")
    return LabelledSet(place, sha256(place.table), tuple(pairs), tuple(left_out))


def choose(
    pairs: Sequence[LabelledPair], *, limit: int | None = None, sample: int | None = None, seed: int = 0
) -> list[LabelledPair]:
    """The first `limit` pairs of `sample` drawn ones, in the table's order. A larger sample holds the smaller one."""
    chosen = list(pairs)
    if sample is not None and sample < len(chosen):
        drawn = list(range(len(chosen)))
        random.Random(seed).shuffle(drawn)
        chosen = [chosen[i] for i in sorted(drawn[:sample])]
    return chosen[:limit]
