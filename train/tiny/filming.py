"""Draws what is filmed: a span of real footage, a photograph or a drawn picture under a camera, or the drawn world."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from train.tiny.animation import Animation
from train.tiny.footage.packages import Split
from train.tiny.footage.survey import SurveyedClip, load_survey
from train.tiny.graphics import Moving, draw_moving, draw_picture
from train.tiny.spoiled_pictures import Chance, Frames
from train.tiny.world import TEST, TRAIN, scene
from train.tiny.world.values import TICKS, ClipSpec

Part = Literal["train", "held", "test"]
"""Scenes to train on, scenes to fit weights and bounds on, and scenes for the figures. None is in two parts."""
Kind = Literal["photograph", "footage", "picture", "world", "animation"]
_SHARES: Final = (0.34, 0.64, 0.92)
"""Up to these shares of the clips are photographs, footage and drawn pictures; the rest is the drawn world."""
_WITHOUT_ANIMATIONS: Final[dict[Part, int]] = {"train": 840, "held": 88, "test": 44}
_ANIMATED = 0.67
"""The first scenes of each part are no animations. Of the later ones, this share is."""
MORE_FROM: Final = 1560
"""From this seed on, scenes to train on show the footage of the split `more`, and no drawn world."""
_MORE_SHARES: Final = (0.68, 0.84, 1.0)
_MORE_ANIMATED = 0.26
"""Of all of them half are photographs, a quarter animations; of footage and drawn pictures there are as many."""
_WORLDS: Final = Path(__file__).parent / "start" / "worlds.json"
_LINES: Final = (288, 360, 360, 360, 400, 480, 480, 540, 720, 1080)
_ASPECTS: Final = (16 / 9, 16 / 9, 16 / 9, 4 / 3, 1.0, 21 / 9)
_RATES: Final = (8, 12, 16, 16, 24, 24, 25, 30, 30, 50, 60)
_LEAST_FRAMES, _MOST_FRAMES = 8, 240
_PIXELS: Final = (4e6, 2e7)
"""Pixels of all frames of a clip: the time that a clip takes."""
_SPARE: Final = 1.6
"""A scene can show so many times its frames: faults that skip frames need them."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One filmed scene. `scene` names what is seen; two specs of one scene are never in two parts."""

    seed: int
    part: Part
    scene: str
    kind: Kind
    source: SurveyedClip | None
    size: tuple[int, int]
    fps: float
    frames: int
    grey: bool
    dark: float
    noise: float
    hold: int

    @property
    def portrait(self) -> bool:
        """Whether it is higher than wide."""
        return self.size[1] > self.size[0]


def list_sources(footage: Path, part: Part, *, more: bool = False) -> tuple[list[SurveyedClip], list[SurveyedClip]]:
    """Return the photographs and the clips of a part. The footage's own test split is only ever tested on.

    With `more`, those of the split of that name: all are for training.
    """
    splits: tuple[Split, ...] = ("more",) if more else ("train", "test")
    found = [clip for split in splits for clip in load_survey(footage, split)]
    mine = [clip for clip in found if more or _part_of(clip) == part]
    clips = [clip for clip in mine if not clip.photograph and clip.frames >= 24]
    return [clip for clip in mine if clip.photograph], clips


def scene_of(clip: SurveyedClip) -> str:
    """Return a photograph's path, or a clip's package: the clips of one package may show one scene."""
    return clip.path if clip.photograph else clip.group


def _part_of(clip: SurveyedClip) -> Part:
    if clip.path.startswith("test/"):
        return "test"
    place = zlib.crc32(scene_of(clip).encode()) % 10
    return "test" if place < 2 else "held" if place < 4 else "train"


def draw_spec(seed: int, part: Part, footage: Path) -> Spec:
    """Draw the scene of a seed."""
    chance = np.random.default_rng((seed, zlib.crc32(part.encode())))
    more = part == "train" and seed >= MORE_FROM
    shares, animated = (_MORE_SHARES, _MORE_ANIMATED) if more else (_SHARES, _ANIMATED)
    pictures, clips = list_sources(footage, part, more=more)
    share = chance.random()
    source = None
    if share < shares[0]:
        source = pictures[int(chance.integers(len(pictures)))]
    elif share < shares[1] and clips:
        group = str(chance.choice(sorted({clip.group for clip in clips})))
        of_group = [clip for clip in clips if clip.group == group]
        source = of_group[int(chance.integers(len(of_group)))]
    drawn: Kind = "picture" if share < shares[2] else "world"
    kind = drawn if source is None else "photograph" if source in pictures else "footage"
    if seed >= _WITHOUT_ANIMATIONS[part] and np.random.default_rng((seed, 17)).random() < animated:
        kind, source = "animation", None
    lines, aspect = int(chance.choice(_LINES)), float(chance.choice(_ASPECTS))
    if kind == "footage" and source:
        lines, aspect = min(lines, round(min(source.width, source.height) * 1.15)), source.width / source.height
    if chance.random() < 0.2:
        aspect = min(aspect, 1 / aspect)
    width, height = (2 * max(round(lines * part / 2), 32) for part in (max(aspect, 1.0), max(1 / aspect, 1.0)))
    fps = float(chance.choice(_RATES)) if kind != "footage" or source is None else source.fps
    room = math.exp(chance.uniform(*np.log(_PIXELS))) / (width * height)
    frames = int(np.clip(min(room, chance.uniform(0.4, 7) * fps), _LEAST_FRAMES, _MOST_FRAMES))
    if kind == "footage" and source:
        frames = min(frames, source.frames)
    looks = chance.random(4)
    return Spec(
        seed,
        part,
        scene_of(source) if source else f"{kind}/{part}/{seed}",
        kind,
        source,
        (width, height),
        fps,
        frames,
        grey=bool(looks[0] < 0.1),
        dark=float(chance.uniform(1.5, 2.6)) if looks[1] < 0.16 else 1.0,
        noise=float(chance.uniform(0.7, 3.5)) if looks[2] < 0.3 else 0.0,
        hold=int(chance.integers(2, 4)) if looks[3] < 0.14 and fps >= 24 else 1,
    )


