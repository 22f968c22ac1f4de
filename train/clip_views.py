"""The samples of pretraining: what a turn shows of one clip, with the script's line about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import patches_of, pixels_of
from train.traces import replay
from train.training_cases import TrainingCase
from vrt_lite.judge import Round
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Image, Video
from vrt_lite.protocol.tags import parse


@dataclass(frozen=True, slots=True)
class ClipView:
    """What a turn shows of a clip, patches (count, 1176) and grids (pictures, 3), and the line about it."""

    patches: NDArray[np.uint8]
    grids: NDArray[np.int64]
    line: str
    turn: int = 0


def clip_views(case: TrainingCase, profile: Profile) -> Iterator[ClipView]:
    """Yield the views of a case that have a line in its script, turn by turn and clip by clip."""
    visible, trial = replay(case, case.script, profile)
    with case.open(profile) as frames:
        pixels = pixels_of([conversation[-1] for conversation in visible], frames)
        for number, (conversation, turn) in enumerate(zip(visible, trial.rounds, strict=True)):
            for clip, line in enumerate(lines_of(turn)):
                parts = [part for part in conversation[-1].parts if isinstance(part, Video | Image)]
                shown = [patches_of(part, pixels) for part in parts if clip_of(part) == clip]
                if line and shown:
                    patched, grids = np.concatenate([flat for flat, _ in shown]), np.array([grid for _, grid in shown])
                    yield ClipView(patched, grids, line, number)


def lines_of(turn: Round) -> list[str]:
    """Return the line about each clip in a turn's snapshot, or ""."""
    return _lines(turn.parsed.notes.snapshot)


def lines_in(reply: str) -> list[str]:
    """Return the line about each clip in the snapshot of a reply's text, or ""."""
    return _lines(parse(reply).notes.snapshot)


def _lines(snapshot: str) -> list[str]:
    lines, names = snapshot.splitlines(), ("Video 1:", "Video 2:")
    return [next((line.removeprefix(name) for line in lines if line.startswith(name)), "") for name in names]


def clip_of(part: Video | Image) -> int:
    """Return the clip that a part shows."""
    return part.frames[0].clip if isinstance(part, Video) else part.frame.clip


def words_of(line: str, tokenizer: PolicyTokenizer) -> list[int]:
    """Return the different tokens of a line, without digits, because pictures do not show frame numbers."""
    return sorted(set(tokenizer.tokens(re.sub(r"\d+", "", line), special=False)))
