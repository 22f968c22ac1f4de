"""Faults of single pictures, with a strength from 0 (not quite visible) to 1 (gross).

Each takes frames (height, width, 3) and gives new ones. Lengths in pixels are for 360 lines.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

Frames = list[NDArray[np.uint8]]
Chance = np.random.Generator


def unit_of(frames: Frames) -> float:
    """Return how many pixels of these frames are one of 360 lines."""
    return min(frames[0].shape[:2]) / 360


def between(low: float, high: float, strength: float) -> float:
    """Return a value between two limits, in equal factors for equal steps of strength."""
    return low * (high / low) ** strength


def filtered(frames: Frames, make: Callable[[int], ImageFilter.Filter]) -> Frames:
    """Filter each frame by what `make` gives for its number."""
    return [np.asarray(Image.fromarray(f).filter(make(i))) for i, f in enumerate(frames)]


def to_levels(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Round to levels."""
    return np.clip(values + 0.5, 0, 255).astype(np.uint8)


def through_table(frames: Frames, table: NDArray[np.floating]) -> Frames:
    """Replace each level by that of a table (256,), or of one for each channel (256, 3)."""
    codes = to_levels(table)
    if codes.ndim == 1:
        return [codes[f] for f in frames]
    return [np.stack([codes[f[..., c], c] for c in range(3)], axis=-1) for f in frames]


