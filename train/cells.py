"""Measures a picture cell by cell: a new tower first learns to predict these measures."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from train.policy.rendering import MERGE, PATCH

MEASURES = 35
"""The number of measures of a cell."""
_SCALES = 3
_LEAST = 1e-4  # the energy of a flat cell, for light in 0 to 4
_FLAT = 0.02


def measures(patches: Tensor) -> Tensor:
    """Measure cells: (cells · 4, 1176) bytes to (cells, MEASURES).

    For each frame: light of each channel; logarithms of the energy of first and second differences, across and down,
    at three scales; the flat share, across and down. Then the change of the cell between its two frames.
    """
    whole = patches.view(-1, MERGE, MERGE, 3, 2, PATCH, PATCH).permute(0, 4, 3, 1, 5, 2, 6)
    light = whole.reshape(-1, 2, 3, MERGE * PATCH, MERGE * PATCH).float() * (4 / 255)
    grey = light.mean(2)
    found = [light.mean((3, 4)).flatten(1), (grey.diff(dim=3).abs() < _FLAT).float().mean((2, 3))]
    scaled = grey
    for scale in range(_SCALES):
        scaled = functional.avg_pool2d(scaled, 2) if scale else scaled
        for axis in (2, 3):
            found += [_energy(scaled.diff(n, dim=axis)) for n in (1, 2)]
    change = grey[:, 1:] - grey[:, :1]
    found += [change.mean((2, 3)), _energy(change), _energy(functional.avg_pool2d(change, 4))]
    return torch.cat(found, 1)


def _energy(values: Tensor) -> Tensor:
    return torch.log(values.square().mean((2, 3)) + _LEAST)
