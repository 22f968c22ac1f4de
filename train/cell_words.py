"""Teaches the tower's tokens the words for what covers their own cells, from labelled patches.

A token's score of a word is its product with the word vector, as in `train.line_words`; here every token has labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import MERGE
from train.world.draw import COLOURS, DIRECTIONS, FORMS
from train.world.labelled_patches import FAULTS, NOTHING, LabelledPatch
from train.world.script import NAMES

_GROUPS: Final = (tuple(COLOURS), FORMS, tuple(DIRECTIONS))
_WORDS: Final = (*_GROUPS[0], *_GROUPS[1], *_GROUPS[2], NAMES["ghosting"], *(NAMES[kind] for kind in FAULTS))
_LOOKS: Final = sum(map(len, _GROUPS))
_RARE: Final = 1.0
"""What is subtracted from the scores of ghosts and faults: most cells have none."""
_SHOWN, _FAULT = 0.3, 0.5
"""Weights of the losses of whether a shape is there, and of faults; those of looks and ghosts have 1."""


def cell_word_ids(tokenizer: PolicyTokenizer) -> list[int]:
    """Return the first token of each word that patches teach."""
    return [tokenizer.tokens(f" {word}", special=False)[0] for word in _WORDS]


def collate_patches(drawn: Sequence[LabelledPatch]) -> dict[str, Tensor]:
    """Build the part of a batch for `cell_loss`: pixels and grids of the patches, and the labels of all tokens."""
    faults = [np.full(len(patch.looks), patch.fault) for patch in drawn]
    arrays = {
        "patch_pixels": np.concatenate([patch.patches for patch in drawn]),
        "patch_grids": np.array([patch.grid for patch in drawn], np.int64),
        "patch_looks": np.concatenate([patch.looks for patch in drawn]),
        "patch_ghosts": np.concatenate([patch.ghosts for patch in drawn]),
        "patch_faults": np.concatenate(faults).astype(np.int64),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def cell_loss(tokens: Tensor, vectors: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Compute the sum over patches of the mean losses of their tokens.

    `tokens` are (tokens, width), and `vectors` are those of `cell_word_ids`.
    """
    grids, looks = batch["patch_grids"], batch["patch_looks"]
    owner = torch.arange(len(grids), device=tokens.device).repeat_interleave(grids.prod(1) // MERGE**2)
    scores = tokens @ vectors.T
    covered = looks[:, 0] != NOTHING

    def average(losses: Tensor, where: Tensor) -> Tensor:
        """Sum the means of losses over each patch's tokens of `where`."""
        empty = losses.new_zeros(len(grids))
        sums = empty.index_add(0, owner[where], losses)
        return (sums / empty.index_add(0, owner[where], torch.ones_like(losses)).clamp(min=1)).sum()

    parts = scores[:, :_LOOKS].split([len(group) for group in _GROUPS], dim=1)
    named = sum(
        functional.cross_entropy(part[covered], looks[covered, number], reduction="none")
        for number, part in enumerate(parts)
    )
    shown = sum(
        functional.softplus(-part[covered].gather(1, looks[covered, number, None])[:, 0])
        for number, part in enumerate(parts[:2])
    )
    absent = functional.softplus(scores[~covered, :_LOOKS]).sum(1)
    rare = scores[:, _LOOKS:] - _RARE
    ghosts = functional.binary_cross_entropy_with_logits(rare[:, 0], batch["patch_ghosts"].float(), reduction="none")
    has_fault = functional.one_hot(batch["patch_faults"] + 1, len(FAULTS) + 1)[:, 1:].float()
    faults = functional.binary_cross_entropy_with_logits(rare[:, 1:], has_fault, reduction="none").sum(1)
    everywhere = torch.ones_like(covered)
    return (
        average(named + _SHOWN * shown, covered)
        + _SHOWN * average(absent, ~covered)
        + average(ghosts + _FAULT * faults, everywhere)
    )
