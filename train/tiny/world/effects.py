"""Applies visual faults to pixels: tensors (n, 3, height, width) of light in 0..1, on any device.

A fault of a region changes no pixel outside it. Lengths are relative to the picture's shorter side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from train.tiny.world.defects import strength
from train.tiny.world.values import Defect

_BLOCK = 8 / 70  # a block's side in halves of the shorter side: 8 pixels of 140
_HALO = 0.02
_MIST = 0.82
_BOX, _LINE, _FEWER = 3.5, 5.0, 2.2
"""Sizes of a box, of a line and of the pixels of a smaller picture, in standard deviations of a similar Gaussian."""


def apply_fault(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    """Apply a fault to pictures. `positions` are their times in ticks, on which the grain of noise depends."""
    changed = _EFFECTS[defect.kind](defect, pictures, positions).clamp(0, 1)
    if defect.region is None:
        return changed
    height, width = pictures.shape[-2:]
    left, top, right, bottom = defect.region
    rows, columns = slice(round(top * height), round(bottom * height)), slice(round(left * width), round(right * width))
    whole = pictures.clone()
    whole[..., rows, columns] = changed[..., rows, columns]
    return whole


def blur_pictures(pictures: Tensor, deviation: float) -> Tensor:
    """Blur pictures with a Gaussian; `deviation` is in halves of the shorter side."""
    sigma = deviation * min(pictures.shape[-2:]) / 2
    reach = max(1, math.ceil(2.5 * sigma))
    taps = torch.arange(-reach, reach + 1, dtype=torch.float32)
    kernel = torch.exp(-0.5 * (taps / sigma) ** 2)
    kernel = (kernel / kernel.sum()).to(pictures.device)
    padded = F.pad(pictures, (reach, reach, reach, reach), mode="replicate")
    across = F.conv2d(padded, kernel.view(1, 1, 1, -1).expand(3, 1, 1, -1), groups=3)
    return F.conv2d(across, kernel.view(1, 1, -1, 1).expand(3, 1, -1, 1), groups=3)


def sharpen_pictures(pictures: Tensor, gain: float) -> Tensor:
    """Add what a blur takes away, times `gain`: an unsharp mask. The result may be outside of 0..1."""
    return pictures + gain * (pictures - blur_pictures(pictures, _HALO))


def _blur(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    """Blur with a Gaussian, with a box, along one direction, or by fewer pixels; the seed chooses."""
    deviation = strength(defect)
    sigma = deviation * min(pictures.shape[-2:]) / 2
    match defect.seed % 6:
        case 3:
            return _average(pictures, rows=sigma * _BOX, columns=sigma * _BOX)
        case 4:
            return _average(pictures, rows=1 if defect.seed // 6 % 2 else sigma * _LINE, columns=sigma * _LINE)
        case 5:
            height, width = pictures.shape[-2:]
            fewer = (max(2, round(height / (sigma * _FEWER + 1))), max(2, round(width / (sigma * _FEWER + 1))))
            small = F.interpolate(pictures, size=fewer, mode="area")
            return F.interpolate(small, size=(height, width), mode="bilinear", align_corners=False)
        case _:
            return blur_pictures(pictures, deviation)


def _average(pictures: Tensor, *, rows: float, columns: float) -> Tensor:
    """Average over a window of so many pixels, rounded up to odd numbers."""
    high, wide = (2 * math.ceil((length - 1) / 2) + 1 for length in (rows, columns))
    padded = F.pad(pictures, (wide // 2, wide // 2, high // 2, high // 2), mode="replicate")
    return F.avg_pool2d(padded, (high, wide), stride=1)


def _noise(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    """Add grain that differs from frame to frame, and is the same each time a frame is rendered.

    The grain has colours, or is grey, or coarse; the seed chooses.
    """
    kind = defect.seed % 4
    height, width = pictures.shape[-2:]
    shape = (1 if kind == 1 else 3, height, width) if kind != 2 else (3, -(-height // 2), -(-width // 2))
    grains: list[Tensor] = []
    for position in positions:
        chance = torch.Generator().manual_seed(defect.seed * 65_536 + round(position * 1024))
        grains.append(torch.randn(shape, generator=chance))
    grain = torch.stack(grains).to(pictures.device)
    if kind == 2:
        grain = grain.repeat_interleave(2, -1).repeat_interleave(2, -2)[..., :height, :width]
    return pictures + strength(defect) * grain


def _blocks(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    height, width = pictures.shape[-2:]
    side = max(2, round(_BLOCK * min(height, width) / 2))
    means = F.avg_pool2d(pictures, side, ceil_mode=True, count_include_pad=False)
    flat = means.repeat_interleave(side, -1).repeat_interleave(side, -2)[..., :height, :width]
    return pictures + strength(defect) * (flat - pictures)


def _banding(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    steps = strength(defect)
    return (pictures * steps).round() / steps


def _haze(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    return pictures + strength(defect) * (_MIST - pictures)


def _sharpening(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    return sharpen_pictures(pictures, strength(defect))


def _colour(defect: Defect, pictures: Tensor, positions: Sequence[float]) -> Tensor:
    """Add a colour cast: one side of the colour wheel gains what the other loses."""
    angles = [defect.seed % 6 * math.pi / 3 + 2 * math.pi / 3 * channel for channel in range(3)]
    gains = torch.tensor([1 + strength(defect) * math.cos(angle) for angle in angles], device=pictures.device)
    return pictures * gains.view(3, 1, 1)


_EFFECTS: dict[str, Callable[[Defect, Tensor, Sequence[float]], Tensor]] = {
    "blur": _blur,
    "noise": _noise,
    "blocks": _blocks,
    "banding": _banding,
    "haze": _haze,
    "sharpening": _sharpening,
    "colour": _colour,
}
