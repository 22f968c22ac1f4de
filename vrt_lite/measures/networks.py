"""Small neural networks as plain arrays, evaluated for a few rows at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

_FINE, _COARSE = 3, 12
"""So many steps are a difference on each of two scales."""
_STRETCH = 4
_KINDS: Final = ("weights", "biases")


@dataclass(frozen=True, slots=True)
class Scale:
    """On what scale networks read measures.

    `quantiles` (levels, measures) are those of the clips of the training. Two clean clips of one scene differ by about
    `steps` (measures); infinite where a difference is no merit.
    """

    quantiles: NDArray[np.float64]
    steps: NDArray[np.float64]

    def place(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return which share of the training's clips has less, as -1 to 1, (clips, measures)."""
        levels = np.linspace(-1, 1, len(self.quantiles))
        shares = np.empty(vectors.shape)
        for number, quantiles in enumerate(self.quantiles.T):
            shares[:, number] = np.interp(vectors[:, number], quantiles, levels)
        return shares

    def compare(self, one: NDArray[np.floating], two: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return what is read of pairs, (pairs, 2 orders, 4 · measures): differences on three scales, then means."""
        first, second = self.place(one), self.place(two)
        steps = (two.astype(np.float64) - one) / self.steps
        ranks = np.where(np.isinf(self.steps), 0, _STRETCH * (second - first))
        change = np.concatenate((np.tanh(steps / _FINE), np.tanh(steps / _COARSE), ranks), axis=1)
        common = (first + second) / 2
        return np.stack([np.concatenate((sign * change, common), axis=1) for sign in (1, -1)], axis=1)


@dataclass(frozen=True, slots=True)
class Networks:
    """Networks of one shape; the mean of their answers counts.

    `layers` are weights (networks, inputs, outputs) and biases (networks, outputs). Between two layers stands
    x · sigmoid(x).
    """

    layers: tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...]

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean answers, (rows, outputs). A row's answer does not depend on the others, to the last bit."""
        inner = np.broadcast_to(rows[:, None], (len(rows), len(self.layers[0][0]), rows.shape[1]))
        for number, (weights, biases) in enumerate(self.layers):
            active = inner / (1 + np.exp(-inner)) if number else inner
            inner = np.einsum("rni,nio->rno", active, weights) + biases
        return inner.mean(1)


def read_networks(arrays: Mapping[str, NDArray[np.generic]], name: str) -> Networks:
    """Take networks out of the arrays of a file."""
    layers = takewhile(lambda part: f"{name}.weights.{part}" in arrays, count())
    read = [[np.asarray(arrays[f"{name}.{kind}.{part}"], np.float64) for kind in _KINDS] for part in layers]
    return Networks(tuple((weights, biases) for weights, biases in read))
