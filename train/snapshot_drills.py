"""Snapshot drills: one snapshot of a written trace alone, from the frames that its turn shows.

What a text model must learn to read in a tower's tokens is what a snapshot says, and a whole trace has three times as
many tokens. So a step may have some of these short rows beside its traces. Their captions are about other things: a
caption that says what the pictures show would teach the text model to copy it. A drill of a later turn has nothing of
what was said before; its lines say what happens from frame to frame.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from train.footage.footage_cases import drill_cases
from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import Rendered, Renderer, Segment
from train.recipe import Data
from train.traces import replay
from train.training_cases import Cases, TrainingCase
from train.world import TRAIN, World
from train.world.captions import draw_unrelated_caption
from vrt_lite.judge import opening
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated, Message

FIRST_SEED = TRAIN + 800_000_000
"""The first seed of the training range that is for snapshot drills."""
_SEEDS = 90_000_000
"""The number of first seeds of a leg's snapshot drills."""
_END = "</snapshot>\n"


def snapshot_cases(data: Data, count: int) -> Cases:
    """Return `count` pairs for snapshot drills: of the training footage if there is any, otherwise of the world."""
    first = FIRST_SEED + data.first % _SEEDS
    return drill_cases(data.footage if count else "", first=first, count=count) or World(first, count)


def render_snapshot(
    case: TrainingCase, tokenizer: PolicyTokenizer, renderer: Renderer, profile: Profile, *, later: bool = False
) -> Rendered:
    """Render one turn of a case up to the end of the script's snapshot about it, which has the loss.

    It is the first turn, under a caption about other things; or, if `later`, the last turn without those before it.
    """
    turn = len(case.script) - 1 if later else 0
    snapshot, _, _ = case.script[turn].partition(_END)
    if turn:
        conversation = replay(case, case.script, profile)[0][turn][-1:]
    else:
        caption = draw_unrelated_caption(np.random.default_rng(list(case.key.encode())))
        conversation = opening(replace(case.pair, caption=caption), profile)
    whole = (*conversation, Message("assistant", (Generated(snapshot + _END),)))
    with case.open(profile) as frames:
        row = renderer.render(Segment(whole, frozenset((len(conversation),))), frames)
    start = int(row.learned.argmax())
    end = start + len(tokenizer.tokens(snapshot + _END, special=False))
    # The reply goes on behind its snapshot: it does not end there.
    return row.until(end)
