"""Pairs of clips judged by vrt-lite's own loop with any back end, and how many judgements of two back ends are equal.

The loop is complete: rounds, frames of calls, the memory window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from convert.clip_pairs import ClipPair
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import Backend
from vrt_lite.judge import Pair, judge_with
from vrt_lite.pair_frames import PairFrames, workspace_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Choice
from vrt_lite.video import Clip, open_clip

Size = Literal["displayed", "fitted"]
"""Frames as the clip displays them, for a back end that resizes; or at the model's size, as vrt-lite resizes."""
Choices = Mapping[str, Choice] | None
"""The winner by key (TA, VQ, MQ, OA), or None if the loop ended without a verdict."""


def judge_pairs(pairs: Sequence[ClipPair], profile: Profile, backend: Backend, *, size: Size) -> Iterator[Choices]:
    """Judge each pair greedily, in order. Returns the winners. Raises VideoError for a clip."""
    for pair in pairs:
        with ExitStack() as stack:
            shown = open_pair(stack, pair, profile)
            try:
                verdict = judge_with(shown.pair, profile, backend, shown.frames(size)).verdict
            except NoVerdictError:
                yield None
            else:
                yield {key: preference.winner for key, preference in verdict.preferences.items()}


@dataclass(frozen=True)
class OpenPair:
    """A pair with its open clips, sampled by the profile."""

    pair: Pair
    clips: tuple[Clip, Clip]
    profile: Profile

    def frames(self, size: Size) -> PairFrames:
        """Return the store of its frames in one size."""
        a, b = (workspace_of(clip, self.profile) for clip in self.clips)
        if size == "displayed":
            a, b = (
                replace(space, size=(clip.info.width, clip.info.height), tool_size=(clip.info.width, clip.info.height))
                for space, clip in zip((a, b), self.clips, strict=True)
            )
        return PairFrames(self.clips, (a, b))


def open_pair(stack: ExitStack, pair: ClipPair, profile: Profile) -> OpenPair:
    """Open the pair's clips until `stack` ends. Raises VideoError."""
    clips = (stack.enter_context(open_clip(pair.a)), stack.enter_context(open_clip(pair.b)))
    a, b = (clip.info for clip in clips)
    sizes = ((a.width, a.height), (b.width, b.height))
    return OpenPair(Pair(pair.caption, (a.duration_seconds, b.duration_seconds), sizes), clips, profile)


def agreement(theirs: Sequence[Choices], mine: Sequence[Choices]) -> str:
    """Count the judgements (four for each pair) that equal the reference's, as a text: "7 of 8 on 2 pairs".

    A pair on which `mine` has no verdict shares none. "… on 1 of 2 pairs" where the reference has none on the other.
    """
    count = f"{len(theirs)} pair{'s' * (len(theirs) != 1)}"
    counted = [(a, b or {}) for a, b in zip(theirs, mine, strict=True) if a is not None]
    if not counted:
        return f"none by the reference on {count}"
    same = sum(b.get(key) == winner for a, b in counted for key, winner in a.items())
    on = count if len(counted) == len(theirs) else f"{len(counted)} of {count}"
    return f"{same} of {sum(len(a) for a, _ in counted)} on {on}"
