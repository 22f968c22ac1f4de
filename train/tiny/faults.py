"""The faults, each with a strength from 0 (not quite visible) to 1 (gross). A fault of time chooses other frames.

A picture fault takes frames (height, width, 3) and gives new ones. Lengths in pixels are for 360 lines.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

Frames = list[NDArray[np.uint8]]
Chance = np.random.Generator
Paint = Callable[[Frames, float, Chance], Frames]
Reorder = Callable[[int, float, float, Chance], list[int]]
Key = Literal["VQ", "MQ"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault: how people call it, the dimensions that it spoils, and how it is made.

    `codec` names an encoder of `coding`. What `moves` shows only where something moves, what `colours` only in colour.
    """

    name: str
    keys: tuple[Key, ...]
    paint: Paint | None = None
    reorder: Reorder | None = None
    codec: str = ""
    moves: bool = False
    colours: bool = False


def _unit(frames: Frames) -> float:
    return min(frames[0].shape[:2]) / 360


def _scale(low: float, high: float, strength: float) -> float:
    """Return a value between two limits, in equal factors for equal steps of strength."""
    return low * (high / low) ** strength


def _filtered(frames: Frames, make: Callable[[int], ImageFilter.Filter]) -> Frames:
    return [np.asarray(Image.fromarray(f).filter(make(i))) for i, f in enumerate(frames)]


