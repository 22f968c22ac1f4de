"""Clips sampled to workspaces: which source frames a judge can see, at what size, and their pixels.

Joins protocol and video: implements the frame store of a pair. Knows the model's pixel range; refuses to know
decoding (video's) and conversations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vrt_lite.errors import VideoError
from vrt_lite.profile import CELL
from vrt_lite.protocol.frames import FrameRef, sample_workspace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.profile import Profile
    from vrt_lite.video import Clip

_MAX_RATIO = 200


def smart_resize(width: int, height: int, *, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) for the model: multiples of 28 within the pixel range, aspect kept as far as they allow.

    The reference's rule to the letter (transformers, `smart_resize` of Qwen2-VL's image processor); VideoError for
    an aspect ratio beyond 200, which it refuses too.
    """
    if max(width, height) > _MAX_RATIO * min(width, height):
        raise VideoError(f"A picture of {width}x{height} is too narrow: at most {_MAX_RATIO}:1 is allowed.")
    w = max(CELL, round(width / CELL) * CELL)
    h = max(CELL, round(height / CELL) * CELL)
    if w * h > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        w = max(CELL, math.floor(width / shrink / CELL) * CELL)
        h = max(CELL, math.floor(height / shrink / CELL) * CELL)
    elif w * h < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        w = math.ceil(width * grow / CELL) * CELL
        h = math.ceil(height * grow / CELL) * CELL
    return w, h


@dataclass(frozen=True, slots=True)
class Workspace:
    """One clip as a judge can ask for it: per position the source frame and its time; the size in pixels."""

    source: tuple[int, ...]
    seconds: tuple[float, ...]
    size: tuple[int, int]


def workspace_of(clip: Clip, profile: Profile) -> Workspace:
    """Sample an open clip by its own clock."""
    source = sample_workspace(clip.ticks.tolist(), profile.workspace, profile.first_frames)
    size = smart_resize(clip.info.width, clip.info.height, min_pixels=profile.min_pixels, max_pixels=profile.max_pixels)
    return Workspace(source, tuple(clip.seconds(index) for index in source), size)


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
        asked: list[set[int]] = [set(), set()]
        for frame in frames:
            asked[frame.clip].add(self._workspaces[frame.clip].source[frame.index])
        if all(asked):
            with ThreadPoolExecutor(2) as pool:
                found = list(pool.map(self._decode, (0, 1), asked))
        else:
            found = [self._decode(clip, asked[clip]) if asked[clip] else {} for clip in (0, 1)]
        return [found[frame.clip][self._workspaces[frame.clip].source[frame.index]] for frame in frames]

    def _decode(self, clip: int, indices: set[int]) -> dict[int, NDArray[np.uint8]]:
        return self._clips[clip].frames(sorted(indices), size=self._workspaces[clip].size)
