"""Where each part of a small picture moves to: Lucas and Kanade (IJCAI 1981), from coarse to fine."""

from __future__ import annotations

from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from vrt_lite.measures.arrays import Floats, blur, halve

_SMALLEST: Final = 12
"""Rows or columns of the coarsest pictures, at least."""
_LEVELS, _ROUNDS = 4, 3
_WINDOW = 2.0
"""Standard deviation of the window in which motion is one, in pixels."""
_STIFFNESS = 4.0
"""Squared levels: where there is less texture than this, the motion is that of the coarser picture."""
_LONGEST_STEP = 1.5


def find_flow(before: Floats, after: Floats) -> Floats:
    """Return the motion of stacks (pairs, rows, columns) in pixels, down and right: (2, pairs, rows, columns)."""
    stacks = [(before, after)]
    while len(stacks) < _LEVELS and min(stacks[-1][0].shape[1:]) // 2 >= _SMALLEST:
        one, two = stacks[-1]
        stacks.append((halve(one), halve(two)))
    flow = np.zeros((2, *stacks[-1][0].shape), np.float32)
    for one, two in reversed(stacks):
        flow = _refine(one, two, _enlarge(flow, one.shape[1:]))
    return flow


def _refine(before: Floats, after: Floats, flow: Floats) -> Floats:
    """Return a better motion of one level: where what is left of the difference is explained by the gradients."""
    down, across = (np.gradient(before, axis=axis).astype(np.float32) for axis in (1, 2))
    yy, xx, xy = blur(np.stack((down * down, across * across, down * across)), _WINDOW)
    yy, xx = yy + _STIFFNESS, xx + _STIFFNESS
    scale = 1 / (yy * xx - xy * xy)
    for _ in range(_ROUNDS):
        left = before - warp(after, flow)
        y, x = blur(np.stack((left * down, left * across)), _WINDOW)
        step = np.stack(((xx * y - xy * x) * scale, (yy * x - xy * y) * scale))
        flow = flow + step.clip(-_LONGEST_STEP, _LONGEST_STEP)
    return flow


def warp(pictures: Floats, flow: Floats) -> Floats:
    """Return pictures as they look when each pixel is fetched from where its motion leads."""
    rows, columns = pictures.shape[1:]
    y = (np.arange(rows, dtype=np.float32)[:, None] + flow[0]).clip(0, rows - 1.001)
    x = (np.arange(columns, dtype=np.float32) + flow[1]).clip(0, columns - 1.001)
    top, left = y.astype(np.int32), x.astype(np.int32)
    y -= top
    x -= left
    flat = pictures.reshape(-1)
    at = np.arange(len(pictures), dtype=np.int32)[:, None, None] * (rows * columns) + top * columns + left
    upper = flat[at] * (1 - x) + flat[at + 1] * x
    lower = flat[at + columns] * (1 - x) + flat[at + columns + 1] * x
    return upper * (1 - y) + lower * y


def without_camera(flow: Floats) -> Floats:
    """Return the motion less that of the whole picture, an affine one, fitted robustly."""
    _, pairs, rows, columns = flow.shape
    y, x = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij")
    plane = np.stack((np.ones_like(y), y, x), axis=-1).reshape(-1, 3)
    moved = flow.reshape(2, pairs, -1).astype(np.float64)
    weights = np.ones((pairs, rows * columns))
    left = moved
    for _ in range(4):
        weighted = weights[:, :, None] * plane
        normal = np.einsum("pni,nj->pij", weighted, plane) + 1e-3 * np.eye(3)
        sums: NDArray[np.float64] = np.einsum("dpn,pni->dpi", moved, weighted)
        fitted = cast("NDArray[np.float64]", np.linalg.solve(normal[None], sums[..., None]))[..., 0]
        left = moved - np.einsum("ni,dpi->dpn", plane, fitted)
        size = np.hypot(*left)
        weights = 1 / (1 + (size / (np.median(size, axis=1, keepdims=True) + 0.02)) ** 2)
    return left.reshape(flow.shape).astype(np.float32)


def _enlarge(flow: Floats, shape: tuple[int, ...]) -> Floats:
    """Scale a coarser level's motion to the next: both its grid and its lengths."""
    rows, columns = flow.shape[-2:]
    if (rows, columns) == shape:
        return flow
    for axis, (length, wanted) in ((-2, (rows, shape[0])), (-1, (columns, shape[1]))):
        at = ((np.arange(wanted) + 0.5) * length / wanted - 0.5).clip(0, length - 1.001)
        low = at.astype(int)
        share = np.expand_dims((at - low).astype(np.float32), -1) if axis == -2 else (at - low).astype(np.float32)
        flow = np.take(flow, low, axis) * (1 - share) + np.take(flow, np.minimum(low + 1, length - 1), axis) * share
    return flow * np.array([shape[0] / rows, shape[1] / columns], np.float32)[:, None, None, None]
