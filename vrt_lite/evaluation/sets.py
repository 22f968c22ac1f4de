"""A set of labelled pairs: found, recognised, read and chosen from. Knows folders and layouts; judges nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.layouts import LAYOUTS, PAIRS, LabelledPair, Layout, LeftOut, expect, names, pair_of, recognise
from vrt_lite.evaluation.tables import SUFFIXES, columns, rows
from vrt_lite.models.files import sha256


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


def locate(where: Path, *, layout: Layout | None = None, clips: Path | None = None) -> Place:
    """The table in a folder, or the table itself; `clips` is where its clips are, if not beside it.

    Without a `layout` it is recognised by its columns. UsageError if there is none, or more than one.
    """
    if where.is_file():
        found = columns(where)
        layout = layout or recognise(found)
        if layout is None:
            raise UsageError(
                f"{where} is no known table of pairs. A plain one has columns a, b, prompt and overall (A, B or same), "
                f"and may have TA, VQ, MQ, id and group; known layouts are {', '.join(names())}."
            )
        expect(layout, found, str(where))
        return Place(layout, where, clips or where.parent)
    if not where.is_dir():
        raise UsageError(
            f"There is no set {str(where)!r}. Give a name ({', '.join(names())}), a folder, or a table of pairs "
            f"({', '.join(SUFFIXES)})."
        )
    for known in [layout] if layout else [*LAYOUTS, PAIRS]:
        for pattern in known.tables:
            for table in sorted(where.glob(pattern)):
                if known.needs <= {*(found := columns(table)), *(name.lower() for name in found)}:
                    return Place(known, table, clips or where)
    return _only_table(where, layout, clips)


def _only_table(folder: Path, layout: Layout | None, clips: Path | None) -> Place:
    """The one table in a folder that is laid out in a known way, whatever its name."""
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES and path.is_file()]
    found: list[Place] = []
    for table in tables[:50]:
        known = recognise(columns(table))
        if known and layout in (None, known):
            found.append(Place(known, table, clips or folder))
    if len(found) > 1:
        shown = ", ".join(place.table.name for place in found[:5])
        raise UsageError(f"{folder} has more than one table of pairs ({shown}); give the one that is meant.")
    if not found:
        if layout is None:
            raise UsageError(f"{folder} has no table of pairs in a known layout. Give the table itself as SET.")
        looked = " or ".join(layout.expected)
        raise UsageError(f"{folder} is not laid out as {layout.title}: {looked} is not there. Give the table as SET.")
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
