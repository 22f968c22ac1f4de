"""The cases of the footage that a recipe names. Nothing heavy is imported for a recipe without footage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.footage.packages import Split
    from train.training_cases import Cases


def footage_cases(folder: str, split: Split = "train", *, first: int, count: int) -> Cases | None:
    """Return the cases of a recipe's `data.footage`; None if it is empty. Raises UsageError without clips."""
    if not folder:
        return None
    from train.footage.footage_pairs import FootagePairs  # noqa: PLC0415  the decoder

    return FootagePairs(Path(folder), split, first=first, count=count)
