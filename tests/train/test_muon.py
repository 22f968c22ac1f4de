"""Muon and AdamW as one optimizer."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from train.tiny.muon import Muon, orthogonal  # noqa: E402


def _weights() -> tuple[Any, Any]:
    chance = torch.Generator().manual_seed(0)
    return tuple(torch.nn.Parameter(torch.randn(size, generator=chance)) for size in ((6, 4), (5,)))


def _taught(optimizer: Any, weights: tuple[Any, Any], *, steps: range) -> None:
    for step in steps:
        chance = torch.Generator().manual_seed(step)
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=chance)
        optimizer.step()


def _both(weights: tuple[Any, Any]) -> Muon:
    matrix, vector = weights
    groups = [{"params": [matrix], "lr": 0.02, "muon": True}, {"params": [vector], "muon": False}]
    return Muon(groups, lr=0.01, weight_decay=0.1)


@pytest.mark.parametrize("size", [(7, 7), (16, 5), (5, 16)])
def test_singular_values_become_one(size: tuple[int, int]) -> None:
    matrix = torch.randn(size, generator=torch.Generator().manual_seed(1))
    turned = orthogonal(1e3 * matrix)
    values = torch.linalg.svdvals(turned)
    assert values.min() > 0.5
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.linalg.norm(turned - left @ right) < 0.35 * torch.linalg.norm(left @ right)


def test_what_is_not_muons_learns_by_adamw() -> None:
    weights, alone = _weights(), _weights()
    _taught(_both(weights), weights, steps=range(3))
    _taught(torch.optim.AdamW(alone, lr=0.01, weight_decay=0.1), alone, steps=range(3))
    assert torch.equal(weights[1], alone[1])
    assert not torch.equal(weights[0], alone[0])


def test_its_state_goes_on_where_it_was() -> None:
    whole, halves = _weights(), _weights()
    _taught(_both(whole), whole, steps=range(4))
    first = _both(halves)
    _taught(first, halves, steps=range(2))
    second = _both(halves)
    second.load_state_dict(first.state_dict())
    _taught(second, halves, steps=range(2, 4))
    assert all(torch.equal(a, b) for a, b in zip(whole, halves, strict=True))
