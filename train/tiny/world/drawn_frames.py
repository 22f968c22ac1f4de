"""The frames of a pair for a judge: rendered on request, kept while open. Imports torch on first use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.tiny.world.values import ClipSpec, Scene
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import FrameRef, evenly_spaced

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Draw = Callable[[int, Sequence[float], tuple[int, int]], Iterable[NDArray[np.uint8]]]
    """Renders pictures of a clip: its number, times in ticks, (width, height)."""


class RenderedFrames:
    """A frame store of two clips. `draw` renders each frame once, at the size that `profile` gives its clip."""

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
        """Return an RGB array (height, width, 3) for each frame, in the order of `frames`."""
        for (number, called), size in self._sizes.items():
            requested = {frame for frame in frames if (frame.clip, frame.called) == (number, called)}
            missing = sorted(requested - self._kept.keys())
            if missing:
                drawn = self._draw(number, [self._times[number][frame.index] for frame in missing], size)
                self._kept |= dict(zip(missing, drawn, strict=True))
        return [self._kept[frame] for frame in frames]


@dataclass(frozen=True, slots=True)
class SceneOpener:
    """Opens a scene's frames: a `TrainingCase.open` that can be sent to another process."""

    scene: Scene
    device: str = "cpu"

    @contextmanager
    def __call__(self, profile: Profile) -> Generator[FrameStore]:
        """Open the frames at a profile's size, for a `with` block."""
        from train.tiny.world.render import frames as rendered  # noqa: PLC0415 - torch, only where pictures are needed

        clips = self.scene.clips
        yield RenderedFrames(
            clips, profile, lambda number, times, size: rendered(clips[number], times, size, device=self.device)
        )
