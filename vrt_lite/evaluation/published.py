"""What others reached on the published sets. The data lies beside it (`published.toml`); nothing is computed."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "published.toml"


@cache
def _table() -> dict[str, Any]:
    with _FILE.open("rb") as file:
        return tomllib.load(file)


def published(name: str, split: str) -> dict[str, Any] | None:
    """What is published of a set, overall judgment, as plain data; None for a set without published figures.

    `models` are those on this very split, with their [tau, diff], shares from 0 to 1. `other_splits` are the splits of
    the set that other figures are of: those cannot be compared with figures on this one.
    """
    table = _table()
    rows: list[tuple[str, str, str, float, float]] = [row for row in table["rows"] if row[1] == name]
    if not rows:
        return None
    models = {model: [round(tau / 100, 4), round(diff / 100, 4)] for model, _, of, tau, diff in rows if of == split}
    others = list(dict.fromkeys(of for _, _, of, _, _ in rows if of != split))
    return {"source": str(table["source"]), "models": models, "other_splits": others}
