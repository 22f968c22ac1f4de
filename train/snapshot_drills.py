"""Snapshot drills: the first snapshot of a written trace alone, from the first frames of a pair.

What a text model must learn to read in a tower's tokens is what a snapshot says, and a whole trace has three times as
many tokens. So a step may have some of these short rows beside its traces.
"""

from __future__ import annotations

from dataclasses import replace

from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import Rendered, Renderer, Segment
from train.training_cases import TrainingCase
from train.world import TRAIN, World
from vrt_lite.judge import opening
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated, Message

FIRST_SEED = TRAIN + 800_000_000
"""The first seed of the training range that is for snapshot drills."""
_END = "</snapshot>\n"


def snapshot_cases(count: int) -> World:
    """Return `count` pairs of the world for snapshot drills."""
    return World(FIRST_SEED, count)


def render_snapshot(case: TrainingCase, tokenizer: PolicyTokenizer, renderer: Renderer, profile: Profile) -> Rendered:
    """Render a case up to the end of its script's first snapshot, which has the loss."""
    snapshot, _, _ = case.script[0].partition(_END)
    conversation = opening(case.pair, profile)
    whole = (*conversation, Message("assistant", (Generated(snapshot + _END),)))
    with case.open(profile) as frames:
        row = renderer.render(Segment(whole, frozenset((len(conversation),))), frames)
    start = int(row.learned.argmax())
    end = start + len(tokenizer.tokens(snapshot + _END, special=False))
    # The reply goes on behind its snapshot: it does not end there.
    return replace(
        row, ids=row.ids[:end], learned=row.learned[:end], positions=row.positions[:, :end], kinds=row.kinds[:end]
    )
