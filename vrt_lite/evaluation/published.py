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


def source() -> str:
    """Where the figures are from."""
    return str(_table()["source"])


def published(name: str) -> dict[str, tuple[float, float]]:
    """Models with their (tau, diff) on a set, overall judgment, shares from 0 to 1; empty for any other set."""
    models: dict[str, dict[str, list[float]]] = _table()["models"]
    found = {model: sets[name] for model, sets in models.items() if name in sets}
    return {model: (round(tau / 100, 4), round(diff / 100, 4)) for model, (tau, diff) in found.items()}
