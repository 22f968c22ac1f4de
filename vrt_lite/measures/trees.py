"""Boosted decision trees as plain arrays, evaluated for a few rows at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees of one head. The nodes of a tree follow each other, each before its left branch.

    At a node, a row goes on with the next node if its `feature` is at most the `value`, else it skips `right` nodes. A
    leaf has no `right`, and its `value` is the tree's answer. Tree `i` adds to class `i % classes`.
    """

    feature: NDArray[np.uint8]
    right: NDArray[np.uint8]
    value: NDArray[np.float32]
    root: NDArray[np.int32]
    classes: int

    def scores(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the sums of the trees' answers, (rows, classes)."""
        count, features = rows.shape
        flat = rows.ravel()
        at = np.tile(self.root.astype(np.intp), count)
        row: NDArray[np.intp] = np.repeat(np.arange(count, dtype=np.intp) * features, len(self.root))
        going = np.flatnonzero(self.right.take(at))
        while len(going):
            here = at.take(going)
            left = flat.take(row.take(going) + self.feature.take(here)) <= self.value.take(here)
            here += np.where(left, 1, self.right.take(here))
            at[going] = here
            going = going[self.right.take(here) > 0]
        answers = self.value.take(at).astype(np.float64)
        return answers.reshape(count, -1, self.classes).sum(1)


def read_forest(arrays: Mapping[str, NDArray[np.generic]], name: str) -> Forest:
    """Take a head out of the arrays of a file."""
    parts = {part: arrays[f"{name}.{part}"] for part in ("feature", "right", "value", "root")}
    return Forest(
        cast("NDArray[np.uint8]", parts["feature"]),
        cast("NDArray[np.uint8]", parts["right"]),
        cast("NDArray[np.float32]", parts["value"]),
        cast("NDArray[np.int32]", parts["root"]),
        int(cast("NDArray[np.int32]", arrays[f"{name}.classes"])),
    )


def softmax(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return probabilities, (rows, classes)."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)
