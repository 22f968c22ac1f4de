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

    The patches of one seed share the weight of 1. `patch_clean` has for each patch the number of
    the patch with the same content and no fault.
    """
    every = [patch for own in drawn for patch in own]
    flat = [patches(patch.pictures) for patch in every]
    arrays = {
        "patch_pixels": np.concatenate([part for part, _ in flat]),
        "patch_grids": np.array([grid for _, grid in flat], np.int64),
        "patch_looks": np.concatenate([patch.looks for patch in every]),
        "patch_marks": np.concatenate([patch.marks for patch in every]),
        "patch_shares": np.array([1 / len(own) for own in drawn for _ in own], np.float32),
        "patch_clean": np.array([number + patch.clean for number, patch in enumerate(every)], np.int64),
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
    with torch.autocast(tokens.device.type, enabled=False):
        loss = cell_loss(tokens, vectors, batch)
    if before is None:
        return loss
    clean = batch["patch_clean"] == torch.arange(len(grids), device=grids.device)
    patches_of, cells_of = grids.prod(1), grids.prod(1) // MERGE**2
    with torch.no_grad():
        shown = pixels[clean.repeat_interleave(patches_of)]
        earlier = before.to(pixels.device)(shown, grid_thw=grids[clean]).pooler_output.float()
    with torch.autocast(tokens.device.type, enabled=False):
        change = measure_change(tokens[clean.repeat_interleave(cells_of)], earlier, vectors, grids[clean])
        return loss + keep * (change * batch["patch_shares"][clean]).sum()


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
        return (shares * _average_by_patch(losses, owner[where], len(grids))).sum()

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
    compared = (shares * _compare_copies(marked, marks, owner, batch["patch_clean"])).sum()
    looks_loss = average(named + _SHOWN * shown, covered) + _SHOWN * average(absent, ~covered)
    return looks_loss + average(faults, everywhere) + compared


def _compare_copies(scores: Tensor, marks: Tensor, owner: Tensor, clean: Tensor) -> Tensor:
    """Compute each patch's loss (patches,) of words that hold for it and not for the patch without faults.

    `clean` has the number of that patch. A word's score for a patch is the mean over its tokens. Words that hold for a
    part of a patch, or may hold, are left out.
    """
    score, held = (_average_by_patch(values, owner, len(clean)) for values in (scores, marks.to(scores.dtype)))
    known = (held == 0) | (held == 1)
    sign = (held - held[clean]) * known * known[clean]
    wrong = functional.softplus(-_STEEPNESS * sign * (score - score[clean])) * (sign != 0)
    return wrong.sum(1) / (sign != 0).sum(1).clamp(min=1)


def measure_change(tokens: Tensor, before: Tensor, vectors: Tensor, grids: Tensor) -> Tensor:
    """Compute how much the tokens of each patch have changed since `before`, (patches,).

    What names faults may change: those words are left out. A text model has learnt to read the rest.
    """
    axes = _find_axes(vectors.split(_SIZES)[-1])
    changed = tokens - before
    squares = (changed - (changed @ axes.T) @ axes).square().sum(1)
    return _KEPT * _average_by_patch(squares, _owners(grids), len(grids))


def _average_by_patch(values: Tensor, owner: Tensor, patches: int) -> Tensor:
    """Average values over the tokens of each patch; 0 for a patch without a token."""
    sums = values.new_zeros(patches, *values.shape[1:]).index_add(0, owner, values)
    count = torch.bincount(owner, minlength=patches).clamp(min=1)
    return sums / count.view(-1, *(1 for _ in values.shape[1:]))


def _find_axes(vectors: Tensor) -> Tensor:
    """Return orthonormal axes of what these vectors span, (axes, width)."""
    _, sizes, axes = torch.linalg.svd(vectors, full_matrices=False)
    return axes[sizes > _LEAST_SIZE * sizes[0]]


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
    axes = _find_axes(spanning)
    usual = visual(pixels.to(vectors.device), grid_thw=grids).pooler_output.float().mean(0)
    onto, last = (gain - 1) * axes.T @ axes, visual.merger.mlp[-1]
    last.bias.add_(onto @ (last.bias.float() - usual))
    last.weight.add_(onto @ last.weight.float())
