"""Finds a clip's worst moments: where its change, its detail or its light leaves what is usual in it.

A judge that may ask for frames is told of them. A fault that lasts throughout has no moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from vrt_lite.measures.arrays import Floats

MOST_MOMENTS: Final = 3
_UNUSUAL: Final = 5.0
"""So many usual deviations are unusual."""
_APART: Final = 1 / 8
"""Moments are at least this share of the clip's length apart."""
_LEAST: Final = (0.12, 0.03, 1.5)
"""The usual deviation, at least: of the logarithms of change and of detail, and of light in levels."""


class FindingMoments:
    """Takes the runs of a clip's thumbnails, and finds its worst moments."""

    def __init__(self, frames: int) -> None:
        """Take how many frames the clip has."""
        self._frames = frames
        self._found: list[tuple[float, float]] = []

    def add(self, shown: Sequence[int], pictures: Floats) -> None:
        """Add thumbnails (frames, rows, columns) in levels of 255, and which frames of the clip they show."""
        if len(shown) < 3:
            return
        pictures = pictures[:, ::2, ::2]
        change = np.abs(np.diff(pictures, axis=0)).mean((1, 2))
        detail = np.abs(np.diff(pictures, axis=2)).mean((1, 2))[1:]
        series = (np.log(change + 0.2), np.log(detail + 0.2), pictures.mean((1, 2))[1:])
        scores = np.zeros(len(change))
        for values, least in zip(series, _LEAST, strict=True):
            away = np.abs(values - np.median(values))
            scores = np.maximum(scores, away / max(1.5 * float(np.median(away)), least))
        places = np.array(shown[1:]) / max(self._frames - 1, 1)
        self._found += [(float(scores[i]), float(places[i])) for i in np.flatnonzero(scores > _UNUSUAL)]

    def worst(self) -> tuple[float, ...]:
        """Return the worst moments as shares of the clip's length, the worst first."""
        chosen: list[float] = []
        for _, place in sorted(self._found, key=lambda found: (-found[0], found[1])):
            if len(chosen) < MOST_MOMENTS and all(abs(place - other) >= _APART for other in chosen):
                chosen.append(round(place, 4))
        return tuple(chosen)
