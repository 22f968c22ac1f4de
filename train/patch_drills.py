"""Labelled patches as exercises: the tower names what covers each cell, and the text model reads that.

A caption that says what the pictures show teaches a text model to copy it. A row of one patch has no caption, and as
many subjects as shapes: which form goes with which colour can only be read in the tower's tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import Rendered, Renderer, Segment
from train.recipe import TrainingRecipe
from train.world.labelled_patches import LOOKS, NOTHING, LabelledPatch, draw_labelled_patch
from train.world.script import describe_looks
from train.world.values import Looks
from vrt_lite.protocol.messages import FrameRef, Generated, Message, Video

if TYPE_CHECKING:
    from train.footage.labelled_footage import LabelledFootage

_OPENING: Final = "<snapshot>\n"
_VIDEO: Final = Video((FrameRef(0, 0), FrameRef(0, 1)), 0.0)


class LabelledPatches:
    """Labelled patches by seed, a list for each: with footage in the recipe, odd seeds have its training clips."""

    def __init__(self, recipe: TrainingRecipe) -> None:
        self._footage: LabelledFootage | None = None
        if recipe.data.footage and recipe.pretrain.patches:
            from train.footage.labelled_footage import LabelledFootage  # noqa: PLC0415  the decoder

            self._footage = LabelledFootage(Path(recipe.data.footage), recipe.profile, copies=recipe.pretrain.copies)

    def draw(self, seed: int) -> list[LabelledPatch]:
        """Draw the patches of a seed. All random numbers are NumPy's."""
        return self._footage.draw(seed) if self._footage and seed % 2 else [draw_labelled_patch(seed)]


def describe_patch(patch: LabelledPatch, seed: int) -> str:
    """Write a line for each shape of a patch, in random order. A shape whose colour comes twice has no line."""
    looks = np.unique(patch.looks[patch.looks[:, 0] != NOTHING], axis=0)
    _, places, counts = np.unique(looks[:, 0], return_index=True, return_counts=True)
    single = looks[places[counts == 1]]
    shown = single[np.random.default_rng((seed, 12)).permutation(len(single))]
    named = (Looks(*(options[n] for options, n in zip(LOOKS, numbers, strict=True))) for numbers in shown)
    return "".join(f"Video 1: {describe_looks(looks)}\n" for looks in named)


def render_patch(seed: int, tokenizer: PolicyTokenizer, renderer: Renderer) -> Rendered:
    """Render the labelled patch of a seed, and the lines about its shapes, which have the loss."""
    patch = draw_labelled_patch(seed)
    text = describe_patch(patch, seed)
    conversation = (Message("user", (_VIDEO,)), Message("assistant", (Generated(_OPENING + text),)))
    row = renderer.render(Segment(conversation, frozenset((1,))), patch)
    start = int(row.learned.argmax()) + len(tokenizer.tokens(_OPENING, special=False))
    row.learned[:start] = False
    return row.until(start + len(tokenizer.tokens(text, special=False)))
