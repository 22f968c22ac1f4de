"""Draws pictures that no camera takes, and what moves before them: patterns, shapes, text, gradients, particles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from scipy.spatial import cKDTree

from train.tiny.spoiled_pictures import Chance

Size = tuple[int, int]
Floats = NDArray[np.float64]
Picture = Floats
"""Pixels of a picture, (height, width, 3), from 0 to 1."""


def draw_picture(chance: Chance, size: Size) -> Image.Image:
    """Draw a picture of this width and height: one pattern, often with parts of others in it."""
    picture = _draw_pattern(chance, size)
    for _ in range(int(chance.choice([0, 0, 1, 1, 2, 4]))):
        mask = _draw_mask(chance, size)[..., None]
        picture = picture * (1 - mask) + _draw_pattern(chance, size) * mask
    if chance.random() < 0.3:
        picture = picture + chance.normal(0, chance.uniform(0.004, 0.03), (*picture.shape[:2], 1))
    if chance.random() < 0.5:
        picture = _place(picture, chance)
    drawn = Image.fromarray((255 * np.clip(picture, 0, 1) + 0.5).astype(np.uint8))
    if chance.random() < 0.35:
        drawn = drawn.filter(ImageFilter.GaussianBlur(chance.uniform(0.4, 1.6)))
    return drawn


def _place(picture: Picture, chance: Chance) -> Picture:
    """Give it another contrast and brightness."""
    low, high = sorted(chance.uniform(0, 1, 2))
    if high - low < 0.35:
        return picture
    return low + (high - low) * picture


def _draw_pattern(chance: Chance, size: Size) -> Picture:
    return _PATTERNS[int(chance.integers(len(_PATTERNS)))](chance, size)


def draw_colours(chance: Chance, count: int) -> Floats:
    """Draw colours, (count, 3): all kinds, or shades of one."""
    colours = chance.uniform(0, 1, (count, 3))
    if chance.random() < 0.5:
        colours = colours * chance.uniform(0.1, 0.6) + chance.uniform(0, 0.5, 3)
    if chance.random() < 0.25:
        grey = colours.mean(1, keepdims=True)
        colours = grey + (colours - grey) * chance.uniform(0, 0.4)
    return np.clip(colours, 0, 1)


def _colour(values: Floats, chance: Chance) -> Picture:
    """Colour values from 0 to 1, (height, width), by a smooth or a stepped scale of a few colours."""
    colours = draw_colours(chance, int(chance.integers(2, 6)))
    if chance.random() < 0.2:
        return colours[np.minimum((values * len(colours)).astype(int), len(colours) - 1)]
    stops = np.linspace(0, 1, len(colours))
    return np.stack([np.interp(values, stops, colours[:, channel]) for channel in range(3)], axis=-1)


def spread(values: Floats) -> Floats:
    """Stretch values to the range from 0 to 1."""
    return (values - values.min()) / max(float(np.ptp(values)), 1e-9)


def _grid(size: Size) -> tuple[Floats, Floats]:
    y, x = np.mgrid[: size[1], : size[0]].astype(np.float64)
    return x, y


def _turned(chance: Chance, size: Size) -> tuple[Floats, Floats]:
    x, y = _grid(size)
    angle = chance.choice([0.0, math.pi / 2, chance.uniform(0, math.pi)])
    return x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)


def _make_noise(chance: Chance, size: Size) -> Floats:
    """Draw noise whose spectrum falls by a power of the frequency: clouds, stone, sand."""
    width, height = size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1
    waves = np.fft.rfft2(chance.normal(size=(height, width))) * frequency ** -chance.uniform(0.7, 2.4)
    return spread(np.fft.irfft2(waves, s=(height, width)))


def _draw_noise(chance: Chance, size: Size) -> Picture:
    return _colour(_make_noise(chance, size), chance)


def _draw_gradient(chance: Chance, size: Size) -> Picture:
    x, y = _turned(chance, size)
    if chance.random() < 0.5:
        centre = chance.uniform(0, 1, 2) * size
        return _colour(spread(np.hypot(x - centre[0], y - centre[1])), chance)
    return _colour(spread(x), chance)


def _draw_blobs(chance: Chance, size: Size) -> Picture:
    """Soft round lights: skin, skies, things out of focus."""
    x, y = _grid(size)
    total = np.zeros((size[1], size[0], 3)) + draw_colours(chance, 1)[0]
    for colour in draw_colours(chance, int(chance.integers(3, 14))):
        centre, radius = chance.uniform(0, 1, 2) * size, chance.uniform(0.04, 0.4) * max(size)
        near = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * radius**2))[..., None]
        total = total * (1 - 0.8 * near) + colour * 0.8 * near
    return total


def _draw_waves(chance: Chance, size: Size) -> Picture:
    total = np.zeros((size[1], size[0]))
    for _ in range(int(chance.integers(1, 4))):
        x, y = _turned(chance, size)
        period = math.exp(chance.uniform(math.log(5), math.log(200)))
        total += np.sin(math.tau * (x + chance.uniform(0, 8) * np.sin(y / period)) / period)
    height = spread(total)
    return _colour((height > 0.5).astype(np.float64) if chance.random() < 0.4 else height, chance)


def _draw_tiles(chance: Chance, size: Size) -> Picture:
    """Checks, bricks and dots."""
    x, y = _turned(chance, size)
    side = math.exp(chance.uniform(math.log(7), math.log(110)))
    high = side * chance.choice([1.0, 1.0, chance.uniform(0.3, 1)])
    row = np.floor(y / high)
    column = np.floor(x / side + row * chance.choice([0.0, 0.5]))
    kind = chance.integers(4)
    if kind == 0:
        return draw_colours(chance, 2)[((row + column) % 2).astype(int)]
    if kind == 1:
        colours = draw_colours(chance, 64)
        return colours[((row * 7 + column * 13 + (row * column) % 5) % 64).astype(int)]
    inside = np.stack((x / side + row * 0 - np.floor(x / side), y / high - row))
    if kind == 2:
        shape = np.hypot(*(inside - 0.5)) < chance.uniform(0.2, 0.48)
    else:
        shape = (inside.min(0) > (edge := chance.uniform(0.03, 0.15))) & (inside.max(0) < 1 - edge)
    return draw_colours(chance, 2)[shape.astype(int)]


def _draw_cells(chance: Chance, size: Size) -> Picture:
    points = chance.uniform(0, 1, (int(math.exp(chance.uniform(2.5, 6.5))), 2)) * size
    x, y = _grid(size)
    far, nearest = cKDTree(points).query(np.stack((x.ravel(), y.ravel()), axis=1), k=2)
    flat = draw_colours(chance, len(points))[nearest[:, 0]]
    shade = 1.0
    if chance.random() < 0.4:
        shade = np.clip((far[:, 1] - far[:, 0]) / chance.uniform(2, 30), 0, 1)[:, None]
    return (flat * shade).reshape(size[1], size[0], 3)


def to_rgb(colour: Floats) -> tuple[int, ...]:
    """Return a colour in levels."""
    return tuple(int(255 * part) for part in colour)


def _on_canvas(paint: Callable[[ImageDraw.ImageDraw, Chance, Size], None]) -> Callable[[Chance, Size], Picture]:
    """Return a pattern of what is painted on one colour, with smooth edges or with hard ones."""

    def draw(chance: Chance, size: Size) -> Picture:
        times = int(chance.choice([1, 2]))
        large = size[0] * times, size[1] * times
        canvas = Image.new("RGB", large, to_rgb(draw_colours(chance, 1)[0]))
        paint(ImageDraw.Draw(canvas), chance, large)
        return np.asarray(canvas.resize(size, Image.Resampling.BOX), np.float64) / 255

    return draw


def _paint_scatter(draw: ImageDraw.ImageDraw, chance: Chance, size: Size) -> None:
    """Leaves, grass, stones, confetti."""
    count, largest = int(math.exp(chance.uniform(3.5, 8))), math.exp(chance.uniform(math.log(6), math.log(90)))
    colours, kind = draw_colours(chance, 24), int(chance.integers(4))
    for at in chance.uniform(0, 1, (count, 2)) * size:
        a, b = largest * chance.uniform(0.15, 1, 2)
        colour = to_rgb(colours[int(chance.integers(24))] * chance.uniform(0.6, 1))
        box = (at[0] - a, at[1] - b, at[0] + a, at[1] + b)
        if kind == 0:
            draw.ellipse(box, fill=colour)
        elif kind == 1:
            draw.rectangle(box, fill=colour)
        elif kind == 2:
            draw.line((at[0], at[1], at[0] + chance.normal(0, a), at[1] - 2 * b), fill=colour, width=1 + int(a / 6))
        else:
            turns = np.sort(chance.uniform(0, math.tau, int(chance.integers(3, 9))))
            draw.polygon([(at[0] + a * math.cos(t), at[1] + b * math.sin(t)) for t in turns], fill=colour)


def _paint_houses(draw: ImageDraw.ImageDraw, chance: Chance, size: Size) -> None:
    """Blocks with rows of windows."""
    colours = draw_colours(chance, 16)
    for _ in range(int(chance.integers(8, 70))):
        left, top = (chance.uniform(0, 1, 2) * size).tolist()
        wide, step = chance.uniform(0.03, 0.2) * size[0], chance.uniform(9, 40)
        draw.rectangle((left, top, left + wide, size[1]), fill=to_rgb(colours[int(chance.integers(16))]))
        window = to_rgb(colours[int(chance.integers(16))])
        for y in np.arange(top + step / 2, size[1], step):
            for x in np.arange(left + step / 3, left + wide - step / 2, step * 0.8):
                if chance.random() < 0.6:
                    draw.rectangle((x, y, x + step * 0.4, y + step * 0.5), fill=window)


def _paint_writing(draw: ImageDraw.ImageDraw, chance: Chance, size: Size) -> None:
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz      ABCDEFGHIJKLM0123456789.,"))
    high = float(math.exp(chance.uniform(math.log(9), math.log(90))))
    font, ink = ImageFont.load_default(high), to_rgb(draw_colours(chance, 1)[0])
    for top in np.arange(0, size[1], high * chance.uniform(1.1, 1.8)):
        line = "".join(chance.choice(letters, int(2 * size[0] / high) + 1))
        draw.text((chance.uniform(-high, 3 * high), float(top)), line, fill=ink, font=font)


def _paint_halves(draw: ImageDraw.ImageDraw, chance: Chance, size: Size) -> None:
    """Rectangles cut into rectangles: posters, windows on a screen."""
    colours, boxes = draw_colours(chance, 12), [(0.0, 0.0, float(size[0]), float(size[1]))]
    for _ in range(int(chance.integers(4, 60))):
        left, top, right, bottom = boxes.pop(int(chance.integers(len(boxes))))
        part = chance.uniform(0.2, 0.8)
        if right - left > bottom - top:
            cut = left + part * (right - left)
            boxes += [(left, top, cut, bottom), (cut, top, right, bottom)]
        else:
            cut = top + part * (bottom - top)
            boxes += [(left, top, right, cut), (left, cut, right, bottom)]
    outline = to_rgb(draw_colours(chance, 1)[0]) if chance.random() < 0.5 else None
    for box in boxes:
        draw.rectangle(box, fill=to_rgb(colours[int(chance.integers(12))]), outline=outline, width=3)


def _paint_hills(draw: ImageDraw.ImageDraw, chance: Chance, size: Size) -> None:
    """Layers with a rough edge, one before the other."""
    for number, colour in enumerate(draw_colours(chance, int(chance.integers(3, 8)))):
        steps = np.cumsum(chance.normal(0, 1, 120))
        edge = size[1] * (0.2 + 0.12 * number + 0.25 * spread(steps))
        across = np.linspace(0, size[0], 120)
        line = list(zip(across.tolist(), edge.tolist(), strict=True))
        draw.polygon([(0, size[1]), *line, (size[0], size[1])], fill=to_rgb(colour))


def _draw_mask(chance: Chance, size: Size) -> Floats:
    """Draw where another pattern shows, (height, width), from 0 to 1."""
    kind = int(chance.integers(4))
    if kind == 0:
        return np.clip((_make_noise(chance, size) - 0.5) * chance.choice([4, 400]) + 0.5, 0, 1)
    mask = Image.new("L", size)
    draw = ImageDraw.Draw(mask)
    for _ in range(int(chance.integers(1, 6))):
        a, b = np.sort(chance.uniform(0, 1, (2, 2)), axis=0)
        box = (*(a * size).tolist(), *(b * size).tolist())
        (draw.ellipse if kind == 1 else draw.rectangle)(box, fill=255)
    if chance.random() < 0.4:
        mask = mask.filter(ImageFilter.GaussianBlur(chance.uniform(1, 12)))
    return np.asarray(mask, np.float64) / 255


_PATTERNS: Final = (
    _draw_noise,
    _draw_gradient,
    _draw_blobs,
    _draw_waves,
    _draw_tiles,
    _draw_cells,
    *map(_on_canvas, (_paint_scatter, _paint_scatter, _paint_houses, _paint_writing, _paint_halves, _paint_hills)),
)


class Moving(Protocol):
    """Something that moves before a picture."""

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw it where it is at a time."""
        ...


