"""What a judge gets to see when it calls for frames: the ablations of the paper. Knows frames; no model.

`asked` is the tool as it is. `random` keeps the call and its frame numbers and shows other frames of the same clip.
`none` ends after the first reply, whose recommendation then stands.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from train.evaluation.outcomes import View
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.frames import FrameRef, shown_first

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def viewed(profile: Profile, view: View) -> Profile:
    """The profile that a judge runs under in this view."""
    return replace(profile, rounds=1) if view == "none" else profile


def seen(frames: FrameStore, view: View, *, profile: Profile, seed: str) -> FrameStore:
    """The frame store of this view; the same `seed` (a case's key) shows the same frames."""
    return RandomFrames.of(frames, profile, seed) if view == "random" else frames


@dataclass(frozen=True)
class RandomFrames:
    """Shows, for every frame that is not among the first shown, another of the same clip, drawn at random.

    Different frames stay different: each clip's positions are shuffled. The first ones are themselves.
    """

    frames: FrameStore
    instead: tuple[tuple[int, ...], tuple[int, ...]] = field(repr=False)

    @classmethod
    def of(cls, frames: FrameStore, profile: Profile, seed: str) -> RandomFrames:
        """The shuffled store of one case."""
        return cls(frames, (_shuffled(profile, 0, seed), _shuffled(profile, 1, seed)))

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays in the order asked."""
        return self.frames.pixels([replace(f, index=self.instead[f.clip][f.index]) for f in frames])


def _shuffled(profile: Profile, clip: int, seed: str) -> tuple[int, ...]:
    first = {frame.index for frame in shown_first(profile.workspace, profile.first_frames, clip)}
    others = [index for index in range(profile.workspace) if index not in first]
    drawn = random.Random(f"{seed}/{clip}").sample(others, len(others))
    found = dict(zip(others, drawn, strict=True))
    return tuple(found.get(index, index) for index in range(profile.workspace))
