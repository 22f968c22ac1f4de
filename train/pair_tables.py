"""The tables of pairs that a recipe names: they share no pair, and test pairs are for fitting or for figures.

A pair is known by its content: the bytes of its two clips, in either order, and its prompt. So neither other names nor
another order of the columns bring a pair from one table into another.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from train.recipe import TABLES, Data
from vrt_lite.disk import file_sha256
from vrt_lite.errors import UsageError
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.layouts import LabelledPair
from vrt_lite.evaluation.sets import Place, locate_set, read_set

Part = Literal["fit", "report"]
"""What a test pair is for: fitting temperatures, or figures."""
_FITTING: Final = 4
"""Every so many test pairs, one is for fitting."""


@dataclass(frozen=True, slots=True)
class TablePair:
    """A row of a table whose two clips are there."""

    row: LabelledPair
    clips: tuple[Path, Path]

    @property
    def prompt(self) -> str:
        """The prompt, in which only the words count."""
        return " ".join(self.row.prompt.split())

    @property
    def content(self) -> str:
        """The digest of the prompt and of both clips in either order. Raises UsageError for a clip that is not read."""
        return _digest(self.prompt, *sorted(map(_digest_clip, self.clips)))


@dataclass(frozen=True, slots=True)
class PairTable:
    """A table's pairs, and the reasons for the rows that are left out."""

    place: Place
    pairs: tuple[TablePair, ...]
    left_out: tuple[str, ...]


def read_table(where: Path) -> PairTable:
    """Read a table, and find its clips. Raises UsageError for a table that cannot be read, or two pairs of one name."""
    found = read_set(locate_set(where))
    place = found.place
    clips = Clips(place.folder, table=place.table, anywhere=place.layout.own)
    pairs: dict[str, TablePair] = {}
    left_out = [row.reason for row in found.left_out]
    for row in found.pairs:
        paths = (clips.find(row.a), clips.find(row.b))
        if missing := next((path for path in paths if isinstance(path, str)), ""):
            left_out.append(f"{row.name}: {missing}")
        elif row.name in pairs:
            rows = f"rows {pairs[row.name].row.row} and {row.row}"
            raise UsageError(f"{place.table} has two pairs {row.name!r} ({rows}): give each an id of its own.")
        else:
            pairs[row.name] = TablePair(row, paths)  # type: ignore[arg-type]
    return PairTable(place, tuple(pairs.values()), tuple(left_out))


def check_tables(data: Data) -> None:
    """Raise UsageError if two tables of a recipe share a pair, or if the test table has fewer than two."""
    if data.source != "tables":
        return
    tables = {name: read_table(Path(getattr(data, name))) for name in TABLES}
    titles = {name: f"data.{name} ({table.place.table})" for name, table in tables.items()}
    for (name, pair), (other_name, other) in _find_equal(tables):
        raise UsageError(
            f"{titles[name]} and {titles[other_name]} share a pair: {pair.row.name!r} and {other.row.name!r} have the "
            "same clips and prompt. Remove it from one of them."
        )
    if (count := len(tables["test"].pairs)) < 2:
        raise UsageError(
            f"{titles['test']} has {count} pair(s) with clips, and at least 2 are needed: some fit temperatures, and "
            "the others give the figures."
        )


def choose_part(pairs: Sequence[TablePair], part: Part) -> list[TablePair]:
    """Return the test pairs for fitting, about a quarter, or the others. The same pair twice is in one part."""
    order = {content: number for number, content in enumerate(sorted({pair.content for pair in pairs}))}
    return [pair for pair in pairs if (order[pair.content] % _FITTING == 1) == (part == "fit")]


def _find_equal(tables: dict[str, PairTable]) -> Iterator[tuple[tuple[str, TablePair], tuple[str, TablePair]]]:
    """Yield the pairs that are in two tables.

    Only pairs with one prompt and clips of the same sizes can be equal: no other clip is read.
    """
    alike: dict[tuple[str, ...], list[tuple[str, TablePair]]] = defaultdict(list)
    for name, table in tables.items():
        for pair in table.pairs:
            sizes = sorted(str(path.stat().st_size) for path in pair.clips)
            alike[pair.prompt, *sizes].append((name, pair))
    for group in alike.values():
        if len({name for name, _ in group}) < 2:
            continue
        seen: dict[str, tuple[str, TablePair]] = {}
        for name, pair in group:
            before = seen.setdefault(pair.content, (name, pair))
            if before[0] != name:
                yield before, (name, pair)


def _digest_clip(path: Path) -> str:
    try:
        return _digest_version(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(f"Clip {path} cannot be read: {error.strerror}.") from error


@functools.lru_cache(maxsize=100_000)
def _digest_version(path: Path, _changed_ns: int) -> str:
    return file_sha256(path)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
