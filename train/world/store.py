"""The frames of a pair as a judge asks for them: made when asked, kept while open. Imports torch on first use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.world.values import ClipSpec, Scene
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.frames import FrameRef, evenly_spaced

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Draw = Callable[[int, Sequence[float], tuple[int, int]], Sequence[NDArray[np.uint8]]]
    """Pictures of a clip by its number, at times in ticks, of a width and height."""


class KeptFrames:
    """The frame store of two clips: `draw` makes each frame once, at the size that `profile` gives its clip."""

    def __init__(self, clips: tuple[ClipSpec, ClipSpec], profile: Profile, draw: Draw) -> None:
        self._draw = draw
        self._sizes = {
            (number, called): profile.frame_size(clip.width, clip.height, called=called)
            for number, clip in enumerate(clips)
            for called in (False, True)
        }
        self._times = [
            [clip.position(frame) for frame in evenly_spaced(clip.frames, profile.workspace)] for clip in clips
        ]
        self._kept: dict[FrameRef, NDArray[np.uint8]] = {}

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays (height, width, 3), one a frame in the order asked."""
        for (number, called), size in self._sizes.items():
            asked = {frame for frame in frames if (frame.clip, frame.called) == (number, called)}
            missing = sorted(asked - self._kept.keys())
            if missing:
                drawn = self._draw(number, [self._times[number][frame.index] for frame in missing], size)
                self._kept |= dict(zip(missing, drawn, strict=True))
        return [self._kept[frame] for frame in frames]


@dataclass(frozen=True, slots=True)
class Opening:
    """Opens a scene's frames: a `Case.open` that another process can be handed."""

    scene: Scene
    device: str = "cpu"

    @contextmanager
    def __call__(self, profile: Profile) -> Generator[FrameStore]:
        """The frames at a profile's size, to be used in a `with` block."""
        from train.world.render import frames as rendered  # noqa: PLC0415 - torch, only where pictures are wanted

        clips = self.scene.clips
        yield KeptFrames(
            clips, profile, lambda number, times, size: rendered(clips[number], times, size, device=self.device)
        )