def blur(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Soften every frame alike."""
    sigma = unit_of(frames) * between(0.5, 4.5, strength)
    return filtered(frames, lambda _: ImageFilter.GaussianBlur(sigma))


def defocus(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Let the focus drift: a soft disc whose size changes slowly."""
    radius, period, phase = unit_of(frames) * between(0.6, 6, strength), chance.uniform(20, 90), chance.uniform(0, 6)
    return filtered(
        frames, lambda i: ImageFilter.BoxBlur(radius * (0.7 + 0.3 * math.sin(math.tau * i / period + phase)))
    )


def motion_blur(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Smear every frame along one direction."""
    length = unit_of(frames) * between(1, 11, strength)
    radii = (length, 0.0) if chance.random() < 0.7 else (0.0, length)
    return filtered(frames, lambda _: ImageFilter.BoxBlur(radii))


def _noisy(frames: Frames, field: NDArray[np.float32], chance: Chance, *, dark: float = 1.0) -> Frames:
    """Add a random part of a field of noise to each frame; dark parts get `dark` times as much."""
    height, width = frames[0].shape[:2]
    out: Frames = []
    for frame in frames:
        top, left = chance.integers(0, field.shape[0] - height + 1), chance.integers(0, field.shape[1] - width + 1)
        noise = field[top : top + height, left : left + width]
        if dark != 1.0:
            noise = noise * (dark + (1 - dark) * frame.mean(2, keepdims=True, dtype=np.float32) / 255)
        out.append(to_levels(frame + noise))
    return out


def noise(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Add noise, other in each frame: normal, or single pixels of black and white."""
    height, width = frames[0].shape[:2]
    channels = 3 if chance.random() < 0.5 else 1
    if chance.random() < 0.15:
        struck = chance.random((height + 61, width + 83, 1), np.float32) / np.float32(between(0.002, 0.12, strength))
        field = np.where(struck < 1, np.where(struck < 0.5, np.float32(-255), np.float32(255)), np.float32(0))
        return _noisy(frames, field, chance)
    field = chance.standard_normal((height + 61, width + 83, channels), np.float32) * np.float32(
        between(2, 34, strength)
    )
    return _noisy(frames, field, chance, dark=chance.choice([1.0, 1.6]))


def grain(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Add coarse noise to the light, more of it where it is dark."""
    height, width = frames[0].shape[:2]
    size = max(unit_of(frames) * chance.uniform(1.2, 2.6), 1.0)
    small = chance.normal(0, 1, (int((height + 61) / size) + 2, int((width + 83) / size) + 2)).astype(np.float32)
    wide = Image.fromarray(small).resize((width + 83, height + 61), Image.Resampling.BICUBIC)
    field = np.asarray(wide)[..., None] * np.float32(between(2.5, 36, strength))
    return _noisy(frames, field, chance, dark=1.5)


def jpeg(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Code every frame by itself with a low quality."""
    out: Frames = []
    for frame in frames:
        written = io.BytesIO()
        Image.fromarray(frame).save(written, "JPEG", quality=round(between(48, 3, strength)))
        out.append(np.asarray(Image.open(written).convert("RGB")))
    return out


def blocks(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Mix every frame with the means of its blocks."""
    side, share = int(chance.choice([8, 8, 16])), 0.12 + 0.8 * strength
    height, width = frames[0].shape[:2]
    out: Frames = []
    for frame in frames:
        small = Image.fromarray(frame).resize((-(-width // side), -(-height // side)), Image.Resampling.BOX)
        flat = np.kron(np.asarray(small), np.ones((side, side, 1), np.uint8))[:height, :width]
        out.append(to_levels(frame * np.float32(1 - share) + flat * np.float32(share)))
    return out


def lost_blocks(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Some slices of blocks show an older place of the picture, or grey, for some frames."""
    height, width = frames[0].shape[:2]
    out, stale = [frame.copy() for frame in frames], np.zeros((height // 16, width // 16), bool)
    for i, frame in enumerate(out):
        stale &= chance.random(stale.shape) < 0.8
        for _ in range(chance.poisson(between(0.15, 2.5, strength))):
            row, column = chance.integers(0, stale.shape[0]), chance.integers(0, stale.shape[1])
            stale[row, column : column + chance.integers(2, 4 + round(24 * strength))] = True
        source = frames[max(i - 7, 0)]
        for row, column in np.argwhere(stale):
            at = slice(16 * row, 16 * row + 16), slice(16 * column, 16 * column + 16)
            moved = 16 * min(column + 3, stale.shape[1] - 1)
            frame[at] = source[at[0], moved : moved + 16] if (row + column) % 4 else 128
    return out


def banding(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Round the levels to few: of each colour, or of the light alone."""
    step, light_alone = between(3, 30, strength), chance.random() < 0.4
    levels = np.round(np.arange(256) / step) * step
    if not light_alone:
        return through_table(frames, levels)
    return [_through_light(frame, to_levels(levels)) for frame in frames]


def _through_light(frame: NDArray[np.uint8], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    parts = np.asarray(Image.fromarray(frame).convert("YCbCr")).copy()
    parts[..., 0] = codes[parts[..., 0]]
    return np.asarray(Image.fromarray(parts, "YCbCr").convert("RGB"))


def tint(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Colour the light, or everything by the same amount."""
    angle, size = chance.uniform(0, math.tau), between(0.05, 0.5, strength)
    shares = size * np.cos(angle + np.array([0, math.tau / 3, 2 * math.tau / 3]))
    if chance.random() < 0.3:
        return through_table(frames, np.arange(256)[:, None] + 110 * shares)
    return through_table(frames, np.arange(256)[:, None] * (1 + shares))


def desaturation(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Take colour away."""
    gain = 0.85 * (1 - strength)
    return [np.asarray(ImageEnhance.Color(Image.fromarray(f)).enhance(gain)) for f in frames]


def oversaturation(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Drive the colours up until they clip."""
    gain = between(1.45, 5, strength)
    return [np.asarray(ImageEnhance.Color(Image.fromarray(f)).enhance(gain)) for f in frames]


def fringes(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Shift the colour channels: red and blue apart, or both chroma planes against the luma."""
    apart, angle = chance.random() < 0.6, chance.normal(0, 0.5)
    shift = unit_of(frames) * between(1, 16, strength) * np.array([math.sin(angle), math.cos(angle)])
    down, right = (int(step) for step in np.round(shift))
    down, right = (down, right) if down or right else (0, 1)
    moved: Frames = []
    for frame in frames:
        parts = frame if apart else np.asarray(Image.fromarray(frame).convert("YCbCr"))
        parts = parts.copy()
        for channel, way in ((0, 1), (2, -1)) if apart else ((1, 1), (2, 1)):
            parts[..., channel] = _shift(parts[..., channel], way * down, way * right)
        moved.append(parts if apart else np.asarray(Image.fromarray(parts, "YCbCr").convert("RGB")))
    return moved


def colour_bleed(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Smear the chroma planes along the rows, and move them that way."""
    length = unit_of(frames) * between(2.5, 30, strength)
    moved, soft = round(length * chance.uniform(0, 1.2)), ImageFilter.BoxBlur((length, 0.15 * length))
    out: Frames = []
    for frame in frames:
        light, *colours = Image.fromarray(frame).convert("YCbCr").split()
        smeared = [Image.fromarray(_shift(np.asarray(each.filter(soft)), 0, moved)) for each in colours]
        out.append(np.asarray(Image.merge("YCbCr", (light, *smeared)).convert("RGB")))
    return out


def doubled(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Show the picture once more, moved, through itself."""
    height, width = frames[0].shape[:2]
    share, away = np.float32(0.08 + 0.4 * strength), chance.choice([-1, 1]) * chance.uniform(0.012, 0.09) * width
    angle = chance.normal(0, 0.5)
    down, right = round(away * math.sin(angle)), round(away * math.cos(angle))
    rows, columns = (np.arange(length) for length in (height, width))
    rows, columns = (rows - down).clip(0, height - 1), (columns - right).clip(0, width - 1)
    return [to_levels(f * (1 - share) + f[rows][:, columns] * share) for f in frames]


def dead_pixels(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Some dots have one colour in all frames."""
    height, width = frames[0].shape[:2]
    side = max(round(unit_of(frames) * chance.uniform(0.7, 2.2)), 1)
    colours = np.array([(255, 255, 255), (0, 0, 0), (255, 20, 30), (30, 250, 60), (40, 60, 255)], np.uint8)
    dots = [
        (int(chance.integers(height - side)), int(chance.integers(width - side)), colours[chance.integers(5)])
        for _ in range(round(between(8, 400, strength)))
    ]
    out = [frame.copy() for frame in frames]
    for frame in out:
        for top, left, colour in dots:
            frame[top : top + side, left : left + side] = colour
    return out


def pattern(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Lay a fine lattice or stripes over everything."""
    height, width = frames[0].shape[:2]
    period, angle = max(unit_of(frames) * chance.uniform(3, 9), 3.0), chance.uniform(0, math.pi)
    y, x = np.mgrid[:height, :width].astype(np.float32) * np.float32(math.tau / period)
    waves = np.sin(x * math.cos(angle) + y * math.sin(angle))
    if chance.random() < 0.5:
        waves *= np.sin(y * math.cos(angle) - x * math.sin(angle))
    layer = (waves * np.float32(between(3, 45, strength)))[..., None]
    return [to_levels(frame + layer) for frame in frames]


def _shift(plane: NDArray[np.uint8], down: int, right: int) -> NDArray[np.uint8]:
    """Move a plane by whole pixels; its edges are repeated."""
    rows, columns = (np.arange(length) for length in plane.shape)
    return plane[(rows - down).clip(0, rows[-1])][:, (columns - right).clip(0, columns[-1])]


def overexposure(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Brighten until the light parts are lost."""
    gain = between(1.15, 3, strength)
    if chance.random() < 0.35:
        return through_table(frames, 255 * (np.arange(256) / 255) ** (1 / gain) * (1 + 0.25 * strength))
    return through_table(frames, np.arange(256) * gain + 12 * strength)


def underexposure(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Darken until the dark parts are lost."""
    weak, strong = between(1, 0.7, strength), between(0.92, 0.3, strength)
    ways = ((1.0, strong), (1 + 0.8 * strength, strong), (1.2 + 1.4 * strength, weak))
    power, gain = ways[int(chance.integers(len(ways)))]
    return through_table(frames, 255 * (np.arange(256) / 255) ** power * gain)


def haze(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Mix with a light grey."""
    share, light = 0.1 + 0.65 * strength, chance.uniform(150, 225)
    return through_table(frames, np.arange(256) * (1 - share) + light * share)


def low_resolution(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Shrink and enlarge."""
    height, width = frames[0].shape[:2]
    factor = between(1.4, 8, strength)
    small = max(round(width / factor), 16), max(round(height / factor), 16)
    up = chance.choice([Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.NEAREST])
    return [
        np.asarray(Image.fromarray(f).resize(small, Image.Resampling.BOX).resize((width, height), up)) for f in frames
    ]


def oversharpening(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Sharpen until edges have seams."""
    radius, percent = max(unit_of(frames) * chance.uniform(0.8, 2.2), 0.6), round(between(60, 600, strength))
    return filtered(frames, lambda _: ImageFilter.UnsharpMask(radius, percent, 1))


def interlacing(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Take every second row from a later frame."""
    later = 1 + round(3 * strength)
    out: Frames = []
    for i, frame in enumerate(frames):
        woven = frame.copy()
        woven[1::2] = frames[min(i + later, len(frames) - 1)][1::2]
        out.append(woven)
    return out


def deinterlacing(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Keep one row of some, repeated or with those between drawn anew; each second frame keeps others."""
    step, smooth, bobs = round(between(2, 9, strength)), chance.random() < 0.3, chance.random() < 0.7
    height, width = frames[0].shape[:2]
    out: Frames = []
    for i, frame in enumerate(frames):
        begin = step // 2 if bobs and i % 2 else 0
        kept = frame[begin::step]
        if smooth:
            out.append(np.asarray(Image.fromarray(kept).resize((width, height), Image.Resampling.BILINEAR)))
        else:
            out.append(kept[((np.arange(height) - begin) // step).clip(0, len(kept) - 1)])
    return out


def _overlay(frames: Frames, drawn: Image.Image, share: float) -> Frames:
    """Put a picture with transparency over all frames."""
    layer = np.asarray(drawn).astype(np.float32)
    alpha = layer[..., 3:] / 255 * share
    return [to_levels(frame * (1 - alpha) + layer[..., :3] * alpha) for frame in frames]


def watermark(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Put faint lines of text over everything."""
    height, width = frames[0].shape[:2]
    layer, light = Image.new("RGBA", (width, height)), int(chance.choice([0, 255, 255]))
    pen, size = ImageDraw.Draw(layer), round(height * chance.uniform(0.06, 0.14))
    text = "".join(chance.choice(list("abcdefghiklmnoprstu@. "), 12))
    alone = chance.random() < 0.25
    for y in [height // 2 - size] if alone else range(0, height, round(size * chance.uniform(1.8, 4))):
        for x in [0] if alone else range(-int(chance.integers(0, width // 3)), width, max(size * 7, 1)):
            pen.text((x, y), text, fill=(light, light, light, 255), font_size=2 * size if alone else size)
    if chance.random() < 0.4:
        layer = layer.rotate(chance.uniform(-45, 45), Image.Resampling.BILINEAR)
    return _overlay(frames, layer, 0.1 + 0.6 * strength)


def logo(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Put a logo into a corner."""
    height, width = frames[0].shape[:2]
    layer, size = Image.new("RGBA", (width, height)), round(min(height, width) * between(0.08, 0.4, strength))
    left = int(chance.choice([0.04 * width, 0.95 * width - size]))
    top = int(chance.choice([0.05 * height, 0.94 * height - size]))
    pen, colour = ImageDraw.Draw(layer), tuple(int(c) for c in chance.integers(0, 256, 3))
    shape = chance.integers(0, 3)
    if shape == 0:
        pen.ellipse((left, top, left + size, top + size), outline=(*colour, 255), width=max(size // 7, 2))
    elif shape == 1:
        pen.rounded_rectangle((left, top, left + size, top + size // 2), size // 8, fill=(*colour, 255))
    for line in range(1 + int(shape)):
        pen.text((left, top + line * size // 3), "NEWS 4K"[: 4 + line], fill=(255, 255, 255, 255), font_size=size // 3)
    return _overlay(frames, layer, 0.55 + 0.4 * strength)


def bars(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Black bars come or change in the clip."""
    height = frames[0].shape[0]
    size, begin = round(height * (0.03 + 0.17 * strength)), int(chance.integers(1, max(len(frames) // 2, 2)))
    sudden, out = chance.random() < 0.6, [frame.copy() for frame in frames]
    for i, frame in enumerate(out[begin:]):
        rows = size if sudden else min(size, round(size * i / max(len(frames) // 4, 1)))
        frame[:rows] = 0
        frame[height - rows :] = 0
    return out