def draw_moving(chance: Chance, size: Size) -> list[Moving]:
    """Draw what moves before a picture besides its own parts; often nothing."""
    kinds = (Particles, Particles, Ripples, Turning)
    return [kinds[int(chance.integers(4))](chance, size) for _ in range(int(chance.choice([0, 0, 1, 1, 2])))]


class Particles:
    """Snow, rain, sparks, bubbles: each goes its way, and comes again from the other side."""

    def __init__(self, chance: Chance, size: Size) -> None:
        count = int(math.exp(chance.uniform(2.5, 5.8)))
        high = min(size)
        self._size = np.array(size) * 1.1
        self._start = chance.uniform(0, 1, (count, 2)) * self._size
        self._speed = high * (chance.uniform(-0.6, 0.6, 2) + chance.normal(0, chance.uniform(0.02, 0.4), (count, 2)))
        self._sway = high * chance.uniform(0, 0.04) * chance.uniform(0, 1, count)
        self._phase = chance.uniform(0, math.tau, count)
        self._radius = high * chance.uniform(0.002, 0.02) * chance.uniform(0.4, 1.6, count)
        self._streak = chance.choice([0.0, 0.0, 0.03])
        self._colours = [to_rgb(colour) for colour in draw_colours(chance, count)]
        if chance.random() < 0.5:
            self._colours = self._colours[:1] * count

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw each where it is."""
        draw = ImageDraw.Draw(picture)
        at = (self._start + self._speed * seconds) % self._size
        at[:, 0] += self._sway * np.sin(4 * seconds + self._phase)
        ways = self._speed * self._streak
        for (x, y), way, radius, colour in zip(at, ways, self._radius, self._colours, strict=True):
            if self._streak:
                draw.line((x, y, x - way[0], y - way[1]), fill=colour, width=1 + int(radius))
            else:
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


class Ripples:
    """Light that runs over the picture, as on water, over fire and in clouds."""

    def __init__(self, chance: Chance, size: Size) -> None:
        self._strength = chance.uniform(0.05, 0.45)
        self._waves: list[tuple[Floats, float]] = []
        for _ in range(int(chance.integers(2, 5))):
            x, y = _turned(chance, size)
            period = min(size) * math.exp(chance.uniform(math.log(0.05), math.log(0.8)))
            bent = chance.uniform(0, 0.3) * period * np.sin(math.tau * y / (period * chance.uniform(1, 3)))
            self._waves.append((math.tau * (x + bent) / period, chance.uniform(1, 9)))

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Make it lighter and darker where the light is."""
        light = sum(np.sin(wave + speed * seconds) for wave, speed in self._waves) / len(self._waves)
        pixels = np.asarray(picture, np.float32) * (1 + self._strength * np.asarray(light, np.float32))[..., None]
        picture.paste(Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8)))


