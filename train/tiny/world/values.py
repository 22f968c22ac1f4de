"""The plain frozen values of which a pair of the world consists.

Time is counted in ticks, the 48 positions of a judge's workspace: tick 0 is a clip's first frame, tick 47 its last,
and 0, 16, 31, 47 are shown first. Places and lengths on a picture are in halves of its shorter side, from its centre,
x to the right and y down: a 16:9 picture spans -1.8 to 1.8 by -1 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TICKS = 48
GAPS = ((1, 15), (17, 30), (32, 46))
"""The ticks between those that are shown first, both ends included. A cut is early in one of them."""

Colour = Literal["red", "green", "blue", "yellow", "white", "purple"]
Form = Literal["circle", "square", "triangle", "star"]
Direction = Literal["left", "right", "up", "down"]
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

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.frames / self.fps

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

    caption: str
    caption_looks: Looks | None
    clips: tuple[ClipSpec, ClipSpec]
