"""The recipes, models/*.toml: which models are known by name, where they are from, their licence and profile.

Data in, values out. The wheel carries the files as vrt_lite/recipes/; in a checkout they are models/. Refuses to know
the network and what of them is here.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model that is known by name.

    `repository` holds its GGUF files ("" for a bundled one), or, until someone publishes them, its checkpoint; then
    `convert` are the commands that make them. `sums` are SHA-256 by file name. `size_bytes` is about what
    a pull brings.
    """

    name: str
    licence: str
    licence_url: str
    summary: str
    verified: bool
    repository: str
    revision: str
    quant: str
    size_bytes: int
    convert: str
    profile: str
    sums: MappingProxyType[str, str]


@cache
def recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    found = [_recipe(tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(_folder().glob("*.toml"))]
    return {recipe.name: recipe for recipe in found}


def _folder() -> Path:
    """The recipes inside an installed package, else those of the checkout that this file lies in."""
    inside = _PACKAGE / "recipes"
    return inside if inside.is_dir() else _PACKAGE.parent / "models"


def _recipe(table: dict[str, Any]) -> Recipe:
    pull: dict[str, Any] = table.get("pull", {})
    files: list[dict[str, Any]] = table.get("files", [])
    return Recipe(
        name=table["name"],
        licence=table["licence"],
        licence_url=table.get("licence_url", ""),
        summary=table.get("summary", ""),
        verified=table.get("verified", False),
        repository=pull.get("repository", ""),
        revision=pull.get("revision", ""),
        quant=pull.get("quant", ""),
        size_bytes=pull.get("size", 0) or sum(file["size"] for file in files),
        convert=pull.get("convert", ""),
        profile=pull.get("profile", ""),
        sums=MappingProxyType({Path(file["path"]).name: file["sha256"] for file in files}),
    )
