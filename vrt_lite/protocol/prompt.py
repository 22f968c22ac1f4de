"""Fills in a checkpoint's prompt. Knows the placeholders; refuses to know where the files lie.

The wording is part of the checkpoint's interface: a template is used byte for byte, and each
placeholder is replaced in one pass, so that braces in a caption stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.tags import DIMENSIONS

_PLACEHOLDER = re.compile(r"\{(caption|dim_name_[123]|dim_explain_[123]|n|n_half)\}")
_NAME = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Dimension:
    """How the prompt words one dimension: "**{name}**: {explain}"."""

    name: str
    explain: str


def show_key(key: str, dimension: Dimension) -> Dimension:
    """The dimension with its key behind its name, "Fineness (VQ)", unless the name shows it already.

    The answer's format has the keys alone: without one in the name nothing tells the judge which dimension is which.
    """
    shown = f"({key})"
    return dimension if shown in dimension.name else replace(dimension, name=f"{dimension.name} {shown}")


def placeholders(template: str) -> frozenset[str]:
    """The placeholders a template holds."""
    return frozenset(found[1] for found in _PLACEHOLDER.finditer(template))


def render_user(
    template: str, *, caption: str, dimensions: Mapping[str, Dimension], workspace: int
) -> tuple[Text, ...]:
    """The user turn's text. The caption and the dimensions stay untrusted: plain text to the model.

    `n` is the frames of both workspaces; `n_half` prints as a float ("48.0"), as the model card's script does.
    """
    total = 2 * workspace
    values: dict[str, Text] = {
        "caption": Text(caption, trusted=False),
        "n": Text(str(total)),
        "n_half": Text(str(total / 2)),
    }
    for i, key in enumerate(DIMENSIONS, start=1):
        values[f"dim_name_{i}"] = Text(dimensions[key].name, trusted=False)
        values[f"dim_explain_{i}"] = Text(dimensions[key].explain, trusted=False)
    pieces = _PLACEHOLDER.split(template)
    parts = (values[piece] if i % 2 else Text(piece) for i, piece in enumerate(pieces))
    return tuple(part for part in parts if part.text)


def fill(template: str, **values: object) -> str:
    """A template with each `{name}` that is among `values` replaced, in one pass; other braces stay as they are."""
    return _NAME.sub(lambda found: str(values.get(found[1], found[0])), template)


def plain(parts: Sequence[Text]) -> str:
    """The text as one string."""
    return "".join(part.text for part in parts)
