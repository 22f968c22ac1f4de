"""Clips sampled to workspaces: which source frames a judge can see, at what size, and their pixels.

Joins protocol and video: implements the frame store of a pair. Knows the model's pixel range; refuses to know
decoding (video's) and conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vrt_lite.protocol.frames import FrameRef, sample_workspace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.profile import Profile
    from vrt_lite.video import Clip


@dataclass(frozen=True, slots=True)
class Workspace:
    """One clip as a judge can ask for it: per position the source frame and its time.

    `size` is the (width, height) of a frame shown first, `tool_size` of one that a tool call brought.
    """

    source: tuple[int, ...]
    seconds: tuple[float, ...]
    size: tuple[int, int]
    tool_size: tuple[int, int]


def workspace_of(clip: Clip, profile: Profile) -> Workspace:
    """Sample an open clip by its own clock."""
    source = sample_workspace(clip.ticks.tolist(), profile.workspace, profile.first_frames)
    sizes = (profile.frame_size(clip.info.width, clip.info.height, called=called) for called in (False, True))
    return Workspace(source, tuple(clip.seconds(index) for index in source), *sizes)


class PairFrames:
    """The frame store of two open clips, in prompt order."""

    def __init__(self, clips: tuple[Clip, Clip], workspaces: tuple[Workspace, Workspace]) -> None:
        self._clips = clips
        self._workspaces = workspaces

    def swapped(self) -> PairFrames:
        """The same frames with the clips exchanged."""
        (a, b), (of_a, of_b) = self._clips, self._workspaces
        return PairFrames((b, a), (of_b, of_a))

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays in the order asked. What a clip decoded before it holds; the two clips decode side by side."""
        by_clip = [[frame for frame in frames if frame.clip == clip] for clip in (0, 1)]
        if all(by_clip):
            with ThreadPoolExecutor(2) as pool:
                decoded = list(pool.map(self._decode, by_clip))
        else:
            decoded = [self._decode(asked) for asked in by_clip]
        found = decoded[0] | decoded[1]
        return [found[frame] for frame in frames]

    def _decode(self, frames: Sequence[FrameRef]) -> dict[FrameRef, NDArray[np.uint8]]:
        """Frames of one clip; those that a tool brought have a size of their own."""
        found: dict[FrameRef, NDArray[np.uint8]] = {}
        for called in (False, True):
            asked = {frame for frame in frames if frame.called == called}
            if asked:
                (clip,) = {frame.clip for frame in asked}
                space = self._workspaces[clip]
                indices = sorted({space.source[frame.index] for frame in asked})
                pixels = self._clips[clip].frames(indices, size=space.tool_size if called else space.size)
                found |= {frame: pixels[space.source[frame.index]] for frame in asked}
        return found
