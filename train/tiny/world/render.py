"""Renders the requested frames of a clip with torch, each by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor

from train.tiny.world.grounds import picture as picture_of
from train.tiny.world.values import TICKS, ClipSpec, Shot, Stuff, Thing

_UNIT = 70  # background pixels for half of the shorter side, at scale 1
_RIM = 0.045  # width of a thing's dark rim


@torch.inference_mode()
def frames(clip: ClipSpec, positions: Sequence[float], size: tuple[int, int]) -> list[NDArray[np.uint8]]:
    """Render frames at times in ticks as RGB (height, width, 3). `size` is (width, height) in pixels."""
    drawn = (_draw_clip(clip, position, size) for position in positions)
    return [(picture[0] * 255 + 0.5).to(torch.uint8).permute(1, 2, 0).numpy() for picture in drawn]


def _draw_clip(clip: ClipSpec, time: float, size: tuple[int, int]) -> Tensor:
    """Render the view of the camera at a moment of the clip, (1, 3, height, width) in 0..1."""
    width, height = size
    unit = min(size) / 2
    x = ((torch.arange(width) + 0.5 - width / 2) / unit).view(1, 1, -1)
    y = ((torch.arange(height) + 0.5 - height / 2) / unit).view(1, -1, 1)
    shot = [shot for shot in clip.shots if not shot.start or shot.start <= math.floor(time + 0.5)][-1]
    moment = torch.tensor(time, dtype=torch.float32).view(1, 1, 1)
    picture = render_ground(shot, moment, x, y).contiguous()
    for thing in (clip.subject, clip.occluder):
        if thing is not None:
            rows, columns = _thing_area(thing, time, x, y, unit)
            there = picture[:, :, rows, columns]
            there.copy_(draw_thing(there, thing, moment, x[..., columns], y[:, rows], unit))
    return picture


def _thing_area(thing: Thing, time: float, x: Tensor, y: Tensor, unit: float) -> tuple[slice, slice]:
    """Return the rows and columns where a thing can be."""
    share, reach = time / (TICKS - 1), 1.25 * thing.radius
    spans: list[slice] = []
    for begin, end, least in ((thing.begin[1], thing.end[1], y[0, 0, 0]), (thing.begin[0], thing.end[0], x[0, 0, 0])):
        middle = begin + (end - begin) * share - float(least)
        first, last = math.floor((middle - reach) * unit) - 1, math.ceil((middle + reach) * unit) + 2
        spans.append(slice(max(first, 0), max(last, 0)))
    return (slice(None) if thing.form == "bar" else spans[0]), spans[1]


def render_ground(shot: Shot, moments: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Render the background, (n, 3, height, width). It is mirrored again and again beyond its edges."""
    ground = _ground(shot.ground.stuff, shot.ground.source)
    high, wide = ground.shape[-2:]
    camera = shot.camera
    pixels = _UNIT * camera.scale
    growth = torch.exp(-camera.zoom * moments)
    since = moments - (TICKS - 1) / 2
    u = camera.centre[0] * wide + pixels * (camera.pan[0] * since + x * growth)
    v = camera.centre[1] * high + pixels * (camera.pan[1] * since + y * growth)
    u, v = torch.broadcast_tensors(2 * u / wide - 1, 2 * v / high - 1)
    n, h, w = u.shape
    grid = torch.stack((-u if shot.ground.flip else u, v), dim=-1).reshape(1, n * h, w, 2)
    found = F.grid_sample(ground[None], grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    # Apply the background's order and gain of channels.
    gain = torch.tensor(shot.ground.gain).view(3, 1, 1, 1)
    return found.view(3, n, h, w)[list(shot.ground.order)].mul_(gain).clamp_(0, 1).transpose(0, 1)


def draw_thing(pictures: Tensor, thing: Thing, moments: Tensor, x: Tensor, y: Tensor, unit: float) -> Tensor:
    """Draw a thing into the pictures. Its edge is one pixel soft, its rim dark, its upper side lighter."""
    share = moments / (TICKS - 1)
    dx = x - (thing.begin[0] + (thing.end[0] - thing.begin[0]) * share)
    dy = y - (thing.begin[1] + (thing.end[1] - thing.begin[1]) * share)
    outside = _distance(thing, dx, dy)
    cover = (0.5 - outside * unit).clamp(0, 1)
    inner = ((-outside - _RIM) * unit + 0.5).clamp(0, 1)
    tone = (0.45 + 0.55 * inner) * (1 - 0.1 * dy / max(thing.radius, 0.1)).clamp(0.85, 1.1)
    colour = torch.tensor(thing.rgb).view(1, 3, 1, 1)
    return pictures + cover[:, None] * ((colour * tone[:, None]).clamp(0, 1) - pictures)


def _distance(thing: Thing, dx: Tensor, dy: Tensor) -> Tensor:
    """Return the distance of points from a thing's edge; it is negative inside."""
    if thing.form == "bar":
        return dx.abs() - thing.radius + 0 * dy
    if thing.form == "circle":
        return torch.hypot(dx, dy) - 0.9 * thing.radius
    c, s = math.cos(thing.angle), math.sin(thing.angle)
    u, v = dx * c + dy * s, dy * c - dx * s
    if thing.form == "square":
        return torch.maximum(u.abs(), v.abs()) - 0.8 * thing.radius
    if thing.form == "triangle":
        return torch.maximum(0.866 * u.abs() - 0.5 * v, v) - 0.55 * thing.radius
    # A star: its five equal arms folded onto half of one, whose edge is a straight line.
    fifth = math.tau / 5
    angle = torch.remainder(torch.atan2(u, -v) + fifth / 2, fifth) - fifth / 2
    far = torch.hypot(u, v)
    along, aside = far * torch.cos(angle), far * torch.sin(angle.abs())
    tip, notch = 1.15 * thing.radius, 0.5 * thing.radius
    nx, ny = notch * math.sin(fifth / 2), tip - notch * math.cos(fifth / 2)
    return ((along - tip) * nx + aside * ny) / math.hypot(nx, ny)


@lru_cache(maxsize=256)
def _ground(stuff: Stuff, source: str) -> Tensor:
    """Load a background's picture, (3, height, width) in 0..1."""
    picture = torch.from_numpy(np.array(picture_of(stuff, source)))
    return (picture.permute(2, 0, 1).to(torch.float32) / 255).contiguous()
