"""Teaches the tower's tokens the words for what covers their own cells, from labelled patches.

A token's score of a word is its product with the word vector, as in `train.line_words`; here every token has labels.
A copy of footage with a fault also has to score the fault's word higher than the same frames without it: what such
frames have in common cancels out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import MERGE, patches
from train.world.labelled_patches import LOOKS, MARKS, NOTHING, UNKNOWN, LabelledPatch

_WORDS: Final = (*LOOKS[0], *LOOKS[1], *LOOKS[2], *MARKS)
_SIZES: Final = [*map(len, LOOKS), len(MARKS)]
_RARE: Final = 1.0
"""What is subtracted from the scores of marks: most patches have few."""
_SHOWN: Final = 0.3
"""Weight of the loss of whether a shape is there; those of looks and marks have 1."""
_STEEPNESS: Final = 2.0
"""What the difference of two copies' scores is multiplied by."""
_KEPT: Final = 0.01
"""Weight of a squared change of a token, which is about 30 long."""
_LEAST_SIZE: Final = 1e-3
"""Singular values below this share of the largest are rounding errors."""


def cell_word_ids(tokenizer: PolicyTokenizer) -> list[int]:
    """Return the first token of each word that patches teach."""
    return [tokenizer.tokens(f" {word}", special=False)[0] for word in _WORDS]


