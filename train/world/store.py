"""The frames of a scene as a judge asks for them: rendered when asked, kept while open. Imports torch on first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.world.values import Scene
from vrt_lite.profile import Profile
from vrt_lite.protocol.frames import FrameRef, evenly_spaced
from vrt_lite.sampled import smart_resize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SceneFrames:
    """A frame store over a scene. Pictures have the size that `profile` gives a clip of the scene's size."""

    def __init__(self, scene: Scene, profile: Profile, *, device: str = "cpu") -> None:
        self._scene = scene
        self._device = device
        self._sizes = [
            smart_resize(clip.width, clip.height, min_pixels=profile.min_pixels, max_pixels=profile.max_pixels)
            for clip in scene.clips
        ]
        self._times = [
            [clip.position(frame) for frame in evenly_spaced(clip.frames, profile.workspace)] for clip in scene.clips
        ]
        self._kept: dict[FrameRef, NDArray[np.uint8]] = {}

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays (height, width, 3), one a frame in the order asked."""
        from train.world.render import frames as rendered  # noqa: PLC0415 - torch, only where pictures are wanted

        for number, clip in enumerate(self._scene.clips):
            missing = sorted({frame for frame in frames if frame.clip == number} - self._kept.keys())
            if missing:
                times = [self._times[number][frame.index] for frame in missing]
                drawn = rendered(clip, times, self._sizes[number], device=self._device)
                self._kept |= dict(zip(missing, drawn, strict=True))
        return [self._kept[frame] for frame in frames]


@dataclass(frozen=True, slots=True)
class Opening:
    """Opens a scene's frames: a `Case.open` that another process can be handed."""

    scene: Scene
    device: str = "cpu"

    def __call__(self, profile: Profile) -> AbstractContextManager[SceneFrames]:
        """The frames at a profile's size, to be used in a `with` block."""
        return _open(self.scene, profile, self.device)


@contextmanager
def _open(scene: Scene, profile: Profile, device: str) -> Iterator[SceneFrames]:
    yield SceneFrames(scene, profile, device=device)
