"""Published accuracies of judges, from `published.toml`."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from vrt_lite.reading import read_plain
from vrt_lite.records.figures import Measure, Published, PublishedFigure


class PublishedAccuracy(msgspec.Struct, frozen=True):
    """A model's published accuracy in per cent, on one set and split, by which measure, and who says so."""

    set: str
    split: str
    model: str
    measure: Measure
    value: float
    source: str
    note: str = ""


@functools.cache
def _read_table() -> tuple[dict[str, Any], tuple[PublishedAccuracy, ...]]:
    """Return the table, and its figures with each source and note in words."""
    table = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    for row in table["figures"]:
        row |= {"source": table["sources"][row["source"]], "note": table["notes"].get(row.get("note"), "")}
    return table, read_plain(table["figures"], tuple[PublishedAccuracy, ...])


def list_published(model: str) -> list[PublishedAccuracy]:
    """List the published accuracy of a model, tied pairs left out; where sources conflict, all of them."""
    return [row for row in _read_table()[1] if row.model == model and row.measure in ("diff", "sign")]


def find_published(name: str, split: str) -> Published | None:
    """Find the published figures of a set, for one of its splits; None for a set of which nothing is published."""
    table, every = _read_table()
    rows = [row for row in every if row.set == name]
    left_out = [table["reasons"][of["why"]] for of in table["left_out"] if (of["set"], of["split"]) == (name, split)]
    if not rows and not left_out:
        return None
    figures = (
        PublishedFigure(row.model, row.measure, round(row.value / 100, 4), row.source, row.note)
        for row in rows
        if row.split == split
    )
    others = dict.fromkeys(row.split for row in rows if row.split != split)
    return Published(tuple(figures), tuple(left_out), tuple(others))
