"""Draws scenes whose every frame is drawn anew: landscapes in layers, water and fire, floors, tunnels, cloth, pages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from train.tiny.graphics import Floats, Moving, Size, draw_colours, draw_moving, draw_picture, to_rgb
from train.tiny.spoiled_pictures import Chance

_WORDS: Final = "morning garden window station paper market signal travel quiet letter number river update message"


class Backdrop(Protocol):
    """What fills the whole frame."""

    def draw(self, seconds: float) -> Image.Image:
        """Return the picture at a time."""
        ...


class Animation:
    """A backdrop, and often things that move before it."""

    def __init__(self, chance: Chance, size: Size) -> None:
        self._backdrop = _BACKDROPS[int(chance.integers(len(_BACKDROPS)))](chance, size)
        kinds = (Walkers, Balls, Bursts, Blades)
        count = int(chance.choice([0, 1, 1, 2]))
        self._things: list[Moving] = [kinds[int(chance.integers(4))](chance, size) for _ in range(count)]
        self._things += draw_moving(chance, size) if chance.random() < 0.5 else []
        self._soft = chance.uniform(0.4, 1.1) if chance.random() < 0.35 else 0.0

    def draw(self, seconds: float) -> NDArray[np.uint8]:
        """Return the pixels at a time, (height, width, 3)."""
        picture = self._backdrop.draw(seconds)
        for thing in self._things:
            thing.show(picture, seconds)
        return np.asarray(picture.filter(ImageFilter.GaussianBlur(self._soft)) if self._soft else picture)


def _to_picture(pixels: NDArray[np.floating]) -> Image.Image:
    return Image.fromarray(np.clip(255 * pixels + 0.5, 0, 255).astype(np.uint8))


def _mesh(size: Size) -> tuple[Floats, Floats]:
    """Return x and y of each pixel, as shares of the height from the middle."""
    y, x = np.mgrid[: size[1], : size[0]].astype(np.float64)
    return (x - size[0] / 2) / size[1], (y - size[1] / 2) / size[1]


def _draw_sky(chance: Chance, size: Size) -> Image.Image:
    """Draw a slope from one colour to another, often with a sun and with stars."""
    x, y = _mesh(size)
    upper, lower = draw_colours(chance, 2)
    share = (y[..., None] + 0.5) ** chance.uniform(0.5, 2)
    pixels = upper * (1 - share) + lower * share
    if chance.random() < 0.5:
        far = np.hypot(x - chance.uniform(-0.6, 0.6), y - chance.uniform(-0.4, 0.2))[..., None]
        radius, colour = chance.uniform(0.03, 0.15), draw_colours(chance, 1)[0] * 0.3 + 0.7
        pixels = np.where(far < radius, colour, pixels + chance.uniform(0, 0.5) * np.exp(-far / radius / 2))
    if chance.random() < 0.3:
        pixels = pixels + (chance.random(x.shape) < 0.001)[..., None]
    return _to_picture(pixels)


class Layers:
    """Silhouettes before a sky, the nearer the quicker: hills, houses, trees."""

    def __init__(self, chance: Chance, size: Size) -> None:
        self._size, self._sky = size, _draw_sky(chance, size)
        count = int(chance.integers(2, 6))
        speed, colours = size[0] * chance.uniform(-0.35, 0.35), draw_colours(chance, 2)
        self._layers: list[tuple[Image.Image, Image.Image, float]] = []
        for number in range(count):
            depth = (number + 1) / count
            colour = np.clip(colours[0] * (1 - depth) + colours[1] * depth + chance.normal(0, 0.05, 3), 0, 1)
            picture, mask = self._draw_layer(chance, colour, depth)
            self._layers.append((picture, mask, speed * depth**2))

    def _draw_layer(self, chance: Chance, colour: Floats, depth: float) -> tuple[Image.Image, Image.Image]:
        wide, high = 2 * self._size[0], self._size[1]
        picture, mask = Image.new("RGB", (wide, high), to_rgb(colour)), Image.new("L", (wide, high))
        draw, over = ImageDraw.Draw(mask), ImageDraw.Draw(picture)
        top = high * (0.35 + 0.5 * depth * chance.uniform(0.7, 1))
        kind = int(chance.integers(3))
        if kind == 0:
            turns = np.linspace(0, math.tau, 200)
            edge = sum(chance.normal(0, 0.5 / k) * np.sin(k * turns + chance.uniform(0, 6)) for k in range(1, 25))
            line = zip(turns / math.tau * wide, top + 0.08 * high * np.asarray(edge), strict=True)
            draw.polygon([(0, high), *((float(x), float(y)) for x, y in line), (wide, high)], fill=255)
        draw.rectangle((0, min(top + high * (0.3 if kind == 0 else 0.02), high), wide, high), fill=255)
        step = high * chance.uniform(0.05, 0.25) * (0.4 + depth)
        for left in np.arange(0, wide - step, step) if kind else ():
            tall, x = step * chance.uniform(0.5, 3), float(left + step * chance.uniform(0, 0.3))
            if kind == 1:
                draw.rectangle((x, top - tall, x + step * 0.8, high), fill=255)
                for y in np.arange(top - tall + 4, top, step / 4):
                    for column in np.arange(x + step * 0.08, x + step * 0.6, step * 0.2):
                        if chance.random() < 0.5:
                            over.rectangle((column, y, column + step * 0.1, y + step * 0.12), fill=(250, 220, 140))
            else:
                for part in range(3):
                    base = top - part * tall / 4
                    reach = step * (0.5 - 0.12 * part)
                    draw.polygon([(x, base), (x + step / 2, base - tall / 2), (x + 2 * reach, base)], fill=255)
        if chance.random() < 0.5:
            texture = draw_picture(chance, (wide // 2, high)).resize((wide, high))
            picture = Image.blend(picture, texture, chance.uniform(0.05, 0.3))
        return picture, mask.resize((wide, high), Image.Resampling.BICUBIC)

    def draw(self, seconds: float) -> Image.Image:
        """Return the sky with the layers where they are; they come round again."""
        shown = self._sky.copy()
        for picture, mask, speed in self._layers:
            wide = picture.width
            at = (speed * seconds) % wide
            for left in (at - wide, at):
                if left < shown.width:
                    shift = (1, 0, -left, 0, 1, 0)
                    parts = (
                        each.transform(shown.size, Image.Transform.AFFINE, shift, Image.Resampling.BILINEAR)
                        for each in (picture, mask)
                    )
                    shown.paste(next(parts), (0, 0), next(parts))
        return shown


class Flow:
    """Colours by waves that bend each other: water, fire, clouds, lava, plasma."""

    def __init__(self, chance: Chance, size: Size) -> None:
        x, y = _mesh(size)
        self._near = 1.0
        if chance.random() < 0.5:  # seen from above the ground
            self._near = np.maximum(y + 0.5, 0.04)
            x, y = x / self._near * 0.4, 0.4 / self._near
        self._x, self._y = x, y
        self._size = size
        count = int(chance.integers(3, 8))
        self._angles, self._phases = chance.uniform(0, math.tau, (2, count))
        self._lengths = np.exp(chance.uniform(math.log(0.06), math.log(0.9), count))
        self._speeds = chance.uniform(0.3, 4, count) * chance.choice([-1, 1], count)
        self._bend = chance.uniform(0, 1.2)
        self._colours = draw_colours(chance, int(chance.integers(2, 6)))
        self._power = chance.uniform(0.6, 3)
        self._sky = _draw_sky(chance, size) if chance.random() < 0.4 else None
        self._horizon = int(size[1] * chance.uniform(0.25, 0.55))

    def draw(self, seconds: float) -> Image.Image:
        """Return the waves at a time."""
        total, bent = np.zeros(self._x.shape), 0.0
        for angle, length, phase, speed in zip(self._angles, self._lengths, self._phases, self._speeds, strict=True):
            along = (self._x * math.cos(angle) + self._y * math.sin(angle)) / length
            wave = np.sin(math.tau * along + self._bend * np.asarray(bent) + phase + speed * seconds)
            total, bent = total + wave * length**0.5, wave
        value = (0.5 + 0.5 * total / (self._lengths**0.5).sum()) ** self._power
        stops = np.linspace(0, 1, len(self._colours))
        shown = _to_picture(np.stack([np.interp(value, stops, self._colours[:, c]) for c in range(3)], -1))
        if self._sky:
            picture = self._sky.copy()
            low = shown.resize((self._size[0], self._size[1] - self._horizon), Image.Resampling.BICUBIC)
            picture.paste(low, (0, self._horizon))
            return picture
        return shown


class Floor:
    """A picture as the ground that one goes over, or as the wall of a tunnel that one goes through."""

    def __init__(self, chance: Chance, size: Size) -> None:
        x, y = _mesh(size)
        self._side = 512
        small = draw_picture(chance, (self._side, self._side))
        both = Image.new("RGB", (2 * self._side, 2 * self._side))
        for number in range(4):  # mirrored, so that it joins at all edges
            turned = small.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if number % 2 else small
            turned = turned.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if number > 1 else turned
            both.paste(turned, (number % 2 * self._side, number // 2 * self._side))
        self._levels = [
            np.asarray(both.resize((both.width >> n, both.height >> n), Image.Resampling.BOX)) for n in range(7)
        ]
        self._sky = None
        if chance.random() < 0.6:
            self._sky = np.asarray(_draw_sky(chance, size))
            self._horizon = chance.uniform(-0.25, 0.1)
            depth = 1 / np.maximum(y - self._horizon, 0.004)
            self._across, self._along = x * depth, depth
            self._open = y < self._horizon
        else:
            square = chance.random() < 0.4
            far = np.maximum(np.abs(x), np.abs(y)) if square else np.hypot(x, y)
            depth = 1 / np.maximum(far, 0.02)
            around = x / np.maximum(far, 1e-6) * (np.abs(y) >= np.abs(x)) + y / np.maximum(far, 1e-6) if square else 0
            self._across = around if square else np.arctan2(y, x) * 4 / math.tau
            self._along, self._open = depth, np.zeros(x.shape, bool)
        self._scale = 2 * self._side / chance.choice([2.0, 4.0])
        self._speed, self._drift = chance.uniform(0.3, 3), chance.uniform(-0.4, 0.4)
        step = depth / size[1] * self._scale * chance.uniform(0.6, 1.4)
        self._level = np.clip(np.log2(np.maximum(step * np.maximum(depth, 1) ** 0.5, 1)), 0, 6).astype(int)
        self._light = np.clip(chance.uniform(1, 6) / depth, 0.15, 1)[..., None] if chance.random() < 0.6 else 1.0

    def draw(self, seconds: float) -> Image.Image:
        """Return what is seen at a time."""
        u = (self._across + self._drift * seconds) * self._scale
        v = (self._along + self._speed * seconds) * self._scale
        shown = np.empty((*u.shape, 3))
        for level, texture in enumerate(self._levels):
            here = self._level == level
            if here.any():
                shown[here] = _sample(texture, u[here] / (1 << level), v[here] / (1 << level))
        shown = shown * self._light
        if self._sky is not None:
            shown[self._open] = self._sky[self._open]
        return Image.fromarray(np.clip(shown, 0, 255).astype(np.uint8))


def _sample(pixels: NDArray[np.uint8], u: Floats, v: Floats) -> Floats:
    """Return a picture's colours at places between its pixels, (*places, 3); the picture repeats."""
    left, top = np.floor(u).astype(int), np.floor(v).astype(int)
    right, down = (u - left)[..., None], (v - top)[..., None]
    high, wide = pixels.shape[:2]
    rows, columns = (top % high, (top + 1) % high), (left % wide, (left + 1) % wide)
    upper, lower = (pixels[row, columns[0]] * (1 - right) + pixels[row, columns[1]] * right for row in rows)
    return upper * (1 - down) + lower * down


