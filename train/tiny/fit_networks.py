"""Trains the small networks of the heads. They err elsewhere than trees, so that both together err less."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Dropout, Linear, Sequential, SiLU
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

_NETWORKS = 4
_PAIRS: Final = (96, 16, 0.3)
_CLIPS: Final = (96, 24, 0.2)
"""Width, epochs, and the share of a layer that is left out in each step."""
_BATCH, _RATE, _DECAY = 256, 2e-3, 1e-2


def fit_pairs(
    rows: NDArray[np.float64], better: NDArray[np.int64], weights: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Train on both orders of pairs, (pairs, 2, features), of which `better` is 1 for the first clip and 0 for a tie.

    For each column of `better` there are two outputs: for a tie, and for the first clip.
    """
    here, there = (torch.tensor(rows[:, order], dtype=torch.float32) for order in (0, 1))
    truth, counted = torch.tensor(better), torch.tensor(weights, dtype=torch.float32)

    def compute_loss(network: Sequential, batch: Tensor) -> Tensor:
        one, two = (network(order[batch]).reshape(len(batch), -1, 2) for order in (here, there))
        scores = torch.stack(((one[..., 0] + two[..., 0]) / 2, one[..., 1], two[..., 1]), 1)
        return (counted[batch, None] * cross_entropy(scores, truth[batch], reduction="none")).sum(1).mean()

    return _train(here, 2 * better.shape[1], compute_loss, _PAIRS)


def fit_clips(
    rows: NDArray[np.float64], faults: NDArray[np.float64], weights: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Train on clips, (clips, features), and how faulty they are, 0 to 1, (clips, outputs). The answers are logits."""
    inputs, truth, counted = (torch.tensor(each, dtype=torch.float32) for each in (rows, faults, weights))

    def compute_loss(network: Sequential, batch: Tensor) -> Tensor:
        losses = binary_cross_entropy_with_logits(network(inputs[batch]), truth[batch], reduction="none")
        return (counted[batch, None] * losses).sum(1).mean()

    return _train(inputs, faults.shape[1], compute_loss, _CLIPS)


def _train(
    inputs: Tensor, outputs: int, compute_loss: Callable[[Sequential, Tensor], Tensor], shape: tuple[int, int, float]
) -> dict[str, NDArray[Any]]:
    """Train the networks, and return their layers."""
    width, epochs, left_out = shape
    sizes = (inputs.shape[1], width, width, outputs)
    steps = len(inputs) // _BATCH
    trained: list[list[Linear]] = []
    for seed in range(_NETWORKS):
        torch.manual_seed(seed)
        layers = [Linear(before, after) for before, after in pairwise(sizes)]
        parts = [part for layer in layers for part in (layer, SiLU(), Dropout(left_out))]
        network = Sequential(*parts[:-2])
        optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=epochs * steps)
        for _ in range(epochs):
            for batch in torch.randperm(len(inputs))[: steps * _BATCH].split(_BATCH):
                optimizer.zero_grad()
                compute_loss(network, batch).backward()
                optimizer.step()
                schedule.step()
        trained.append(layers)
    arrays: dict[str, NDArray[Any]] = {}
    for number, same in enumerate(zip(*trained, strict=True)):
        arrays[f"weights.{number}"] = np.stack([layer.weight.detach().numpy().T for layer in same]).astype(np.float16)
        arrays[f"biases.{number}"] = np.stack([layer.bias.detach().numpy() for layer in same])
    return arrays
