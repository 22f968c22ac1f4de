"""What a pair of the world is, as plain frozen values. Knows names and units; refuses to know chance and pixels.

Time is counted in ticks, the 48 positions of a judge's workspace: tick 0 is a clip's first frame, tick 47 its last,
and 0, 16, 31, 47 are shown first. Places and lengths on a picture are in halves of its shorter side, from its centre,
x to the right and y down: a 16:9 picture spans -1.8 to 1.8 by -1 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vrt_lite.protocol.frames import evenly_spaced

TICKS = 48
FIRST = evenly_spaced(TICKS, 4)
"""The ticks that a judge sees before it asks: 0, 16, 31, 47."""
GAPS = ((1, 15), (17, 30), (32, 46))
"""The ticks between them, both ends included: what happens within one gap is hidden at first."""
WINDOWS = ((7, 8, 9, 10), (22, 23, 24, 25), (38, 39, 40, 41))
"""Four neighbouring ticks in the middle of each gap: a burst covers the window of its gap."""

Colour = Literal["red", "green", "blue", "yellow", "white", "purple"]
Form = Literal["circle", "square", "triangle", "star"]
Direction = Literal["left", "right", "up", "down"]
Level = Literal[1, 2, 3]
Visual = Literal["blur", "noise", "blocks", "banding", "haze", "sharpening", "colour", "h264", "h265"]
Moving = Literal["stutter", "jitter", "flicker", "ghosting", "freeze", "reversal", "warping"]
Stuff = Literal["leaves", "clouds", "paper", "photo"]
Lesson = Literal["strong", "clear", "weak", "mixed"]
"""What pairs are drawn: one strong fault on equal content, then weaker ones, then all that the world has."""

Point = tuple[float, float]
Rgb = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Looks:
    """What can be said of the subject, and asked for in a caption."""

    colour: Colour
    form: Form
    direction: Direction


@dataclass(frozen=True, slots=True)
class Ground:
    """A picture larger than the frame. `source` names it: a photograph, or the seed of a made texture.

    `gain` is by channel; `order` says which of its channels become red, green and blue; `flip` mirrors it.
    """

    stuff: Stuff
    source: str
    flip: bool = False
    order: tuple[int, int, int] = (0, 1, 2)
    gain: Rgb = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Camera:
    """Where the frame lies on its ground, and how it moves: at a steady pace, without a shake.

    `centre`, a share of the ground's width and height, is where it looks at half time; `scale` the ground's pixels to
    one of a frame 140 high; `pan` a way per tick; `zoom` the natural logarithm of how things grow per tick.
    """

    centre: Point
    scale: float
    pan: Point = (0.0, 0.0)
    zoom: float = 0.0


@dataclass(frozen=True, slots=True)
class Shot:
    """What is seen from tick `start` (its first) to the next shot's."""

    start: int
    ground: Ground
    camera: Camera


@dataclass(frozen=True, slots=True)
class Thing:
    """A flat coloured thing over the ground, on a straight way from `begin` at tick 0 to `end` at tick 47.

    `radius` is half of its size; `angle` in radians; a bar is `radius` wide and as high as the picture.
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

    `spares` leaves the four ticks that are shown first as they were. `region` is left, top, right and bottom as
    shares of the picture; None is all of it. `seed` varies what the kind leaves open: phases, grains, tints.
    """

    kind: Visual | Moving
    level: Level
    first: int = 0
    last: int = TICKS - 1
    spares: bool = False
    region: tuple[float, float, float, float] | None = None
    seed: int = 0

    def at(self, tick: int) -> bool:
        """Whether it is there at a tick."""
        return self.first <= tick <= self.last and not (self.spares and tick in FIRST)

    @property
    def brief(self) -> bool:
        """Whether it is a burst."""
        return (self.first, self.last) != (0, TICKS - 1)

    @property
    def hidden(self) -> bool:
        """Whether the frames that are shown first have nothing of it."""
        return not any(self.at(tick) for tick in FIRST)


@dataclass(frozen=True, slots=True)
class ClipSpec:
    """One clip. It has at least 48 frames, so that every tick has a frame of its own."""

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
        """How long it lasts."""
        return self.frames / self.fps

    def position(self, frame: int) -> float:
        """The time of a frame in ticks."""
        return (TICKS - 1) * frame / (self.frames - 1)

    @property
    def ticks(self) -> tuple[float, ...]:
        """The time of each tick's own frame, within half a tick of it."""
        return tuple(self.position(frame) for frame in evenly_spaced(self.frames, TICKS))

    @property
    def gaps(self) -> tuple[int, ...]:
        """Which gaps deserve a look: those in which the shot changes; the middle one if none does."""
        cuts = [shot.start for shot in self.shots[1:]]
        found = tuple(g for g, (low, high) in enumerate(GAPS) if any(low <= cut <= high for cut in cuts))
        return found or (1,)

    @property
    def moves(self) -> bool:
        """Whether something moves in all of it: the camera or a subject. Footage without shots of its own does."""
        panned = all(shot.camera.pan != (0.0, 0.0) or shot.camera.zoom for shot in self.shots)
        return panned or self.subject is not None

    @property
    def still(self) -> bool:
        """Whether nothing in it moves by itself or by the camera."""
        moving = any(shot.camera.pan != (0.0, 0.0) or shot.camera.zoom for shot in self.shots)
        return not moving and len(self.shots) == 1 and self.subject is None and self.occluder is None


@dataclass(frozen=True, slots=True)
class Scene:
    """A pair. `wanted` is what the caption asks of the pictures; None if they can neither confirm nor deny it."""

    seed: int
    caption: str
    wanted: Looks | None
    clips: tuple[ClipSpec, ClipSpec]
    hidden: bool

    @property
    def still(self) -> bool:
        """Whether nothing moves in either clip."""
        return self.clips[0].still and self.clips[1].still