def _levels(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    return np.clip(values + 0.5, 0, 255).astype(np.uint8)


def _through_table(frames: Frames, table: NDArray[np.floating]) -> Frames:
    """Replace each level by that of a table (256,), or of one for each channel (256, 3)."""
    codes = _levels(table)
    if codes.ndim == 1:
        return [codes[f] for f in frames]
    return [np.stack([codes[f[..., c], c] for c in range(3)], axis=-1) for f in frames]


# Pictures


def blur(frames: Frames, strength: float, chance: Chance) -> Frames:
    sigma = _unit(frames) * _scale(0.5, 4.5, strength)
    return _filtered(frames, lambda _: ImageFilter.GaussianBlur(sigma))


def defocus(frames: Frames, strength: float, chance: Chance) -> Frames:
    radius, period, phase = _unit(frames) * _scale(0.6, 6, strength), chance.uniform(20, 90), chance.uniform(0, 6)
    return _filtered(
        frames, lambda i: ImageFilter.BoxBlur(radius * (0.7 + 0.3 * math.sin(math.tau * i / period + phase)))
    )


def motion_blur(frames: Frames, strength: float, chance: Chance) -> Frames:
    length = _unit(frames) * _scale(1, 11, strength)
    radii = (length, 0.0) if chance.random() < 0.7 else (0.0, length)
    return _filtered(frames, lambda _: ImageFilter.BoxBlur(radii))


def _noisy(frames: Frames, field: NDArray[np.float32], chance: Chance, *, dark: float = 1.0) -> Frames:
    """Add a random part of a field of noise to each frame; dark parts get `dark` times as much."""
    height, width = frames[0].shape[:2]
    out: Frames = []
    for frame in frames:
        top, left = chance.integers(0, field.shape[0] - height + 1), chance.integers(0, field.shape[1] - width + 1)
        noise = field[top : top + height, left : left + width]
        if dark != 1.0:
            noise = noise * (dark + (1 - dark) * frame.mean(2, keepdims=True, dtype=np.float32) / 255)
        out.append(_levels(frame + noise))
    return out


def noise(frames: Frames, strength: float, chance: Chance) -> Frames:
    height, width = frames[0].shape[:2]
    channels = 3 if chance.random() < 0.5 else 1
    field = chance.standard_normal((height + 61, width + 83, channels), np.float32) * np.float32(
        _scale(2, 34, strength)
    )
    return _noisy(frames, field, chance, dark=chance.choice([1.0, 1.6]))


def grain(frames: Frames, strength: float, chance: Chance) -> Frames:
    height, width = frames[0].shape[:2]
    size = max(_unit(frames) * chance.uniform(1.2, 2.6), 1.0)
    small = chance.normal(0, 1, (int((height + 61) / size) + 2, int((width + 83) / size) + 2)).astype(np.float32)
    wide = Image.fromarray(small).resize((width + 83, height + 61), Image.Resampling.BICUBIC)
    field = np.asarray(wide)[..., None] * np.float32(_scale(2.5, 36, strength))
    return _noisy(frames, field, chance, dark=1.5)


def jpeg(frames: Frames, strength: float, chance: Chance) -> Frames:
    out: Frames = []
    for frame in frames:
        written = io.BytesIO()
        Image.fromarray(frame).save(written, "JPEG", quality=round(_scale(48, 3, strength)))
        out.append(np.asarray(Image.open(written).convert("RGB")))
    return out


def blocks(frames: Frames, strength: float, chance: Chance) -> Frames:
    side, share = int(chance.choice([8, 8, 16])), 0.12 + 0.8 * strength
    height, width = frames[0].shape[:2]
    out: Frames = []
    for frame in frames:
        small = Image.fromarray(frame).resize((-(-width // side), -(-height // side)), Image.Resampling.BOX)
        flat = np.kron(np.asarray(small), np.ones((side, side, 1), np.uint8))[:height, :width]
        out.append(_levels(frame * np.float32(1 - share) + flat * np.float32(share)))
    return out


def lost_blocks(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Some slices of blocks show an older place of the picture, or grey, for some frames."""
    height, width = frames[0].shape[:2]
    out, stale = [frame.copy() for frame in frames], np.zeros((height // 16, width // 16), bool)
    for i, frame in enumerate(out):
        stale &= chance.random(stale.shape) < 0.8
        for _ in range(chance.poisson(_scale(0.15, 2.5, strength))):
            row, column = chance.integers(0, stale.shape[0]), chance.integers(0, stale.shape[1])
            stale[row, column : column + chance.integers(2, 4 + round(24 * strength))] = True
        source = frames[max(i - 7, 0)]
        for row, column in np.argwhere(stale):
            at = slice(16 * row, 16 * row + 16), slice(16 * column, 16 * column + 16)
            moved = 16 * min(column + 3, stale.shape[1] - 1)
            frame[at] = source[at[0], moved : moved + 16] if (row + column) % 4 else 128
    return out


def banding(frames: Frames, strength: float, chance: Chance) -> Frames:
    step = _scale(3, 30, strength)
    return _through_table(frames, np.round(np.arange(256) / step) * step)


def tint(frames: Frames, strength: float, chance: Chance) -> Frames:
    angle, size = chance.uniform(0, math.tau), _scale(0.05, 0.5, strength)
    gains = 1 + size * np.cos(angle + np.array([0, math.tau / 3, 2 * math.tau / 3]))
    return _through_table(frames, np.arange(256)[:, None] * gains)


def desaturation(frames: Frames, strength: float, chance: Chance) -> Frames:
    gain = 0.8 * (1 - strength) if chance.random() < 0.65 else 1.35 + 1.7 * strength
    return [np.asarray(ImageEnhance.Color(Image.fromarray(f)).enhance(gain)) for f in frames]


def overexposure(frames: Frames, strength: float, chance: Chance) -> Frames:
    return _through_table(frames, np.arange(256) * _scale(1.15, 3, strength) + 12 * strength)


def underexposure(frames: Frames, strength: float, chance: Chance) -> Frames:
    return _through_table(frames, 255 * (np.arange(256) / 255) ** (1 + 0.8 * strength) * _scale(0.92, 0.3, strength))


def haze(frames: Frames, strength: float, chance: Chance) -> Frames:
    share, light = 0.1 + 0.65 * strength, chance.uniform(150, 225)
    return _through_table(frames, np.arange(256) * (1 - share) + light * share)


def low_resolution(frames: Frames, strength: float, chance: Chance) -> Frames:
    height, width = frames[0].shape[:2]
    factor = _scale(1.4, 8, strength)
    small = max(round(width / factor), 16), max(round(height / factor), 16)
    up = chance.choice([Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.NEAREST])
    return [
        np.asarray(Image.fromarray(f).resize(small, Image.Resampling.BOX).resize((width, height), up)) for f in frames
    ]


def oversharpening(frames: Frames, strength: float, chance: Chance) -> Frames:
    radius, percent = max(_unit(frames) * chance.uniform(0.8, 2.2), 0.6), round(_scale(60, 600, strength))
    return _filtered(frames, lambda _: ImageFilter.UnsharpMask(radius, percent, 1))


def interlacing(frames: Frames, strength: float, chance: Chance) -> Frames:
    later = 1 + round(3 * strength)
    out: Frames = []
    for i, frame in enumerate(frames):
        woven = frame.copy()
        woven[1::2] = frames[min(i + later, len(frames) - 1)][1::2]
        out.append(woven)
    return out


def _overlay(frames: Frames, drawn: Image.Image, share: float) -> Frames:
    """Put a picture with transparency over all frames."""
    layer = np.asarray(drawn).astype(np.float32)
    alpha = layer[..., 3:] / 255 * share
    return [_levels(frame * (1 - alpha) + layer[..., :3] * alpha) for frame in frames]


def watermark(frames: Frames, strength: float, chance: Chance) -> Frames:
    height, width = frames[0].shape[:2]
    layer, light = Image.new("RGBA", (width, height)), int(chance.choice([0, 255, 255]))
    pen, size = ImageDraw.Draw(layer), round(height * chance.uniform(0.06, 0.14))
    text = "".join(chance.choice(list("abcdefghiklmnoprstu@. "), 12))
    for y in range(0, height, round(size * chance.uniform(1.8, 4))):
        for x in range(-int(chance.integers(0, width // 3)), width, max(size * 7, 1)):
            pen.text((x, y), text, fill=(light, light, light, 255), font_size=size)
    return _overlay(frames, layer, 0.1 + 0.6 * strength)


def logo(frames: Frames, strength: float, chance: Chance) -> Frames:
    height, width = frames[0].shape[:2]
    layer, size = Image.new("RGBA", (width, height)), round(min(height, width) * _scale(0.08, 0.4, strength))
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


# Pictures in time


def flicker(frames: Frames, strength: float, chance: Chance) -> Frames:
    return [
        _levels(f * np.float32(g)) for f, g in zip(frames, 1 + _flashes(len(frames), strength, chance), strict=True)
    ]


def _flashes(count: int, strength: float, chance: Chance) -> NDArray[np.floating]:
    """Return the change of light of each frame: irregular, alternating, a fast wave, or rare flashes."""
    size, way, t = _scale(0.03, 0.4, strength), chance.integers(0, 4), np.arange(count)
    if way == 0:
        return size * chance.uniform(-1.3, 1.3, count)
    if way == 1:
        return size * (-1.0) ** t
    if way == 2:
        return size * np.sin(math.tau * t / chance.uniform(2.3, 7))
    return size * 2 * (chance.random(count) < 0.18) * chance.choice([-1, 1])


def local_flicker(frames: Frames, strength: float, chance: Chance) -> Frames:
    mask = _spot(frames[0], chance, 0.25, 0.6)[..., None]
    gains = 1.6 * _flashes(len(frames), strength, chance)
    return [_levels(f * (1 + np.float32(g) * mask)) for f, g in zip(frames, gains, strict=True)]


def _spot(frame: NDArray[np.uint8], chance: Chance, least: float, most: float) -> NDArray[np.float32]:
    """Return a soft ellipse, (height, width) from 0 to 1; its half axes are these shares of the half sides."""
    height, width = frame.shape[:2]
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    cy, cx = chance.uniform(-0.55, 0.55, 2)
    ry, rx = chance.uniform(least, most, 2)
    return np.clip(2.2 - 2.2 * np.hypot((y - cy) / ry, (x - cx) / rx), 0, 1)


def _bend(frame: NDArray[np.uint8], down: NDArray[np.floating], right: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Fetch each point from where a coarse grid of offsets in pixels, (rows + 1, columns + 1), leads."""
    height, width = frame.shape[:2]
    rows, columns = down.shape[0] - 1, down.shape[1] - 1
    ys, xs = np.linspace(0, height, rows + 1), np.linspace(0, width, columns + 1)
    y = (ys[:, None] + down).clip(0, height - 1)
    x = (xs[None] + right).clip(0, width - 1)
    mesh = [
        (
            (round(xs[c]), round(ys[r]), round(xs[c + 1]), round(ys[r + 1])),
            (x[r, c], y[r, c], x[r + 1, c], y[r + 1, c], x[r + 1, c + 1], y[r + 1, c + 1], x[r, c + 1], y[r, c + 1]),
        )
        for r in range(rows)
        for c in range(columns)
    ]
    turned = Image.fromarray(frame).transform((width, height), Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)
    return np.asarray(turned)


_GRID = (15, 25)


def boiling(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Every part of the texture shifts by itself in every frame."""
    size = _unit(frames) * _scale(0.35, 3.5, strength)
    return [_bend(f, *chance.normal(0, size, (2, 22, 38))) for f in frames]


def wobble(frames: Frames, strength: float, chance: Chance) -> Frames:
    size, y, x = _unit(frames) * _scale(0.8, 11, strength), *np.mgrid[: _GRID[0], : _GRID[1]]
    speed, phase = chance.uniform(0.12, 0.9, 2), chance.uniform(0, 6, 4)
    a, b = chance.uniform(0.25, 0.8, 2)
    return [
        _bend(
            f,
            size * np.sin(a * x + speed[0] * t + phase[0]) * np.cos(b * y + phase[1]),
            size * np.sin(b * y - speed[1] * t + phase[2]) * np.cos(a * x + phase[3]),
        )
        for t, f in enumerate(frames)
    ]


def local_warp(frames: Frames, strength: float, chance: Chance) -> Frames:
    """One or two parts, as large as a face or a hand, bend and pulse."""
    spots = [_spot(np.empty((*_GRID, 3), np.uint8), chance, 0.25, 0.5) for _ in range(chance.integers(1, 3))]
    size, out = _unit(frames) * _scale(2.5, 26, strength), []
    paths = [chance.uniform(0.1, 0.5, 2) * chance.choice([-1, 1], 2) for _ in spots]
    for t, frame in enumerate(frames):
        down = sum(size * s * math.sin(p[0] * t) for s, p in zip(spots, paths, strict=True))
        right = sum(size * s * math.sin(p[1] * t + 1) for s, p in zip(spots, paths, strict=True))
        out.append(_bend(frame, np.asarray(down), np.asarray(right)))
    return out


def melting(frames: Frames, strength: float, chance: Chance) -> Frames:
    """The picture runs down, more and more, at some places faster."""
    columns = np.convolve(chance.uniform(0, 1, _GRID[1] + 4), np.ones(5) / 5, "valid")[: _GRID[1]]
    side, size = chance.normal(0, 0.25, _GRID), _unit(frames) * _scale(6, 75, strength)
    rows = np.linspace(0, 1, _GRID[0])[:, None]
    return [
        _bend(f, -size * t / len(frames) * (columns**2 * 3 * rows), size * t / len(frames) * side * rows)
        for t, f in enumerate(frames)
    ]


def morphing(frames: Frames, strength: float, chance: Chance) -> Frames:
    """A part turns into another part of the picture and back."""
    mask, period = _spot(frames[0], chance, 0.3, 0.7)[..., None], chance.uniform(0.6, 1.6) * len(frames)
    moved = round(frames[0].shape[1] * chance.uniform(0.15, 0.4))
    share = (0.2 + 0.75 * strength) * mask
    return [
        _levels(f * (1 - share * w) + np.roll(f, moved, 1)[:, ::-1] * (share * w))
        for t, f in enumerate(frames)
        if (w := np.float32(math.sin(math.pi * t / period) ** 2)) is not None
    ]


def vanishing(frames: Frames, strength: float, chance: Chance) -> Frames:
    """A part is wiped out in the middle of the clip."""
    mask = np.clip(2 * _spot(frames[0], chance, 0.12 + 0.2 * strength, 0.2 + 0.35 * strength), 0, 1)[..., None]
    begin, soft = int(chance.uniform(0.3, 0.7) * len(frames)), ImageFilter.BoxBlur(frames[0].shape[0] / 7)
    return [
        f if t < begin else _levels(f * (1 - mask) + np.asarray(Image.fromarray(f).filter(soft)) * mask)
        for t, f in enumerate(frames)
    ]


def popping(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Things appear and disappear at once: parts from elsewhere in the picture."""
    out, seconds = list(frames), max(2, round(len(frames) / (2 + 6 * strength)))
    for begin in range(int(chance.integers(1, seconds + 1)), len(frames), seconds):
        mask = np.clip(2 * _spot(frames[0], chance, 0.08 + 0.12 * strength, 0.15 + 0.25 * strength), 0, 1)[..., None]
        moved = int(chance.uniform(0.2, 0.6) * frames[0].shape[1])
        for t in range(begin, min(begin + max(2, seconds // 2), len(frames))):
            out[t] = _levels(frames[t] * (1 - mask) + np.roll(frames[t], moved, 1) * mask)
    return out


def ghosts(frames: Frames, strength: float, chance: Chance) -> Frames:
    late, share = int(chance.integers(2, 9)), np.float32(0.1 + 0.38 * strength)
    return [_levels(f * (1 - share) + frames[max(t - late, 0)] * share) for t, f in enumerate(frames)]


def trails(frames: Frames, strength: float, chance: Chance) -> Frames:
    share, out, held = np.float32(0.35 + 0.57 * strength), [], frames[0].astype(np.float32)
    for frame in frames:
        held = held * share + frame * (1 - share)
        out.append(_levels(held))
    return out


def shake(frames: Frames, strength: float, chance: Chance) -> Frames:
    height, width = frames[0].shape[:2]
    size, smooth = _unit(frames) * _scale(0.5, 11, strength), int(chance.choice([1, 1, 2, 4]))
    path = chance.normal(0, size, (len(frames) + smooth, 2))
    path = np.stack([np.convolve(p, np.ones(smooth), "valid") / math.sqrt(smooth) for p in path.T], axis=1)
    margin = min(3 * size, 0.08 * height)
    zoom = 1 - 2 * margin / height
    out: Frames = []
    for frame, (dy, dx) in zip(frames, path.clip(-margin, margin), strict=False):
        matrix = (zoom, 0, (1 - zoom) * width / 2 + dx, 0, zoom, margin + dy)
        moved = Image.fromarray(frame).transform(
            (width, height), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC
        )
        out.append(np.asarray(moved))
    return out


def pulses(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Detail comes with each keyframe and fades until the next one, or the other way round."""
    group, sigma = int(chance.integers(6, 26)), _unit(frames) * _scale(0.6, 3.2, strength)
    rising = chance.random() < 0.6
    shares = [(t % group) / (group - 1) if rising else (t % group == 0) * 1.0 for t in range(len(frames))]
    return _filtered(frames, lambda t: ImageFilter.GaussianBlur(0.05 + sigma * shares[t]))


def cuts(frames: Frames, strength: float, chance: Chance) -> Frames:
    """The picture jumps to another side of the scene for a while, once or more."""
    out = list(frames)
    for _ in range(1 + round(2 * strength)):
        begin = int(chance.integers(1, max(len(frames) - 2, 2)))
        for t in range(begin, min(begin + max(2, round(len(frames) * (0.1 + 0.3 * strength))), len(frames))):
            out[t] = np.ascontiguousarray(frames[t][:, ::-1][:, :, ::1])
    return out


# Time


def stutter(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    hold = _scale(1.25, max(2.5, 0.35 * fps), strength)
    return [int(int(t / hold) * hold) for t in range(count)]


def repeats(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    share, out = 0.06 + 0.55 * strength, [0]
    for t in range(1, count):
        out.append(out[-1] if chance.random() < share else t)
    return out


def missing(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    """Frames are left out at some places."""
    jumps = max(2, round(fps * (0.08 + 0.5 * strength)))
    places = np.sort(chance.integers(1, max(count - 1, 2), 1 + round(3 * strength)))
    return [int(t + jumps * np.searchsorted(places, t, side="right")) for t in range(count)]


def freeze(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    held = max(2, round(count * (0.08 + 0.7 * strength)))
    begin = int(chance.integers(1, max(count - held, 2)))
    later = chance.random() < 0.5  # the clip goes on from there, or jumps to where it would be
    return [t if t < begin else begin if t < begin + held else t - (held if later else 0) for t in range(count)]


def speed(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    fast, half = _scale(1.4, 4.5, strength), count / 2
    slow_first = chance.random() < 0.5
    times = [
        min(t, half) + max(t - half, 0) * fast if slow_first else min(t, half) * fast + max(t - half, 0)
        for t in range(count)
    ]
    return [int(t) for t in times]


def reversal(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    length = max(3, round(count * (0.15 + 0.5 * strength)))
    begin = int(chance.integers(1, max(count - length, 2)))
    return [2 * begin + length - 1 - t if begin <= t < begin + length else t for t in range(count)]


_BOTH: Final = ("VQ", "MQ")
FAULTS: Final[dict[str, Fault]] = {
    "blur": Fault("blur", ("VQ",), blur),
    "defocus": Fault("blur", ("VQ",), defocus),
    "motion blur": Fault("blur", ("VQ",), motion_blur),
    "noise": Fault("noise", ("VQ",), noise),
    "grain": Fault("noise", ("VQ",), grain),
    "jpeg": Fault("blocks", ("VQ",), jpeg),
    "blocks": Fault("blocks", ("VQ",), blocks),
    "h264": Fault("blocks", ("VQ",), codec="h264"),
    "h265": Fault("blocks", ("VQ",), codec="h265"),
    "av1": Fault("blocks", ("VQ",), codec="av1"),
    "mpeg2": Fault("blocks", ("VQ",), codec="mpeg2"),
    "lost blocks": Fault("lost blocks", ("VQ",), lost_blocks),
    "banding": Fault("banding", ("VQ",), banding),
    "tint": Fault("colour", ("VQ",), tint),
    "desaturation": Fault("colour", ("VQ",), desaturation, colours=True),
    "overexposure": Fault("exposure", ("VQ",), overexposure),
    "underexposure": Fault("exposure", ("VQ",), underexposure),
    "haze": Fault("haze", ("VQ",), haze),
    "low resolution": Fault("low resolution", ("VQ",), low_resolution),
    "oversharpening": Fault("oversharpening", ("VQ",), oversharpening),
    "interlacing": Fault("interlacing", _BOTH, interlacing, moves=True),
    "watermark": Fault("overlay", ("VQ",), watermark),
    "logo": Fault("overlay", ("VQ",), logo),
    "bars": Fault("bars", ("VQ",), bars),
    "flicker": Fault("flicker", ("MQ",), flicker),
    "local flicker": Fault("flicker", ("MQ",), local_flicker),
    "boiling": Fault("boiling", ("MQ",), boiling),
    "pulses": Fault("boiling", _BOTH, pulses),
    "stutter": Fault("stutter", ("MQ",), reorder=stutter, moves=True),
    "repeats": Fault("stutter", ("MQ",), reorder=repeats, moves=True),
    "missing frames": Fault("jumps", ("MQ",), reorder=missing, moves=True),
    "freeze": Fault("freeze", ("MQ",), reorder=freeze, moves=True),
    "speed": Fault("jumps", ("MQ",), reorder=speed, moves=True),
    "reversal": Fault("reversal", ("MQ",), reorder=reversal, moves=True),
    "cuts": Fault("jumps", ("MQ",), cuts),
    "shake": Fault("shake", ("MQ",), shake),
    "ghosts": Fault("ghosts", ("MQ",), ghosts, moves=True),
    "trails": Fault("ghosts", ("MQ",), trails, moves=True),
    "wobble": Fault("bending", ("MQ",), wobble),
    "local warp": Fault("bending", ("MQ",), local_warp),
    "melting": Fault("bending", ("MQ",), melting),
    "morphing": Fault("bending", ("MQ",), morphing),
    "vanishing": Fault("objects", ("MQ",), vanishing),
    "popping": Fault("objects", ("MQ",), popping),
}
WITHHELD: Final = ("defocus", "mpeg2", "trails", "popping")
"""Kinds that training never has, to see what unknown faults get."""