class Cloth:
    """A picture that waves: a flag, a curtain, the ground under water; or one that turns and grows."""

    def __init__(self, chance: Chance, size: Size) -> None:
        self._x, self._y = _mesh(size)
        self._size = size
        large = round(1.4 * size[0]), round(1.4 * size[1])
        self._pixels = np.asarray(draw_picture(chance, large))
        self._waves = [
            (chance.uniform(0, math.tau), math.exp(chance.uniform(-2, 0)), chance.uniform(1, 5), chance.uniform(0, 6))
            for _ in range(int(chance.integers(1, 4)))
        ]
        self._deep, self._shade = chance.uniform(0.005, 0.05), chance.choice([0.0, chance.uniform(0.1, 0.5)])
        self._turn = chance.choice([0.0, 0.0, chance.uniform(-0.5, 0.5)])
        self._grow = chance.choice([0.0, 0.0, chance.uniform(0.1, 0.3)])

    def draw(self, seconds: float) -> Image.Image:
        """Return the picture at a time."""
        angle, scale = self._turn * seconds, 1 + self._grow * math.sin(seconds)
        across = (self._x * math.cos(angle) - self._y * math.sin(angle)) * scale
        down = (self._x * math.sin(angle) + self._y * math.cos(angle)) * scale
        light = np.ones(across.shape)
        for way, length, speed, phase in self._waves:
            along = math.tau * (self._x * math.cos(way) + self._y * math.sin(way)) / length + speed * seconds + phase
            across = across + self._deep * math.cos(way) * np.sin(along) * length
            down = down + self._deep * math.sin(way) * np.sin(along) * length
            light = light + self._shade * np.cos(along) / len(self._waves)
        high, wide = self._pixels.shape[:2]
        u, v = across * self._size[1] + wide / 2, down * self._size[1] + high / 2
        u, v = (length - np.abs(at % (2 * length) - length) - 1 for at, length in ((u, wide - 1), (v, high - 1)))
        shown = _sample(self._pixels, np.clip(u, 0, wide - 1.001), np.clip(v, 0, high - 1.001))
        return Image.fromarray(np.clip(shown * light[..., None], 0, 255).astype(np.uint8))


