"""Clips sampled to workspaces: which source frames a judge can see, at what size, and their pixels.

Joins protocol and video: this is the frame store of a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from vrt_lite.errors import VideoError
from vrt_lite.protocol.messages import FrameRef, sample_workspace
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vrt_lite.profile import Profile
    from vrt_lite.video import Clip


@dataclass(frozen=True, slots=True)
class Workspace:
    """The frames of one clip that a judge can ask for: the source frame and the time of each position.

    `size` is the (width, height) of a frame shown first, `tool_size` of one of a tool call.
    """

    source: tuple[int, ...]
    seconds: tuple[float, ...]
    size: tuple[int, int]
    tool_size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ClipLook:
    """What is known of a clip once it is opened. `open_ended`: the file does not say how long it is."""

    duration_seconds: float
    workspace: Workspace
    open_ended: bool


def workspace_of(clip: Clip, profile: Profile) -> Workspace:
    """Sample an open clip by its own clock. VideoError for a picture that is too narrow."""
    shown = profile.count_first(clip.info.duration_seconds, clip.info.frames)
    # In one reply a judge can ask for no more.
    source = sample_workspace(clip.ticks.tolist(), shown if profile.answer else profile.workspace, shown)
    try:
        sizes = [profile.frame_size(clip.info.width, clip.info.height, called=called) for called in (False, True)]
    except ValueError as error:
        raise VideoError(clip.info.path, str(error)) from None
    return Workspace(source, tuple(clip.seconds(index) for index in source), *sizes)


class PairFrames:
    """The frame store of two open clips, in prompt order. It may be used by several threads, and so may `swapped`."""

    def __init__(
        self,
        clips: tuple[Clip, Clip],
        workspaces: tuple[Workspace, Workspace],
        *,
        wait: Callable[[], object] | None = None,
    ) -> None:
        """Take both clips. `wait` is called before anything is decoded: until it returns, another pass may do that."""
        self._clips = clips
        self._workspaces = workspaces
        self._wait = wait
        self._decoding = Lock()

    def swapped(self) -> PairFrames:
        """The same frames with the clips exchanged."""
        (a, b), (of_a, of_b) = self._clips, self._workspaces
        swapped = PairFrames((b, a), (of_b, of_a), wait=self._wait)
        swapped._decoding = self._decoding
        return swapped

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays in the order given. A clip keeps what it has decoded; two clips are decoded at once."""
        if self._wait:
            self._wait()
        by_clip = [[frame for frame in frames if frame.clip == clip] for clip in (0, 1)]
        with self._decoding:
            if all(by_clip):
                with ThreadPool(2) as pool:
                    decoded = list(pool.map(self._decode, by_clip))
            else:
                decoded = [self._decode(of_clip) for of_clip in by_clip]
        pixels = decoded[0] | decoded[1]
        return [pixels[frame] for frame in frames]

    def _decode(self, frames: Sequence[FrameRef]) -> dict[FrameRef, NDArray[np.uint8]]:
        """Frames of one clip; those of a tool call have a size of their own."""
        decoded: dict[FrameRef, NDArray[np.uint8]] = {}
        for called in (False, True):
            group = {frame for frame in frames if frame.called == called}
            if group:
                (clip,) = {frame.clip for frame in group}
                space = self._workspaces[clip]
                indices = sorted({space.source[frame.index] for frame in group})
                pixels = self._clips[clip].frames(indices, size=space.tool_size if called else space.size)
                decoded |= {frame: pixels[space.source[frame.index]] for frame in group}
        return decoded
