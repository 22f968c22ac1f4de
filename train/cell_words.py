"""Teaches the tower's tokens the words for what covers their own cells, from labelled patches.

A token's score of a word is its product with the word vector, as in `train.line_words`; here every token has labels.
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
_LEAST_SIZE: Final = 1e-3
"""Singular values below this share of the largest are rounding errors."""


def cell_word_ids(tokenizer: PolicyTokenizer) -> list[int]:
    """Return the first token of each word that patches teach."""
    return [tokenizer.tokens(f" {word}", special=False)[0] for word in _WORDS]


def collate_patches(drawn: Sequence[LabelledPatch]) -> dict[str, Tensor]:
    """Build the part of a batch for `cell_loss`: pixels and grids of the patches, and the labels of all tokens."""
    flat = [patches(patch.pictures) for patch in drawn]
    arrays = {
        "patch_pixels": np.concatenate([part for part, _ in flat]),
        "patch_grids": np.array([grid for _, grid in flat], np.int64),
        "patch_looks": np.concatenate([patch.looks for patch in drawn]),
        "patch_marks": np.concatenate([patch.marks for patch in drawn]),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def cell_loss(tokens: Tensor, vectors: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Compute the sum over patches of the mean losses of their tokens.

    `tokens` are (tokens, width), and `vectors` are those of `cell_word_ids`.
    """
    grids, looks = batch["patch_grids"], batch["patch_looks"]
    owner = torch.arange(len(grids), device=tokens.device).repeat_interleave(grids.prod(1) // MERGE**2)
    *parts, marked = (tokens @ vectors.T).split(_SIZES, dim=1)
    covered = looks[:, 0] != NOTHING

    def average(losses: Tensor, where: Tensor) -> Tensor:
        """Sum the means of losses over each patch's tokens of `where`."""
        empty = losses.new_zeros(len(grids))
        sums = empty.index_add(0, owner[where], losses)
        return (sums / empty.index_add(0, owner[where], torch.ones_like(losses)).clamp(min=1)).sum()

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
    return average(named + _SHOWN * shown, covered) + _SHOWN * average(absent, ~covered) + average(faults, everywhere)


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