class Filmed:
    """The frames of a scene by number, from 0 to `count` - 1; each is made once."""

    def __init__(self, spec: Spec, footage: Path) -> None:
        self.spec = spec
        self._chance = np.random.default_rng((spec.seed, 5))
        self._known: dict[int, NDArray[np.uint8]] = {}
        self.count = round(spec.frames * _SPARE)
        if spec.kind == "footage" and spec.source:
            self.count = min(self.count, spec.source.frames)
            self._start = int(self._chance.integers(0, spec.source.frames - self.count + 1))
            self._path = footage / spec.source.path
        elif spec.kind == "photograph" and spec.source:
            self._camera = _Camera(self._chance, _open(footage / spec.source.path), spec.size)
        elif spec.kind == "picture":
            chance = np.random.default_rng((spec.seed, 5, zlib.crc32(spec.part.encode())))
            times = chance.uniform(1.3, 2.2)
            large = round(times * spec.size[0]), round(times * spec.size[1])
            scene, things = (draw_picture(chance, each) for each in (large, spec.size))
            filtered = Image.Resampling.NEAREST if chance.random() < 0.35 else Image.Resampling.BICUBIC
            self._camera = _Camera(chance, scene, spec.size, things, filtered)
            self._camera.things += draw_moving(chance, spec.size)
        elif spec.kind == "animation":
            self._animation = Animation(
                np.random.default_rng((spec.seed, 19, zlib.crc32(spec.part.encode()))), spec.size
            )
        else:
            self._world = _draw_world(spec)
        self._field = self._chance.normal(0, spec.noise, (spec.size[1] + 40, spec.size[0] + 40, 1)).astype(np.float32)

    def frames(self, numbers: list[int]) -> Frames:
        """Return frames by number; numbers beyond the end give the last frame."""
        held = [min(max(n, 0), self.count - 1) // self.spec.hold * self.spec.hold for n in numbers]
        missing = sorted(set(held) - self._known.keys())
        for number, pixels in zip(missing, self._film(missing), strict=True):
            self._known[number] = self._look(pixels, number)
        return [self._known[n] for n in held]

    def moves(self) -> bool:
        """Whether enough changes that a fault of motion shows."""
        near = self.frames([0, 1 * self.spec.hold, self.spec.frames // 2, self.spec.frames // 2 + self.spec.hold])
        steps = [np.abs(a[::3, ::3].astype(np.int16) - b[::3, ::3]).mean() for a, b in (near[:2], near[2:])]
        return bool(max(steps) > 1.0 + self.spec.noise)

    def _film(self, numbers: list[int]) -> Frames:
        spec = self.spec
        if not numbers:
            return []
        if spec.kind == "footage":
            return self._read(numbers)
        if spec.kind in {"photograph", "picture"}:
            return [self._camera.shoot(number / spec.fps) for number in numbers]
        if spec.kind == "animation":
            return [self._animation.draw(number / spec.fps) for number in numbers]
        from train.tiny.world.render import frames  # noqa: PLC0415  torch

        step = (TICKS - 1) / max(self.count - 1, 1)
        return frames(self._world, [number * step for number in numbers], spec.size)

    def _read(self, numbers: list[int]) -> Frames:
        from vrt_lite.video import open_clip  # noqa: PLC0415

        width, height = self.spec.size
        with open_clip(self._path) as clip:
            scale = max(width / clip.info.width, height / clip.info.height)
            size = max(round(clip.info.width * scale), width), max(round(clip.info.height * scale), height)
            shown = clip.frames([self._start + number for number in numbers], size=size)
        left, top = (size[0] - width) // 2, (size[1] - height) // 2
        return [shown[self._start + number][top : top + height, left : left + width] for number in numbers]

    def _look(self, pixels: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
        spec = self.spec
        if not (spec.grey or spec.noise or spec.dark > 1):
            return np.ascontiguousarray(pixels)
        light = pixels.astype(np.float32)
        if spec.grey:
            light = np.repeat(light.mean(2, keepdims=True), 3, axis=2)
        if spec.dark > 1:
            light = 255 * (light / 255) ** spec.dark * 0.8
        if spec.noise:
            top, left = np.random.default_rng((spec.seed, number)).integers(0, 40, 2)
            light = light + self._field[top : top + pixels.shape[0], left : left + pixels.shape[1]]
        return np.clip(light + 0.5, 0, 255).astype(np.uint8)


class _Camera:
    """Films a picture: still, panning, zooming or by hand; things may move before it."""

    def __init__(
        self,
        chance: Chance,
        picture: Image.Image,
        size: tuple[int, int],
        things: Image.Image | None = None,
        filtered: Image.Resampling = Image.Resampling.BICUBIC,
    ) -> None:
        self._picture, self._size, self._filter = picture, size, filtered
        whole = np.array(self._picture.size, float)
        aspect = size[0] / size[1]
        largest = np.array([min(whole[0], whole[1] * aspect), min(whole[1], whole[0] / aspect)])
        self._window = largest * chance.uniform(0.45, 0.85)
        self._zoom = chance.uniform(0.05, 0.3) if chance.random() < 0.3 else 0.0
        way = chance.choice(["still", "pan", "pan", "hand", "walk"])
        self._reach = {"still": 0, "pan": 0.9, "hand": 0.03, "walk": 0.6}[str(way)] * np.array([1, 0.5])
        self._seconds, self._phase = chance.uniform(5, 25, 2), chance.uniform(0, math.tau, 2)
        self._sway = chance.uniform(0.002, 0.008) if way in ("hand", "walk") else 0.0
        self._sway_phase = chance.uniform(0, math.tau, 4)
        count = int(chance.choice([0, 0, 1, 2, 3]))
        self.things: list[Moving] = [_Thing(chance, things or picture, size) for _ in range(count)]

    def shoot(self, seconds: float) -> NDArray[np.uint8]:
        """Return the picture at a time."""
        turn = np.sin(math.tau * seconds / self._seconds + self._phase)
        window = self._window * (1 + self._zoom * math.sin(math.tau * seconds / self._seconds[0]))
        whole = np.array(self._picture.size, float)
        by_hand = sum(
            np.sin(math.tau * seconds / period + self._sway_phase[2 * i : 2 * i + 2])
            for i, period in enumerate((1.4, 0.65))
        )
        centre = whole / 2 + (whole - window) / 2 * self._reach * turn + self._sway * window[0] * by_hand
        window = np.minimum(window, whole)
        corner = np.clip(centre - window / 2, 0, whole - window)
        left, top, right, bottom = (float(edge) for edge in (*corner, *np.minimum(corner + window, whole)))
        shown = self._picture.resize(self._size, self._filter, box=(left, top, right, bottom), reducing_gap=2.0)
        for thing in self.things:
            thing.show(shown, seconds)
        return np.asarray(shown)


class _Thing:
    """A part of the picture that flies before it on its own way."""

    def __init__(self, chance: Chance, picture: Image.Image, size: tuple[int, int]) -> None:
        side = int(chance.uniform(0.12, 0.4) * min(size))
        left, top = (int(chance.integers(0, max(length - 2 * side, 1))) for length in picture.size)
        self._pixels = picture.crop((left, top, left + 2 * side, top + 2 * side)).resize((side, side))
        y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
        edge = 1 + 0.2 * np.sin(chance.integers(2, 6) * np.arctan2(y, x) + chance.uniform(0, 6))
        mask = np.clip((edge * 0.8 - np.hypot(y, x)) * side / 3, 0, 1)
        self._mask = Image.fromarray((255 * mask).astype(np.uint8))
        self._room = np.array(size) - side
        self._seconds, self._phase = chance.uniform(2, 9, 2), chance.uniform(0, math.tau, 2)

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Paste it where it is at a time."""
        at = self._room * (0.5 + 0.45 * np.sin(math.tau * seconds / self._seconds + self._phase))
        whole = np.floor(at)
        part = at - whole
        side = self._pixels.size
        shift = (1, 0, -float(part[0]), 0, 1, -float(part[1]))
        moved, mask = (
            each.transform(side, Image.Transform.AFFINE, shift, Image.Resampling.BILINEAR)
            for each in (self._pixels, self._mask)
        )
        picture.paste(moved, (int(whole[0]), int(whole[1])), mask)


@lru_cache(maxsize=2)
def _open(path: Path) -> Image.Image:
    with Image.open(path) as opened:
        opened.draft("RGB", (2600, 2600))
        picture = opened.convert("RGB")
    picture.thumbnail((2600, 2600), Image.Resampling.LANCZOS, reducing_gap=2.0)
    return picture


def _draw_world(spec: Spec) -> ClipSpec:
    """Draw a clip of the world; the clips of the specimens are stored, and were drawn by an older recipe."""
    first = {"train": TRAIN, "held": TRAIN + 500_000, "test": TEST}[spec.part]
    return _load_worlds().get(spec.scene) or scene(first + spec.seed).clips[0]


@cache
def _load_worlds() -> dict[str, ClipSpec]:
    return msgspec.json.decode(_WORLDS.read_bytes(), type=dict[str, ClipSpec])
