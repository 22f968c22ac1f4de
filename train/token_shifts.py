"""Shifts a tower's tokens along the words for faults, alike for all videos of a row.

On footage that a tower has never seen, its score for a fault depends more on the clip than on the fault: between clips
the score for H.264 and H.265 told little (AUC 0.7), but beside the same frames without it, it was higher in nineteen of
twenty. On the few clips of training the score itself tells enough, so a text model has no reason to compare. Shifted
scores teach it to: only the differences between the videos of a row remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from train.cell_words import cell_word_ids
from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import MERGE, Rendered
from train.world.labelled_patches import MARKS

SHIFTS: Final = ("image_shifts", "video_shifts")
"""The names of the shifts in a batch, in the order in which the tower embeds them: (pictures or videos, MARKS)."""


def draw_shifts(rows: Sequence[Rendered], seeds: Sequence[Sequence[int] | None], *, most: float) -> dict[str, Tensor]:
    """Draw the shift of each row from its seed, in the unit of scores. A row without a seed has 0.

    A row's shifts are normal, with a deviation between 0 and `most`.
    """
    by_row = np.zeros((len(rows), len(MARKS)), np.float32)
    for shifts, seed in zip(by_row, seeds, strict=True):
        if seed is not None:
            chance = np.random.default_rng((*seed, 13))
            shifts[:] = chance.uniform(0, most) * chance.standard_normal(len(MARKS))
    counts = ([len(row.image_grids) for row in rows], [len(row.video_grids) for row in rows])
    found = (torch.from_numpy(by_row.repeat(own, axis=0)) for own in counts)
    return {name: shifts for name, shifts in zip(SHIFTS, found, strict=True) if len(shifts)}


class TokenShifter:
    """Shifts the tokens of a model's tower: those of each forward by the first of `waiting`, if there are any.

    Scores are products divided by `gain`.
    """

    def __init__(self, model: Any, tokenizer: PolicyTokenizer, *, gain: float) -> None:
        words = model.get_input_embeddings().weight.detach()[cell_word_ids(tokenizer)[-len(MARKS) :]].float() / gain
        self.waiting: list[Tensor] = []
        self._axes = torch.linalg.pinv(words).T
        model.model.visual.register_forward_hook(self._shift, with_kwargs=True)

    def _shift(self, _: Any, __: Any, given: dict[str, Any], out: Any) -> Any:
        if self.waiting:
            tokens, counts = out.pooler_output, given["grid_thw"].prod(1) // MERGE**2
            shifts = self.waiting.pop(0).to(tokens.device) @ self._axes.to(tokens.device)
            out.pooler_output = tokens + shifts.repeat_interleave(counts, 0).to(tokens.dtype)
        return out
