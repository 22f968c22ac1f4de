"""Faults that show in time: in each frame otherwise, or as other frames in place of these.

A fault of time takes the number of frames and gives the number of the frame that is shown at each place.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from train.tiny.spoiled_pictures import Chance, Frames, between, filtered, to_levels, unit_of


def flicker(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Change the light from frame to frame."""
    return [
        to_levels(f * np.float32(g)) for f, g in zip(frames, 1 + _flashes(len(frames), strength, chance), strict=True)
    ]


def _flashes(count: int, strength: float, chance: Chance) -> NDArray[np.floating]:
    """Return the change of light of each frame: irregular, alternating, a fast wave, or rare flashes."""
    size, way, t = between(0.03, 0.4, strength), chance.integers(0, 4), np.arange(count)
    if way == 0:
        return size * chance.uniform(-1.3, 1.3, count)
    if way == 1:
        return size * (-1.0) ** t
    if way == 2:
        return size * np.sin(math.tau * t / chance.uniform(2.3, 7))
    return size * 2 * (chance.random(count) < 0.18) * chance.choice([-1, 1])


def local_flicker(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Change the light of one part from frame to frame."""
    mask = _spot(frames[0], chance, 0.25, 0.6)[..., None]
    gains = 1.6 * _flashes(len(frames), strength, chance)
    return [to_levels(f * (1 + np.float32(g) * mask)) for f, g in zip(frames, gains, strict=True)]


def rolling_bands(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Let bands of other light travel through the picture."""
    size, bands, turns = between(0.04, 0.5, strength), chance.uniform(0.6, 3.5), chance.normal(0, 0.09)
    turns += math.copysign(0.012, turns)
    across = int(chance.random() < 0.2)
    length = frames[0].shape[across]
    place = np.arange(length, dtype=np.float32).reshape((1, length, 1) if across else (length, 1, 1)) / length
    sign = chance.choice([-1, -1, 1])
    waves = (0.5 + 0.5 * np.sin(math.tau * (bands * place - turns * t)) for t in range(len(frames)))
    return [to_levels(f * (1 + np.float32(sign * size) * wave**2)) for f, wave in zip(frames, waves, strict=False)]


def colour_drift(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Let the colour of the light turn in time."""
    size, period, begin = between(0.04, 0.45, strength), chance.uniform(12, 90), chance.uniform(0, math.tau)
    phases = begin + chance.choice([-1, 1]) * np.arange(3) * chance.uniform(1.2, 2.2)
    gains = 1 + size * np.sin(math.tau * np.arange(len(frames))[:, None] / period + phases)
    return [to_levels(f * g.astype(np.float32)) for f, g in zip(frames, gains, strict=True)]


def tearing(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Below a row the picture is of another moment; the rows may be out of line as well."""
    late, height = 1 + round(5 * strength * chance.uniform(0.5, 1)), frames[0].shape[0]
    share, crooked = 0.3 + 0.7 * strength, unit_of(frames) * between(0.3, 9, strength) * (chance.random() < 0.5)
    out: Frames = []
    for i, frame in enumerate(frames):
        torn = frame.copy()
        if chance.random() < share:
            row = int(chance.uniform(0.1, 0.9) * height)
            torn[row:] = frames[i - late if i >= late else min(i + late, len(frames) - 1)][row:]
        for top in range(0, height, 4) if crooked else ():
            torn[top : top + 4] = np.roll(torn[top : top + 4], round(chance.normal(0, crooked)), 1)
        out.append(torn)
    return out


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
    """Every part of the texture shifts by itself in every frame, or changes its light."""
    size = unit_of(frames) * between(0.35, 3.5, strength)
    if chance.random() < 0.3:
        return [to_levels(f * (1 + _blotches(f, between(0.02, 0.2, strength), chance))) for f in frames]
    return [_bend(f, *chance.normal(0, size, (2, 22, 38))) for f in frames]


def _blotches(frame: NDArray[np.uint8], size: float, chance: Chance) -> NDArray[np.float32]:
    """Return a soft random field with this deviation, (height, width, 1)."""
    small = Image.fromarray(chance.normal(0, size, (24, 40)).astype(np.float32))
    return np.asarray(small.resize(frame.shape[1::-1], Image.Resampling.BICUBIC))[..., None]


def wobble(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Bend the whole picture by waves that run through it."""
    size, y, x = unit_of(frames) * between(0.8, 11, strength), *np.mgrid[: _GRID[0], : _GRID[1]]
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
    size, out = unit_of(frames) * between(2.5, 26, strength), []
    paths = [chance.uniform(0.1, 0.5, 2) * chance.choice([-1, 1], 2) for _ in spots]
    for t, frame in enumerate(frames):
        down = sum(size * s * math.sin(p[0] * t) for s, p in zip(spots, paths, strict=True))
        right = sum(size * s * math.sin(p[1] * t + 1) for s, p in zip(spots, paths, strict=True))
        out.append(_bend(frame, np.asarray(down), np.asarray(right)))
    return out


def melting(frames: Frames, strength: float, chance: Chance) -> Frames:
    """The picture runs down, more and more, at some places faster."""
    columns = np.convolve(chance.uniform(0, 1, _GRID[1] + 4), np.ones(5) / 5, "valid")[: _GRID[1]]
    side, size = chance.normal(0, 0.25, _GRID), unit_of(frames) * between(6, 75, strength)
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
        to_levels(f * (1 - share * w) + np.roll(f, moved, 1)[:, ::-1] * (share * w))
        for t, f in enumerate(frames)
        if (w := np.float32(math.sin(math.pi * t / period) ** 2)) is not None
    ]


def vanishing(frames: Frames, strength: float, chance: Chance) -> Frames:
    """A part is wiped out in the middle of the clip."""
    mask = np.clip(2 * _spot(frames[0], chance, 0.12 + 0.2 * strength, 0.2 + 0.35 * strength), 0, 1)[..., None]
    begin, soft = int(chance.uniform(0.3, 0.7) * len(frames)), ImageFilter.BoxBlur(frames[0].shape[0] / 7)
    return [
        f if t < begin else to_levels(f * (1 - mask) + np.asarray(Image.fromarray(f).filter(soft)) * mask)
        for t, f in enumerate(frames)
    ]


def popping(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Things appear and disappear at once: parts from elsewhere in the picture."""
    out, seconds = list(frames), max(2, round(len(frames) / (2 + 6 * strength)))
    for begin in range(int(chance.integers(1, seconds + 1)), len(frames), seconds):
        mask = np.clip(2 * _spot(frames[0], chance, 0.08 + 0.12 * strength, 0.15 + 0.25 * strength), 0, 1)[..., None]
        moved = int(chance.uniform(0.2, 0.6) * frames[0].shape[1])
        for t in range(begin, min(begin + max(2, seconds // 2), len(frames))):
            out[t] = to_levels(frames[t] * (1 - mask) + np.roll(frames[t], moved, 1) * mask)
    return out


def ghosts(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Show an earlier frame through each frame."""
    late, share = int(chance.integers(2, 9)), np.float32(0.1 + 0.38 * strength)
    return [to_levels(f * (1 - share) + frames[max(t - late, 0)] * share) for t, f in enumerate(frames)]


def trails(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Let what moves leave a trail."""
    share, out, held = np.float32(0.35 + 0.57 * strength), [], frames[0].astype(np.float32)
    for frame in frames:
        held = held * share + frame * (1 - share)
        out.append(to_levels(held))
    return out


def shake(frames: Frames, strength: float, chance: Chance) -> Frames:
    """Move the camera by chance."""
    height, width = frames[0].shape[:2]
    size, smooth = unit_of(frames) * between(0.5, 11, strength), int(chance.choice([1, 1, 2, 4]))
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
    group, sigma = int(chance.integers(6, 26)), unit_of(frames) * between(0.6, 3.2, strength)
    rising = chance.random() < 0.6
    shares = [(t % group) / (group - 1) if rising else (t % group == 0) * 1.0 for t in range(len(frames))]
    return filtered(frames, lambda t: ImageFilter.GaussianBlur(0.05 + sigma * shares[t]))


def cuts(frames: Frames, strength: float, chance: Chance) -> Frames:
    """The picture jumps for a while, once or more: to another side of the scene, or nearer."""
    out, nearer = list(frames), chance.random() < 0.4
    height, width = frames[0].shape[:2]
    box = (0.2 * width, 0.15 * height, 0.75 * width, 0.7 * height)
    for _ in range(1 + round(2 * strength)):
        begin = int(chance.integers(1, max(len(frames) - 2, 2)))
        for t in range(begin, min(begin + max(2, round(len(frames) * (0.1 + 0.3 * strength))), len(frames))):
            near = Image.fromarray(frames[t]).resize((width, height), Image.Resampling.BICUBIC, box)
            out[t] = np.asarray(near) if nearer else np.ascontiguousarray(frames[t][:, ::-1])
    return out


def stutter(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    """Hold each frame for a while, evenly."""
    hold = between(1.25, max(2.5, 0.35 * fps), strength)
    return [int(int(t / hold) * hold) for t in range(count)]


def repeats(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    """Repeat some frames in place of their successors."""
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
    """Hold one frame for a part of the clip."""
    held = max(2, round(count * (0.08 + 0.7 * strength)))
    begin = int(chance.integers(1, max(count - held, 2)))
    later = chance.random() < 0.5  # the clip goes on from there, or jumps to where it would be
    return [t if t < begin else begin if t < begin + held else t - (held if later else 0) for t in range(count)]


def speed(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    """Change speed in the middle."""
    fast, half = between(1.4, 4.5, strength), count / 2
    slow_first = chance.random() < 0.5
    times = [
        min(t, half) + max(t - half, 0) * fast if slow_first else min(t, half) * fast + max(t - half, 0)
        for t in range(count)
    ]
    return [int(t) for t in times]


def reversal(count: int, fps: float, strength: float, chance: Chance) -> list[int]:
    """Show a part backwards."""
    length = max(3, round(count * (0.15 + 0.5 * strength)))
    begin = int(chance.integers(1, max(count - length, 2)))
    return [2 * begin + length - 1 - t if begin <= t < begin + length else t for t in range(count)]