def collate_patches(drawn: Sequence[Sequence[LabelledPatch]]) -> dict[str, Tensor]:
    """Build the part of a batch for `cell_loss`: pixels and grids of the patches, and the labels of all tokens.

    The patches of one seed share the weight of 1. `patch_beside` has for each patch the number of that without faults.
    """
    every = [patch for own in drawn for patch in own]
    flat = [patches(patch.pictures) for patch in every]
    arrays = {
        "patch_pixels": np.concatenate([part for part, _ in flat]),
        "patch_grids": np.array([grid for _, grid in flat], np.int64),
        "patch_looks": np.concatenate([patch.looks for patch in every]),
        "patch_marks": np.concatenate([patch.marks for patch in every]),
        "patch_shares": np.array([1 / len(own) for own in drawn for _ in own], np.float32),
        "patch_beside": np.array([number + patch.beside for number, patch in enumerate(every)], np.int64),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def patch_loss(
    visual: Any, vectors: Tensor, batch: dict[str, Tensor], *, before: Any = None, keep: float = 0.0
) -> Tensor:
    """Compute the loss of a tower for the labelled patches of a batch, a sum over seeds.

    It is `cell_loss` and, times `keep`, `measure_change` since the tower `before`.
    """
    pixels, grids = batch["patch_pixels"], batch["patch_grids"]
    tokens = visual(pixels, grid_thw=grids).pooler_output.float()
    with torch.no_grad():
        earlier = tokens if before is None else before(pixels, grid_thw=grids).pooler_output.float()
    with torch.autocast(tokens.device.type, enabled=False):
        loss = cell_loss(tokens, vectors, batch)
        return loss if before is None else loss + keep * measure_change(tokens, earlier, vectors, batch)


def cell_loss(tokens: Tensor, vectors: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Compute the sum over seeds of the mean losses of their patches: a patch's is the mean over its tokens.

    `tokens` are (tokens, width), and `vectors` are those of `cell_word_ids`.
    """
    grids, looks, shares = batch["patch_grids"], batch["patch_looks"], batch["patch_shares"]
    owner = _owners(grids)
    *parts, marked = (tokens @ vectors.T).split(_SIZES, dim=1)
    covered = looks[:, 0] != NOTHING

    def average(losses: Tensor, where: Tensor) -> Tensor:
        """Sum the means of losses over each patch's tokens of `where`, by the patches' shares."""
        empty = losses.new_zeros(len(grids))
        sums = empty.index_add(0, owner[where], losses)
        return (shares * sums / empty.index_add(0, owner[where], torch.ones_like(losses)).clamp(min=1)).sum()

    named = sum(
        functional.cross_entropy(part[covered], looks[covered, number], reduction="none")
        for number, part in enumerate(parts)
    )
    shown = sum(
        functional.softplus(-part[covered].gather(1, looks[covered, number, None])[:, 0])
        for number, part in enumerate(parts[:2])
    )
    absent = functional.softplus(torch.cat(parts, dim=1)[~covered]).sum(1)
    marks, everywhere = batch["patch_marks"], torch.ones_like(covered)
    wrong = functional.binary_cross_entropy_with_logits(marked - _RARE, marks.clamp(min=0).float(), reduction="none")
    faults = (wrong * (marks != UNKNOWN)).sum(1)
    beside = (_compare_copies(marked, marks, owner, batch["patch_beside"]) * shares).sum()
    looks_loss = average(named + _SHOWN * shown, covered) + _SHOWN * average(absent, ~covered)
    return looks_loss + average(faults, everywhere) + beside


def _compare_copies(scores: Tensor, marks: Tensor, owner: Tensor, beside: Tensor) -> Tensor:
    """Compute each patch's loss (patches,) of words that hold for it and not for the patch beside it, or the reverse.

    A word's score for a patch is the mean over its tokens. Words that hold for a part of a patch are left out.
    """
    count = torch.bincount(owner, minlength=len(beside))[:, None]
    score = scores.new_zeros(len(beside), scores.shape[1]).index_add(0, owner, scores) / count
    total = scores.new_zeros(score.shape).index_add(0, owner, marks.to(scores.dtype)) / count
    sign = (total - total[beside]) * ((total == 0) | (total == 1)) * ((total[beside] == 0) | (total[beside] == 1))
    wrong = functional.softplus(-_STEEPNESS * sign * (score - score[beside])) * (sign != 0)
    return wrong.sum(1) / (sign != 0).sum(1).clamp(min=1)


def measure_change(tokens: Tensor, before: Tensor, vectors: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Compute how much tokens of patches without faults have changed since `before`: the sum over seeds.

    What names faults may change: those words are left out. A text model has learnt to read the rest.
    """
    _, sizes, axes = torch.linalg.svd(vectors.split(_SIZES)[-1], full_matrices=False)
    axes = axes[sizes > _LEAST_SIZE * sizes[0]]
    changed = tokens - before
    squares = (changed - (changed @ axes.T) @ axes).square().sum(1)
    grids, own = (
        batch["patch_grids"],
        batch["patch_beside"] == torch.arange(len(batch["patch_beside"]), device=tokens.device),
    )
    owner = _owners(grids)
    total = squares.new_zeros(len(grids)).index_add(0, owner, squares) / torch.bincount(owner)
    return _KEPT * (total * own * batch["patch_shares"]).sum()


def _owners(grids: Tensor) -> Tensor:
    """Return the number of each token's patch, (tokens,)."""
    return torch.arange(len(grids), device=grids.device).repeat_interleave(grids.prod(1) // MERGE**2)


@torch.no_grad()
def amplify_words(visual: Any, vectors: Tensor, pixels: Tensor, grids: Tensor, *, gain: float) -> None:
    """Make the part of a tower's tokens that names words `gain` times larger, by its last layer.

    The part is a token's difference from the mean token of these patches, projected onto the span of `vectors`, which
    are those of `cell_word_ids`. Of a group of looks only the differences count: a token cannot name all colours.
    """
    *looks, marks = vectors.float().split(_SIZES)
    spanning = torch.cat([*(group - group.mean(0) for group in looks), marks])
    _, sizes, axes = torch.linalg.svd(spanning, full_matrices=False)
    axes = axes[sizes > _LEAST_SIZE * sizes[0]]
    usual = visual(pixels.to(vectors.device), grid_thw=grids).pooler_output.float().mean(0)
    onto, last = (gain - 1) * axes.T @ axes, visual.merger.mlp[-1]
    last.bias.add_(onto @ (last.bias.float() - usual))
    last.weight.add_(onto @ last.weight.float())
