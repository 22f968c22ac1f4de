"""Published accuracies of judges, from `published.toml`."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from vrt_lite.records.figures import Published, PublishedFigure


class PublishedAccuracy(msgspec.Struct, frozen=True):
    """A model's published accuracy with tied pairs left out, on one set and split, and who says so."""

    set: str
    split: str
    value: float
    source: str


@functools.cache
def _read_table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def list_published(model: str) -> list[PublishedAccuracy]:
    """List the published accuracy of a model, tied pairs left out; where sources conflict, all of them."""
    table = _read_table()
    return [
        PublishedAccuracy(row["set"], row["split"], row["value"], table["sources"][row["source"]])
        for row in table["figures"]
        if row["model"] == model and row["measure"] in ("diff", "sign")
    ]


def find_published(name: str, split: str) -> Published | None:
    """Find the published figures of a set, for one of its splits; None for a set of which nothing is published."""
    table = _read_table()
    rows = [row for row in table["figures"] if row["set"] == name]
    left_out = [table["reasons"][of["why"]] for of in table["left_out"] if (of["set"], of["split"]) == (name, split)]
    if not rows and not left_out:
        return None
    figures = [
        PublishedFigure(
            row["model"],
            row["measure"],
            round(row["value"] / 100, 4),
            table["sources"][row["source"]],
            table["notes"].get(row.get("note"), ""),
        )
        for row in rows
        if row["split"] == split
    ]
    others = dict.fromkeys(row["split"] for row in rows if row["split"] != split)
    return Published(tuple(figures), tuple(left_out), tuple(others))
