"""Draws what the text model is shown: two clips of the drawn world, or one filmed scene twice.

Some of the clips have a fault painted over them. Every fourth pair is a filmed scene, with a caption of something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from train.tiny.fault_kinds import FAULTS, WITHHELD, Key
from train.tiny.filming import MORE_FROM, Filmed, Kind, Spec, draw_spec
from train.tiny.specimens import count_scenes
from train.tiny.spoiled_pictures import Chance, Frames
from train.tiny.world import TEST, TRAIN, scene
from train.tiny.world.captions import draw_unrelated_caption
from train.tiny.world.describing import describe_clip, name_subject
from train.tiny.world.values import TICKS, ClipSpec, Looks
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.video.frame_conversion import resize

Split = Literal["train", "test"]
"""Pairs to train on, and pairs for the figures."""
FILMED_EVERY: Final = 4
FIRST: Final[dict[Split, int]] = {"train": TRAIN + 60_000_000, "test": TEST + 800_000_000}
"""The first seed of a part's pairs."""
_AREA: Final = 252 * 140
"""Pixels of a filmed picture: about as many as the judge looks at."""
_PAINTED, _ALIKE = 0.5, 0.6
"""Share of the pairs of the world with a painted fault; share of the filmed pairs that show the same frames."""
_NAMES: Final[dict[Kind, str]] = {
    "photograph": "a photo",
    "footage": "real footage",
    "picture": "a drawing",
    "animation": "an animation",
}
_HIDING: Final = frozenset({"colour", "exposure", "haze", "jumps"})
"""Faults by name that can change the colour of a shape or its way: alignment would be open."""
_PAINTS: Final = tuple(kind for kind, fault in FAULTS.items() if fault.paint and kind not in WITHHELD)
_HARMLESS_PAINTS: Final = tuple(kind for kind in _PAINTS if FAULTS[kind].name not in _HIDING)


@dataclass(frozen=True, slots=True)
class Painting:
    """A fault that is painted over the frames of a clip."""

    kind: str
    strength: float
    seed: int

    @property
    def keys(self) -> tuple[Key, ...]:
        """The dimensions that it spoils."""
        return FAULTS[self.kind].keys

    def paint(self, frames: Frames) -> Frames:
        """Paint it over frames in their order."""
        paint = FAULTS[self.kind].paint
        assert paint
        return paint(frames, self.strength, np.random.default_rng(self.seed))


@dataclass(frozen=True, slots=True)
class SeenClip:
    """A clip with the words for what it shows. `draw` makes its frames at shares of its time, from 0 to 1."""

    size: tuple[int, int]
    seconds: float
    looks: Looks | None
    name: str
    description: str
    draw: Callable[[Sequence[float], tuple[int, int]], Frames]
    painting: Painting | None = None


@dataclass(frozen=True, slots=True)
class SeenPair:
    """Two clips with their caption, and its looks; None if the pictures cannot decide it."""

    caption: str
    caption_looks: Looks | None
    clips: tuple[SeenClip, SeenClip]

    def swapped(self) -> SeenPair:
        """Return the pair with its clips in the other order."""
        return replace(self, clips=self.clips[::-1])


class SeenFrames:
    """The frames of a pair for a judge, as `vrt_lite.interfaces.FrameStore` requires. Each is made once."""

    def __init__(self, pair: SeenPair, profile: Profile) -> None:
        self._clips, self._profile = pair.clips, profile
        self._known: dict[FrameRef, NDArray[np.uint8]] = {}

    def pixels(self, frames: Sequence[FrameRef]) -> Frames:
        """Return an RGB array (height, width, 3) for each frame, in the order of `frames`."""
        for number in (0, 1):
            for called in (False, True):
                wanted = {frame for frame in frames if (frame.clip, frame.called) == (number, called)}
                self._make(number, called, sorted(wanted - self._known.keys()))
        return [self._known[frame] for frame in frames]

    def _make(self, number: int, called: bool, missing: Sequence[FrameRef]) -> None:
        """Make the missing frames of a clip; of a painted one all, as many faults show in time."""
        clip, count = self._clips[number], self._profile.workspace
        if clip.painting and missing:
            missing = [replace(missing[0], index=index) for index in range(count)]
        size = self._profile.frame_size(*clip.size, called=called)
        pictures = clip.draw([frame.index / (count - 1) for frame in missing], size)
        if clip.painting and missing:
            pictures = clip.painting.paint(pictures)
        self._known |= dict(zip(missing, pictures, strict=True))


