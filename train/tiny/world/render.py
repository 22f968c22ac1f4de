"""Renders the requested frames of a clip with torch, on the CPU or a GPU.

On the CPU each frame is rendered alone, so that its bits do not depend on the other requested frames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor

from train.tiny.world.coding import encode_faults
from train.tiny.world.defects import CODECS, VISUAL, content_time, flicker_factor, jitter_offset, strength, tick_of
from train.tiny.world.effects import apply_fault
from train.tiny.world.grounds import picture as picture_of
from train.tiny.world.values import TICKS, ClipSpec, Shot, Stuff, Thing

_UNIT = 70  # background pixels for half of the shorter side, at scale 1
GHOST = 0.45
"""The weight of the ghost in a picture with ghosting."""
_RIM = 0.045  # width of a thing's dark rim


@torch.inference_mode()
def frames(
    clip: ClipSpec, positions: Sequence[float], size: tuple[int, int], *, device: str = "cpu"
) -> NDArray[np.uint8]:
    """Render frames at times in ticks as RGB (n, height, width, 3). `size` is (width, height) in pixels."""

    def film(times: Sequence[float]) -> NDArray[np.uint8]:
        step = 1 if device == "cpu" else max(1, len(times))
        drawn = (_render_pictures(clip, times[i : i + step], size, device) for i in range(0, len(times), step))
        levels = [(pictures * 255 + 0.5).to(torch.uint8).permute(0, 2, 3, 1) for pictures in drawn]
        return torch.cat(levels).cpu().numpy()

    return encode_faults(clip, positions, film)


def _render_pictures(clip: ClipSpec, positions: Sequence[float], size: tuple[int, int], device: str) -> Tensor:
    """Render pictures with all faults except those of a real encoder: (n, 3, height, width) in 0..1."""
    ticks = [tick_of(position) for position in positions]
    times = [content_time(clip, position) for position in positions]
    pictures = _draw_clip(clip, times, ticks, size, device)
    # Ghosting comes before the visual faults, as the light comes before the recording.
    for defect in sorted(clip.defects, key=lambda d: d.kind in VISUAL):
        there = [i for i, tick in enumerate(ticks) if defect.at(tick)]
        if defect.kind == "ghosting" and there:
            late = [times[i] - strength(defect) for i in there]
            ghost = _draw_clip(clip, late, [ticks[i] for i in there], size, device)
            pictures[there] = (1 - GHOST) * pictures[there] + GHOST * ghost
        elif defect.kind in VISUAL and defect.kind not in CODECS and there:
            pictures[there] = apply_fault(defect, pictures[there], [positions[i] for i in there])
    lights = [flicker_factor(clip, tick) for tick in ticks]
    if any(factor != 1 for factor in lights):
        pictures = (pictures * torch.tensor(lights, device=device).view(-1, 1, 1, 1)).clamp(0, 1)
    return pictures


def _draw_clip(
    clip: ClipSpec, times: Sequence[float], ticks: Sequence[int], size: tuple[int, int], device: str
) -> Tensor:
    """Render the view of the camera at moments of the clip. `ticks` select the jitter and the warping of a picture."""
    x, y = places(clip, ticks, size, device)
    pictures = torch.empty(len(times), 3, size[1], size[0], device=device)
    for number, shot in enumerate(clip.shots):
        following = clip.shots[number + 1].start if number + 1 < len(clip.shots) else math.inf
        since = -math.inf if number == 0 else shot.start
        there = [i for i, time in enumerate(times) if since <= tick_of(time) < following]
        if there:
            moments = torch.tensor([times[i] for i in there], device=device, dtype=torch.float32).view(-1, 1, 1)
            pictures[there] = render_ground(shot, moments, x[there], y[there], device)
    moments = torch.tensor(times, device=device, dtype=torch.float32).view(-1, 1, 1)
    unit = min(size) / 2
    for thing in (clip.subject, clip.occluder):
        if thing is not None:
            rows, columns = _thing_area(thing, times, x, y, unit)
            there = pictures[:, :, rows, columns]
            there.copy_(draw_thing(there, thing, moments, x[..., columns], y[:, rows], unit))
    return pictures


def _thing_area(thing: Thing, times: Sequence[float], x: Tensor, y: Tensor, unit: float) -> tuple[slice, slice]:
    """Return the rows and columns where a thing can be: all of them for several frames or a warped picture."""
    if len(times) > 1 or x.shape[-2] > 1:
        return slice(None), slice(None)
    share, reach = times[0] / (TICKS - 1), 1.25 * thing.radius
    spans: list[slice] = []
    for begin, end, least in ((thing.begin[1], thing.end[1], y[0, 0, 0]), (thing.begin[0], thing.end[0], x[0, 0, 0])):
        middle = begin + (end - begin) * share - float(least)
        first, last = math.floor((middle - reach) * unit) - 1, math.ceil((middle + reach) * unit) + 2
        spans.append(slice(max(first, 0), max(last, 0)))
    return (slice(None) if thing.form == "bar" else spans[0]), spans[1]


def places(clip: ClipSpec, ticks: Sequence[int], size: tuple[int, int], device: str) -> tuple[Tensor, Tensor]:
    """Return the x and y that each pixel shows, (n, height or 1, width or 1), in halves of the shorter side."""
    width, height = size
    unit = min(size) / 2
    thrown = torch.tensor([jitter_offset(clip, tick) for tick in ticks], device=device, dtype=torch.float32)
    x = (torch.arange(width, device=device) + 0.5 - width / 2) / unit - thrown[:, 0].view(-1, 1, 1)
    y = (torch.arange(height, device=device).view(-1, 1) + 0.5 - height / 2) / unit - thrown[:, 1].view(-1, 1, 1)
    for defect in clip.defects:
        if defect.kind == "warping" and any(defect.at(tick) for tick in ticks):
            amount = torch.tensor([strength(defect) * defect.at(tick) for tick in ticks], device=device).view(-1, 1, 1)
            phase = torch.tensor([(defect.seed + 1.9 * tick) % math.tau for tick in ticks], device=device)
            phase = phase.view(-1, 1, 1)
            x, y = x + amount * torch.sin(6.0 * y + phase), y + amount * torch.sin(5.0 * x + 1.7 * phase)
    return x, y


def render_ground(shot: Shot, moments: Tensor, x: Tensor, y: Tensor, device: str) -> Tensor:
    """Render the background, (n, 3, height, width). It is mirrored again and again beyond its edges."""
    ground = _ground(shot.ground.stuff, shot.ground.source, device)
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
    gain = torch.tensor(shot.ground.gain, device=device).view(3, 1, 1, 1)
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
    colour = torch.tensor(thing.rgb, device=pictures.device).view(1, 3, 1, 1)
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
def _ground(stuff: Stuff, source: str, device: str) -> Tensor:
    """Load a background's picture to a device, (3, height, width) in 0..1."""
    picture = torch.from_numpy(np.array(picture_of(stuff, source)))
    return (picture.permute(2, 0, 1).to(torch.float32) / 255).contiguous().to(device)
