"""The plain frozen values of which a pair of the world consists.

Time is counted in ticks, the 48 positions of a judge's workspace: tick 0 is a clip's first frame, tick 47 its last,
and 0, 16, 31, 47 are shown first. Places and lengths on a picture are in halves of its shorter side, from its centre,
x to the right and y down: a 16:9 picture spans -1.8 to 1.8 by -1 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vrt_lite.protocol.messages import evenly_spaced

TICKS = 48
FIRST = evenly_spaced(TICKS, 4)
"""The ticks that a judge sees before it asks: 0, 16, 31, 47."""
GAPS = ((1, 15), (17, 30), (32, 46))
"""The ticks between them, both ends included. The first frames do not show what happens within a gap."""
WINDOWS = ((7, 8, 9, 10), (22, 23, 24, 25), (38, 39, 40, 41))
"""Four neighbouring ticks in the middle of each gap: a burst covers the window of its gap."""

Colour = Literal["red", "green", "blue", "yellow", "white", "purple"]
Form = Literal["circle", "square", "triangle", "star"]
Direction = Literal["left", "right", "up", "down"]
Level = Literal[1, 2, 3]
Visual = Literal["blur", "noise", "blocks", "banding", "haze", "sharpening", "colour", "h264", "h265"]
Moving = Literal["stutter", "jitter", "flicker", "ghosting", "freeze", "reversal", "warping"]
Stuff = Literal["leaves", "clouds", "paper", "photo"]

Point = tuple[float, float]
Rgb = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Looks:
    """The properties of a subject that a caption can describe."""

    colour: Colour
    form: Form
    direction: Direction


@dataclass(frozen=True, slots=True)
class Ground:
    """A background picture larger than the frame. `source` is a photograph's name or a texture's seed.

    `gain` is by channel; `order` selects its channels for red, green and blue; `flip` mirrors it.
    """

    stuff: Stuff
    source: str
    flip: bool = False
    order: tuple[int, int, int] = (0, 1, 2)
    gain: Rgb = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Camera:
    """The position of the frame on its background, and its steady motion.

    `centre` is the position at half time, as a share of the background's width and height. `scale` is the number of
    background pixels for one pixel of a frame 140 pixels high. `pan` is the motion per tick. `zoom` is the natural
    logarithm of the growth per tick.
    """

    centre: Point
    scale: float
    pan: Point = (0.0, 0.0)
    zoom: float = 0.0


@dataclass(frozen=True, slots=True)
class Shot:
    """The background and the camera from tick `start` to the tick before the next shot."""

    start: int
    ground: Ground
    camera: Camera


@dataclass(frozen=True, slots=True)
class Thing:
    """A flat coloured thing over the background. It moves straight from `begin` at tick 0 to `end` at tick 47.

    `radius` is half of its size; `angle` is in radians; a bar is as high as the picture.
    """

    form: Literal["circle", "square", "triangle", "star", "bar"]
    rgb: Rgb
    radius: float
    begin: Point
    end: Point
    angle: float = 0.0


@dataclass(frozen=True, slots=True)
class Defect:
    """One fault. It lasts from tick `first` to tick `last`, both included; `level` is 1 slight, 2 clear, 3 strong.

    With `spares`, the four ticks that are shown first do not have it. `region` is left, top, right and bottom as
    shares of the picture; None is all of it. `seed` varies details of the fault: phases, grains, tints.
    """

    kind: Visual | Moving
    level: Level
    first: int = 0
    last: int = TICKS - 1
    spares: bool = False
    region: tuple[float, float, float, float] | None = None
    seed: int = 0

    def at(self, tick: int) -> bool:
        """Whether the fault is present at a tick."""
        return self.first <= tick <= self.last and not (self.spares and tick in FIRST)

    @property
    def brief(self) -> bool:
        """Whether the fault lasts only for a part of the clip (a burst)."""
        return (self.first, self.last) != (0, TICKS - 1)

    @property
    def hidden(self) -> bool:
        """Whether none of the first frames has the fault."""
        return not any(self.at(tick) for tick in FIRST)


@dataclass(frozen=True, slots=True)
class ClipSpec:
    """One clip. It has at least 48 frames, so that every tick has its own frame."""

    width: int
    height: int
    fps: int
    frames: int
    shots: tuple[Shot, ...]
    looks: Looks | None = None
    subject: Thing | None = None
    occluder: Thing | None = None
    defects: tuple[Defect, ...] = ()

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.frames / self.fps

    def position(self, frame: int) -> float:
        """The time of a frame in ticks."""
        return (TICKS - 1) * frame / (self.frames - 1)

    @property
    def ticks(self) -> tuple[float, ...]:
        """The time of each tick's frame: at most half a tick away from the tick."""
        return tuple(self.position(frame) for frame in evenly_spaced(self.frames, TICKS))

    @property
    def gaps(self) -> tuple[int, ...]:
        """The gaps in which the shot changes; the middle gap if there are none."""
        cuts = [shot.start for shot in self.shots[1:]]
        found = tuple(g for g, (low, high) in enumerate(GAPS) if any(low <= cut <= high for cut in cuts))
        return found or (1,)

    @property
    def moves(self) -> bool:
        """Whether something moves all the time: the camera or a subject. True for footage, which has no shots."""
        panned = all(shot.camera.pan != (0.0, 0.0) or shot.camera.zoom for shot in self.shots)
        return panned or self.subject is not None

    @property
    def still(self) -> bool:
        """Whether nothing moves: neither the camera nor a thing."""
        moving = any(shot.camera.pan != (0.0, 0.0) or shot.camera.zoom for shot in self.shots)
        return not moving and len(self.shots) == 1 and self.subject is None and self.occluder is None


@dataclass(frozen=True, slots=True)
class Scene:
    """A pair of clips with its caption.

    `caption_looks` are the looks that the caption describes; None if the pictures cannot decide the caption.
    """

    seed: int
    caption: str
    caption_looks: Looks | None
    clips: tuple[ClipSpec, ClipSpec]
    hidden: bool

    @property
    def still(self) -> bool:
        """Whether nothing moves in either clip."""
        return self.clips[0].still and self.clips[1].still