class Turning:
    """Polygons that turn, grow and shrink: wheels, cubes, flowers."""

    def __init__(self, chance: Chance, size: Size) -> None:
        count = int(chance.integers(1, 7))
        self._centres = chance.uniform(0.1, 0.9, (count, 2)) * size
        self._radii = min(size) * chance.uniform(0.05, 0.3, count)
        self._corners = [np.sort(chance.uniform(0, math.tau, int(chance.integers(3, 9)))) for _ in range(count)]
        self._speeds, self._growing = chance.uniform(-4, 4, count), chance.uniform(0, 0.5, count)
        self._orbit = min(size) * chance.uniform(0, 0.15, count)
        self._colours = [to_rgb(colour) for colour in draw_colours(chance, count)]

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw each as it stands."""
        large = Image.new("RGB", (2 * picture.width, 2 * picture.height))
        mask = Image.new("L", large.size)
        for number, (centre, corners) in enumerate(zip(self._centres, self._corners, strict=True)):
            turn = self._speeds[number] * seconds
            middle = centre + self._orbit[number] * np.array((math.cos(turn / 2), math.sin(turn / 2)))
            radius = self._radii[number] * (1 + self._growing[number] * math.sin(2 * turn))
            edge = 2 * (middle + radius * np.stack((np.cos(corners + turn), np.sin(corners + turn)), axis=1))
            outline = [(float(x), float(y)) for x, y in edge]
            ImageDraw.Draw(large).polygon(outline, fill=self._colours[number])
            ImageDraw.Draw(mask).polygon(outline, fill=255)
        small = (each.resize(picture.size, Image.Resampling.BOX) for each in (large, mask))
        picture.paste(next(small), (0, 0), next(small))
