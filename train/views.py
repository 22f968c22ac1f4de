"""The frames that a judge sees when it calls for frames: the ablations of the paper.

The view "asked" is the normal tool. "random" keeps the call and its frame numbers, but shows other frames of the same
clip. "none" ends after the first reply, whose recommendation then counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import FrameRef, shown_first

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


View = Literal["asked", "random", "none"]
VIEWS: tuple[View, ...] = get_args(View)


def profile_in_view(profile: Profile, view: View) -> Profile:
    """Return the profile for a view."""
    return replace(profile, rounds=1) if view == "none" else profile


def frames_in_view(frames: FrameStore, view: View, *, profile: Profile, seed: str) -> FrameStore:
    """Return the frame store for a view. The same `seed` (a case's key) gives the same frames."""
    return RandomFrames.of(frames, profile, seed) if view == "random" else frames


@dataclass(frozen=True)
class RandomFrames:
    """Replaces every frame, except those shown first, by another frame of the same clip.

    Each clip's positions are shuffled, so different frames stay different.
    """

    frames: FrameStore
    instead: tuple[tuple[int, ...], tuple[int, ...]] = field(repr=False)

    @classmethod
    def of(cls, frames: FrameStore, profile: Profile, seed: str) -> RandomFrames:
        """Create the shuffled store of one case."""
        return cls(frames, (_shuffled(profile, 0, seed), _shuffled(profile, 1, seed)))

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """Return RGB arrays in the order of `frames`."""
        return self.frames.pixels([replace(f, index=self.instead[f.clip][f.index]) for f in frames])


def _shuffled(profile: Profile, clip: int, seed: str) -> tuple[int, ...]:
    first = {frame.index for frame in shown_first(profile.workspace, profile.first_frames, clip)}
    others = [index for index in range(profile.workspace) if index not in first]
    shuffled = random.Random(f"{seed}/{clip}").sample(others, len(others))
    instead = dict(zip(others, shuffled, strict=True))
    return tuple(instead.get(index, index) for index in range(profile.workspace))