class Page:
    """Writing with pictures and bars that scrolls."""

    def __init__(self, chance: Chance, size: Size) -> None:
        wide, high = size
        paper, ink, accent = draw_colours(chance, 3)
        if chance.random() < 0.6:
            paper, ink = paper * 0.1 + 0.9, ink * 0.2
        self._page = Image.new("RGB", (wide, 3 * high), to_rgb(paper))
        draw, words = ImageDraw.Draw(self._page), np.array(_WORDS.split())
        line = high * chance.uniform(0.03, 0.08)
        font, top = ImageFont.load_default(line * 0.8), 0.0
        while top < 3 * high:
            block = int(chance.integers(4))
            left = wide * chance.uniform(0.02, 0.1)
            if block == 0:
                side = int(line * chance.uniform(2, 6))
                self._page.paste(draw_picture(chance, (side, side)), (int(left), int(top)))
                top += side
            elif block == 1:
                for tall in chance.uniform(0.2, 1, 8) * line * 4:
                    draw.rectangle((left, top + 4 * line - tall, left + line, top + 4 * line), fill=to_rgb(accent))
                    left += 1.4 * line
                top += 4 * line
            for _ in range(int(chance.integers(1, 6))):
                text = " ".join(chance.choice(words, int(chance.integers(3, 9))))
                draw.text((left, top), text, fill=to_rgb(ink if block else accent), font=font)
                top += line * 1.2
            top += line
        self._wide, self._high = size
        self._speed, self._start = high * chance.uniform(-0.5, 0.5), chance.uniform(0, 3 * high)
        self._steps = chance.random() < 0.3

    def draw(self, seconds: float) -> Image.Image:
        """Return the part of the page that is seen; it comes round again."""
        by = math.floor(seconds) + min(4 * (seconds % 1), 1) if self._steps else seconds
        at = round(self._start + self._speed * by) % self._page.height
        shown = self._page.crop((0, at, self._wide, at + self._high))
        shown.paste(self._page, (0, self._page.height - at))
        return shown