def draw_pair(number: int, part: Split, footage: Path | None) -> SeenPair:
    """Draw a pair by its number: every fourth is filmed, if there is a folder of footage."""
    seed = FIRST[part] + number
    chance = np.random.default_rng((seed, 7))
    if footage and number % FILMED_EVERY == 0:
        return _film_pair(chance, part, footage)
    drawn = scene(seed)
    one, two = (_show_world(clip) for clip in drawn.clips)
    pair = SeenPair(drawn.caption, drawn.caption_looks, (one, two))
    return _paint_one(pair, chance, _HARMLESS_PAINTS) if chance.random() < _PAINTED else pair


def _paint_one(pair: SeenPair, chance: Chance, kinds: Sequence[str]) -> SeenPair:
    """Paint a fault over one of the clips."""
    painting = Painting(str(chance.choice(kinds)), float(chance.uniform(0.1, 1)), int(chance.integers(1 << 30)))
    one, two = pair.clips
    painted = (
        (replace(one, painting=painting), two) if chance.random() < 0.5 else (one, replace(two, painting=painting))
    )
    return replace(pair, clips=painted)


def _show_world(spec: ClipSpec) -> SeenClip:
    size, words = (spec.width, spec.height), (name_subject(spec), describe_clip(spec))
    return SeenClip(size, spec.seconds, spec.looks, *words, draw=partial(_render, spec))


def _render(spec: ClipSpec, shares: Sequence[float], size: tuple[int, int]) -> Frames:
    from train.tiny.world.render import frames  # noqa: PLC0415  torch

    return frames(spec, [share * (TICKS - 1) for share in shares], size)


def _film_pair(chance: Chance, part: Split, footage: Path) -> SeenPair:
    """Show the same frames of a scene with a fault and without, or two cuts of it, half of them with a fault."""
    filmed = Filmed(_draw_scene(chance, part, footage), footage)
    alike = chance.random() < _ALIKE
    first = _cut(chance, filmed)
    pair = SeenPair(draw_unrelated_caption(chance), None, (first, first if alike else _cut(chance, filmed)))
    return _paint_one(pair, chance, _PAINTS) if alike or chance.random() < 0.5 else pair


def _draw_scene(chance: Chance, part: Split, footage: Path) -> Spec:
    """Draw one of the specimens' scenes that is long enough, in the size at which a judge looks.

    The scenes of the split `more` came after the bundled text model: without them its pairs stay as they were.
    """
    scenes = min(count_scenes(part), MORE_FROM)
    while True:
        spec = draw_spec(int(chance.integers(scenes)), part, footage)
        if spec.kind in _NAMES and spec.frames >= TICKS:
            width, height = spec.size
            scale = math.sqrt(_AREA / (width * height))
            return replace(spec, size=(2 * round(width * scale / 2), 2 * round(height * scale / 2)))


def _cut(chance: Chance, filmed: Filmed) -> SeenClip:
    """Cut a part out of what was filmed."""
    spec = filmed.spec
    length = min(max(round(spec.frames * chance.uniform(0.75, 1.1)), TICKS), filmed.count)
    start, name = int(chance.integers(filmed.count - length + 1)), _NAMES[spec.kind]
    return SeenClip(spec.size, length / spec.fps, None, name, name, partial(_show, filmed, start, length))


def _show(filmed: Filmed, start: int, length: int, shares: Sequence[float], size: tuple[int, int]) -> Frames:
    shown = filmed.frames([start + round(share * (length - 1)) for share in shares])
    return [resize(Image.fromarray(frame), size) for frame in shown]
