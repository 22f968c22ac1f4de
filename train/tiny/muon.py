"""Muon and AdamW as one optimizer, for recipes that use Muon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5


class Muon(torch.optim.AdamW):
    """AdamW, except for the matrices of groups with `muon` true: their step is the orthogonalised momentum.

    This is the original Muon (Jordan et al. 2024, Nesterov's momentum), with steps as long as AdamW's (Moonlight, arXiv
    2502.16982). torch's own Muon computes in bfloat16, which takes seconds for a step on a CPU, and cannot be combined
    with AdamW, which embeddings, norms and biases need.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. It clears the gradients of the groups with `muon`."""
        for group in self.param_groups:
            if group.get("muon"):
                for matrix in group["params"]:
                    if matrix.grad is not None:
                        self._turn(matrix, group)
                        matrix.grad = None  # so that AdamW skips it
        return super().step(closure)

    def _turn(self, matrix: Tensor, group: dict[str, Any]) -> None:
        gradient, state = matrix.grad.float(), self.state[matrix]
        if not state:
            state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(gradient)}  # AdamW's own states have a step
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
        turned = orthogonal(gradient.lerp(state["momentum"], _MOMENTUM))
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        matrix.add_(turned.to(matrix.dtype), alpha=-0.2 * max(matrix.shape) ** 0.5 * group["lr"])


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about the nearest matrix with all singular values 1 (they are 0.7 to 1.2): five Newton-Schulz steps."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x