class Walkers:
    """Figures with a head, eyes, arms and legs that walk or stand and speak."""

    def __init__(self, chance: Chance, size: Size) -> None:
        count = int(chance.integers(1, 4))
        self._high = size[1] * chance.uniform(0.2, 0.9) * np.ones(count)
        self._at = np.stack((chance.uniform(0.1, 0.9, count) * size[0], np.full(count, size[1] * 0.9)), 1)
        self._speed = chance.choice([0.0, size[0] * chance.uniform(-0.2, 0.2)]) * np.ones(count)
        self._pace, self._phase = chance.uniform(3, 8), chance.uniform(0, 6, count)
        self._colours = [[to_rgb(colour) for colour in draw_colours(chance, 3)] for _ in range(count)]

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw each where it is."""
        for high, at, speed, phase, colours in zip(
            self._high, self._at, self._speed, self._phase, self._colours, strict=True
        ):
            self._show_one(
                picture, float(high), (at[0] + speed * seconds) % picture.width, at[1], seconds, phase, colours
            )

    def _show_one(
        self,
        picture: Image.Image,
        high: float,
        x: float,
        foot: float,
        seconds: float,
        phase: float,
        colours: list[tuple[int, ...]],
    ) -> None:
        side = max(int(high), 16)
        canvas, mask = Image.new("RGB", (2 * side, 2 * side), colours[0]), Image.new("L", (2 * side, 2 * side))
        both = (ImageDraw.Draw(canvas), ImageDraw.Draw(mask))
        unit, swing = 2 * side, math.sin(self._pace * seconds + phase)

        def paint(kind: str, points: list[tuple[float, float]], colour: tuple[int, ...], width: float = 0.0) -> None:
            for draw, fill in zip(both, (colour, 255), strict=True):
                placed = [(unit * px, unit * py) for px, py in points]
                if kind == "line":
                    draw.line(placed, fill=fill, width=max(int(unit * width), 1), joint="curve")
                else:
                    draw.ellipse((*placed[0], *placed[1]), fill=fill)

        for way in (-1, 1):
            step = 0.12 * way * swing
            paint("line", [(0.5, 0.62), (0.5 + step, 0.8), (0.5 + 1.4 * step, 0.98)], colours[1], 0.06)
            paint("line", [(0.5, 0.36), (0.5 - step, 0.5), (0.5 - 1.2 * step + 0.03, 0.6)], colours[2], 0.045)
        paint("ellipse", [(0.4, 0.3), (0.6, 0.66)], colours[0])
        bob = 0.01 * swing
        paint("ellipse", [(0.36, 0.04 + bob), (0.64, 0.32 + bob)], colours[2])
        for eye in (0.44, 0.56):
            paint("ellipse", [(eye - 0.03, 0.12 + bob), (eye + 0.03, 0.18 + bob)], (250, 250, 250))
            paint("ellipse", [(eye - 0.01, 0.14 + bob), (eye + 0.015, 0.165 + bob)], (20, 20, 30))
        opened = 0.005 + 0.02 * abs(math.sin(2.7 * seconds + phase))
        paint("ellipse", [(0.46, 0.24 + bob - opened), (0.54, 0.24 + bob + opened)], (120, 30, 40))
        small = (each.resize((side, side), Image.Resampling.BOX) for each in (canvas, mask))
        picture.paste(next(small), (round(x - side / 2), round(foot - side)), next(small))


class Balls:
    """Shaded balls that bounce, each with its shadow."""

    def __init__(self, chance: Chance, size: Size) -> None:
        count = int(chance.integers(1, 7))
        self._backdrop = size[1] * chance.uniform(0.7, 0.98)
        self._sprites = [self._draw_ball(chance, int(min(size) * chance.uniform(0.06, 0.3))) for _ in range(count)]
        self._at, self._speed = chance.uniform(0, size[0], count), size[0] * chance.uniform(-0.3, 0.3, count)
        self._high, self._rate = size[1] * chance.uniform(0.1, 0.6, count), chance.uniform(0.4, 1.5, count)
        self._phase = chance.uniform(0, 1, count)

    @staticmethod
    def _draw_ball(chance: Chance, side: int) -> tuple[Image.Image, Image.Image]:
        y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
        up = np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))
        light = chance.normal(0, 1, 3)
        light = np.abs(light) / np.linalg.norm(light)
        lit = np.clip(-x * light[0] - y * light[1] + up * light[2], 0, 1)
        colour = draw_colours(chance, 1)[0]
        pixels = colour * (0.2 + 0.8 * lit[..., None]) + chance.uniform(0, 0.9) * lit[..., None] ** chance.uniform(
            8, 60
        )
        mask = np.clip((1 - np.hypot(x, y)) * side / 2, 0, 1)
        return _to_picture(pixels), Image.fromarray((255 * mask).astype(np.uint8))

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw each where it is."""
        for (ball, mask), start, speed, high, rate, phase in zip(
            self._sprites, self._at, self._speed, self._high, self._rate, self._phase, strict=True
        ):
            part = (rate * seconds + phase) % 1
            side = ball.width
            x = (start + speed * seconds) % (picture.width + side) - side
            y = self._backdrop - side - high * 4 * part * (1 - part)
            flat = mask.resize((side, max(side // 5, 1))).point(lambda value: value // 3)
            picture.paste((0, 0, 0), (round(x), round(self._backdrop - side / 10)), flat)
            picture.paste(ball, (round(x), round(y)), mask)


class Bursts:
    """Sparks that fly apart from a place and fade: fireworks, splashes."""

    def __init__(self, chance: Chance, size: Size) -> None:
        self._bursts = [
            (
                chance.uniform(0.15, 0.85, 2) * size,
                chance.normal(0, min(size) * chance.uniform(0.1, 0.35), (int(chance.integers(20, 120)), 2)),
                chance.uniform(0, 2),
                chance.uniform(0.8, 2),
                draw_colours(chance, 1)[0] * 0.5 + 0.5,
            )
            for _ in range(int(chance.integers(2, 7)))
        ]
        self._fall = size[1] * chance.uniform(0, 0.3)

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw all sparks with what is left of their light."""
        draw = ImageDraw.Draw(picture)
        for centre, ways, start, life, colour in self._bursts:
            age = (seconds + start) % (life + 0.3)
            if age > life:
                continue
            reach = 1 - math.exp(-3 * age)
            for x, y in centre + ways * reach + np.array((0, self._fall * age**2)):
                radius = 1 + 2 * (1 - age / life)
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=to_rgb(colour * (1 - age / life)))


class Blades:
    """Grass, reeds or hair that sways."""

    def __init__(self, chance: Chance, size: Size) -> None:
        count = int(chance.integers(40, 260))
        self._roots = np.stack((chance.uniform(0, 1, count) * size[0], size[1] * chance.uniform(0.85, 1.05, count)), 1)
        self._tall = size[1] * chance.uniform(0.1, 0.5) * chance.uniform(0.5, 1, count)
        self._lean, self._phase = chance.normal(0, 0.15, count), chance.uniform(0, 1.5, count)
        self._sway, self._speed = chance.uniform(0.05, 0.25), chance.uniform(1, 4)
        colours = draw_colours(chance, 1)[0] * chance.uniform(0.5, 1.2, (count, 1)) + chance.normal(0, 0.04, (count, 3))
        self._colours = [to_rgb(np.clip(colour, 0, 1)) for colour in colours]

    def show(self, picture: Image.Image, seconds: float) -> None:
        """Draw each blade as it is bent."""
        draw = ImageDraw.Draw(picture)
        for (x, y), tall, lean, phase, colour in zip(
            self._roots, self._tall, self._lean, self._phase, self._colours, strict=True
        ):
            bent = tall * (lean + self._sway * math.sin(self._speed * seconds + phase + x / picture.width * 4))
            thick = 1 + tall / 40
            draw.polygon([(x - thick, y), (x + thick, y), (x + bent, y - tall)], fill=colour)


_BACKDROPS: Final[tuple[Callable[[Chance, Size], Backdrop], ...]] = (
    Layers,
    Layers,
    Flow,
    Flow,
    Floor,
    Floor,
    Cloth,
    Page,
)
