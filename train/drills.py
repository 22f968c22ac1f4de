"""Drills: exercises in text alone. The thought of a written trace is learnt from its snapshot, without frames.

To compare a caption with what a snapshot says takes no pictures, and few pairs of a lesson have a caption that the
pictures contradict. A drill has about a tenth of the tokens of a pair. Several drills share a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import Rendered, Renderer, Segment
from train.traces import UNSEEN
from train.training_cases import LazyCases, TrainingCase
from train.world import TRAIN, case_of, scene
from train.world.values import Scene
from vrt_lite.judge import opening
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated, Message, Text

FIRST_SEED = TRAIN + 900_000_000
"""The first seed of the training range that is for drills."""
DRILLS_A_ROW = 2
_SEEDS_A_DRILL = 16
_THOUGHT = "<think>"


class Drills(LazyCases):
    """`count` pairs of the world with captions that the pictures confirm or contradict."""

    def __init__(self, count: int, *, first: int = FIRST_SEED) -> None:
        self._first, self._count = first, count

    def __len__(self) -> int:
        return self._count

    def make(self, place: int) -> TrainingCase:
        """Build the case of a place: the first of its seeds that has such a caption, or the last of them."""
        start = self._first + place * _SEEDS_A_DRILL
        drawn: Scene | None = None
        for seed in range(start, start + _SEEDS_A_DRILL):
            drawn = scene(seed)
            if drawn.caption_looks:
                break
        assert drawn is not None
        return case_of(drawn)


def render_drills(
    cases: Sequence[TrainingCase], tokenizer: PolicyTokenizer, renderer: Renderer, profile: Profile
) -> list[Rendered]:
    """Render the first replies of the cases' scripts without frames, `DRILLS_A_ROW` to a row.

    Only what follows a snapshot has a loss.
    """
    drills = [_render(case, tokenizer, renderer, profile) for case in cases]
    return [_join(drills[i : i + DRILLS_A_ROW]) for i in range(0, len(drills), DRILLS_A_ROW)]


def _render(case: TrainingCase, tokenizer: PolicyTokenizer, renderer: Renderer, profile: Profile) -> Rendered:
    texts = (
        Message(message.role, tuple(part for part in message.parts if isinstance(part, Text)))
        for message in opening(case.pair, profile)
    )
    conversation = (*texts, Message("assistant", (Generated(case.script[0]),)))
    drill = renderer.render(Segment(conversation, frozenset((len(conversation) - 1,))), UNSEEN)
    snapshot, _, _ = case.script[0].partition(_THOUGHT)
    start = int(drill.learned.argmax())
    drill.learned[start : start + len(tokenizer.tokens(snapshot, special=False))] = False
    return drill


def _join(drills: Sequence[Rendered]) -> Rendered:
    """Put conversations without frames into one row, one behind the other."""
    starts = np.cumsum([0, *(len(drill.ids) for drill in drills)])
    positions = [drill.positions + start for drill, (start, _) in zip(drills, pairwise(starts), strict=True)]
    first = drills[0]
    return Rendered(
        np.concatenate([drill.ids for drill in drills]),
        np.concatenate([drill.learned for drill in drills]),
        np.concatenate(positions, axis=1),
        np.concatenate([drill.kinds for drill in drills]),
        first.image_patches,
        first.image_grids,
        first.video_patches,
        first.video_grids,
    )
