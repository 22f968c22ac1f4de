"""Collects the frames that are measured while they are decoded for the judge, and measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vrt_lite.measures import MEASURES, MeasuredPair, MeasureName, compare_values
from vrt_lite.measures.motion import make_small, measure_motion
from vrt_lite.measures.picture import Luma, measure_pictures, prepare_picture
from vrt_lite.protocol.messages import shown_first
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.pair_frames import Workspace
    from vrt_lite.profile import Profile
    from vrt_lite.video import Clip

_MOST_PIXELS = 60_000_000
"""What is decoded of a clip for the measures alone, at most: about 0.1 s. Where more would be needed, only the frames
that the judge is shown first are measured."""
_PICTURES = 16
"""So many pictures of a clip are measured by themselves; motion is measured in all of them."""


@dataclass(slots=True)
class _Collected:
    """The pictures of one clip that are to be measured, by their index in the file."""

    clip: Clip
    pictures: frozenset[int]
    scaled_and_stored: dict[int, tuple[Luma, Luma]] = field(default_factory=dict[int, tuple[Luma, Luma]])
    small: dict[int, Luma] = field(default_factory=dict[int, Luma])

    def see(self, index: int, luma: Luma) -> None:
        """Keep what is measured of a frame."""
        self.small[index] = make_small(luma)
        if index in self.pictures:
            self.scaled_and_stored[index] = prepare_picture(luma)

    def measure(self) -> Mapping[MeasureName, float]:
        """Measure the clip, by the names of the measures."""
        self.clip.see_rest()
        order = sorted(self.small)
        found = measure_motion([self.small[i] for i in order], [self.clip.seconds(i) for i in order])
        pictures = list(self.scaled_and_stored.values())
        return {**(measure_pictures(pictures) if pictures else {}), **found}


class Measuring:
    """Collects frames of two open clips while they are decoded, and measures them."""

    def __init__(self, clips: tuple[Clip, Clip], workspaces: tuple[Workspace, Workspace], profile: Profile) -> None:
        """Watch the frames of the workspaces; where that would take long, those that the judge is shown first."""
        shown = [ref.index for ref in shown_first(profile.workspace, profile.first_frames, 0)]
        self._collected: list[_Collected] = []
        for clip, space in zip(clips, workspaces, strict=True):
            first = {space.source[index] for index in shown}
            whole = set(space.source)
            frames = sorted(whole if clip.count_pixels(whole, beside=first) <= _MOST_PIXELS else first)
            step = max(len(frames) / _PICTURES, 1.0)
            pictures = frozenset(frames[int(i * step)] for i in range(min(_PICTURES, len(frames))))
            self._collected.append(_Collected(clip, pictures))
            clip.watch(frames, self._collected[-1].see)

    def finish(self) -> tuple[MeasuredPair, ...]:
        """Decode what the judge did not need, and measure. The clips must still be open."""
        with ThreadPool(2) as pool:
            one, two = pool.map(_Collected.measure, self._collected)
        return tuple(compare_values(name, (one.get(name), two.get(name))) for name in MEASURES)
