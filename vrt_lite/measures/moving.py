"""Measures of frames in order, from their thumbnails: holds, jumps, echoes, light, detail in time, camera and flow."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from vrt_lite.measures.arrays import Floats, average_cells, blur, halve, longest_run, quantile, resize, split
from vrt_lite.measures.camera import find_path
from vrt_lite.measures.flow import find_flow, warp, without_camera

_Series = NDArray[np.float64]

_CELLS, _TILES, _LIGHTS = (8, 14), (10, 18), (9, 16)
"""Rows and columns of cells of a landscape picture: for detail, for changes, and for light."""
_UNCHANGED, _UNCHANGED_SHARE = (0.25, 5.0), 0.12
"""A frame may repeat the one before if no tile changes by more than this share of the usual, within these levels."""
_SHORT_HOLD, _LONG_UNCHANGED = 3, 2.0
"""In a hold of more frames a codec has the time to come to rest: its frames change by fewer levels than this."""
_STILL, _SUDDEN = 0.6, 0.25
"""Beside repeats, some tile changes by more levels than this, and the repeats change by less than this share of it."""
_SAME = 0.06
"""Levels of mean difference; below, two frames are the same for every eye."""
_NEIGHBOURS, _SPANS = 6, 6
"""So many flows are measured between near frames, and between frames farther apart."""
_NEAR_SECONDS, _FAR_SECONDS = 1 / 24, 0.3
_FLOW_PIXELS = 6000
_SPOT = 0.97
"""Of the cells of a picture, the share that is not a spot: a face, a hand, a small thing."""
_FIXED = 0.8
"""An edge is steady if its mean over time has at least this share of its usual size."""


def measure_run(pictures: Floats, seconds: _Series) -> dict[str, float]:
    """Measure thumbnails (frames, rows, columns) in levels of 255, shown at these times. One picture is enough."""
    count = len(pictures)
    interval = (seconds[-1] - seconds[0]) / (count - 1) if count > 1 else 1.0
    change = _find_change(pictures)
    repeated = find_repeated(_find_most_changed(pictures), interval)
    fresh = change[~repeated] if (~repeated).sum() > 2 else change
    return {
        **_measure_holds(repeated, change, seconds, interval),
        **_measure_changes(change, fresh),
        **_measure_echoes(pictures, interval),
        **_measure_light(pictures),
        **_measure_fine(pictures),
        **_measure_camera(pictures, seconds, repeated, interval),
        **_measure_flow(pictures, interval),
        **_measure_fixed_edges(pictures),
    }


def _find_change(pictures: Floats) -> _Series:
    """Return the mean difference of each frame from the one before."""
    parts = [np.abs(np.diff(part, axis=0)).mean((1, 2)) for part in split(pictures, overlap=1)]
    return np.concatenate(parts).astype(np.float64)


def _find_most_changed(pictures: Floats) -> Floats:
    """Return the difference of each frame from the one before in the tile that changes most, in even light.

    Otherwise all else would stand still beside a flash.
    """
    light = pictures.mean((1, 2), keepdims=True)
    gains = (light.mean() + 8) / (light + 8)
    tiles, found = _turned(_TILES, pictures), list[Floats]()
    for part, gain in zip(split(pictures, overlap=1), split(gains, overlap=1), strict=True):
        found.append(average_cells(np.abs(np.diff(part * gain, axis=0)), tiles).max((1, 2)))
    return np.concatenate(found)


def _turned(cells: tuple[int, int], pictures: Floats) -> tuple[int, int]:
    return cells if pictures.shape[2] >= pictures.shape[1] else (cells[1], cells[0])


def find_repeated(largest: NDArray[np.floating], interval: float) -> NDArray[np.bool_]:
    """Return whether each frame but the first repeats the one before, from the change of its most changed tile.

    After Wolf, "A no reference and reduced reference metric for detecting dropped video frames", NTIA TM-09-456
    (2008): next to no motion, by itself or beside what is usual. What comes to rest slowly repeats nothing: motion
    must end or begin at once.
    """
    if not largest.size:
        return np.zeros(0, np.bool_)
    usual = float(np.median(largest[largest >= 0.25 * quantile(largest, 0.97)]))
    reach = max(2, round(0.4 / interval))
    nearby = sliding_window_view(np.pad(largest, reach, mode="edge"), 2 * reach + 1).max(1)
    quiet = largest < (_UNCHANGED_SHARE * np.maximum(usual, nearby)).clip(*_UNCHANGED)
    edges = np.flatnonzero(np.diff(np.r_[False, quiet, False].astype(np.int8)))
    repeated = np.zeros(len(largest), np.bool_)
    for begin, end in edges.reshape(-1, 2).tolist():
        beside = max(largest[begin - 1] if begin else 0.0, largest[end] if end < len(largest) else 0.0)
        least = _SUDDEN * beside if end - begin <= _SHORT_HOLD else min(_SUDDEN * beside, _LONG_UNCHANGED)
        repeated[begin:end] = beside >= _STILL and quantile(largest[begin:end], 0.75) < least
    return repeated


def _measure_holds(repeated: NDArray[np.bool_], change: _Series, seconds: _Series, interval: float) -> dict[str, float]:
    began, length = longest_run(repeated)
    return {
        "frozen": float(seconds[began + length] - seconds[began]),
        "repeated": 100 * float(repeated.mean()) if len(repeated) else 0.0,
        "same": float((change < _SAME).mean()) if len(change) else 0.0,
        "interval": math.log((seconds[-1] - seconds[0] + interval) / max((~repeated).sum() + 1, 1)),
    }


def _measure_changes(change: _Series, fresh: _Series) -> dict[str, float]:
    if len(change) < 3:
        return dict.fromkeys(("change", "unevenness", "alternation", "jump", "lone_jump"), 0.0)
    middle = float(np.median(fresh)) + 0.15
    around = np.maximum(np.r_[change[1], change[:-1]], np.r_[change[1:], change[-2]]) + 0.15
    return {
        "change": float(change.mean()),
        "unevenness": float(fresh.std() / (fresh.mean() + 0.1)),
        "alternation": float(np.abs(np.diff(change)).mean() / (change.mean() + 0.1)),
        "jump": float(np.sort(fresh)[::-1][min(len(fresh) - 1, 2)]) / middle,
        "lone_jump": float((change / around).max()),
    }


def _measure_echoes(pictures: Floats, interval: float) -> dict[str, float]:
    """Compare all pairs of frames by their high-passed halves."""
    count = len(pictures)
    if count < 7:
        return {"echo": 0.0, "return": 1.0, "detour": 0.0}
    halves = [halve(part) for part in split(pictures)]
    flat = np.concatenate([half - blur(half, 4.0) for half in halves]).reshape(count, -1)
    steps = np.diff(flat, axis=0)
    products = steps @ steps.T
    power = np.diagonal(products)
    real = power > 0.02 * np.median(power) + 1e-6
    rho: list[float] = []
    for lag in range(1, min(count - 3, max(4, round(0.9 / interval))) + 1):
        both = real[lag:] & real[:-lag]
        norm = float(np.sqrt(power[lag:] * power[:-lag])[both].sum()) + 1e-3
        rho.append(float(np.diagonal(products, lag)[both].sum()) / norm)
    whole = flat @ flat.T
    energy = np.diagonal(whole)
    distance = np.maximum(energy[:, None] + energy[None] - 2 * whole, 0) / flat.shape[1]
    return {
        "echo": max(rho[3:], default=0.0),
        "return": _find_return(distance, interval),
        "detour": math.log(
            (float(np.diagonal(distance, 2).mean()) + 0.05) / (float(power.mean()) / flat.shape[1] + 0.05)
        ),
    }


def _find_return(distance: Floats, interval: float) -> float:
    """Return how like each other the frames before and after a turn of time are: 1 for none, 0 for a reversal."""
    count = len(distance)
    reach = min(max(3, round(0.25 / interval)), (count - 1) // 2)
    lags = np.arange(1, reach + 1)
    turns = np.arange(reach, count - reach)
    across = np.array([distance[turns - lag, turns + lag] for lag in lags]).sum(0)
    usual = float(np.median(across)) + 0.02 * reach
    near = np.array([distance[turns, turns + lag] + distance[turns, turns - lag] for lag in lags]).sum(0)
    moving = near > 0.25 * np.median(near)
    return float((across[moving] + 0.02 * reach).min() / usual) if moving.any() else 1.0


def _measure_light(pictures: Floats) -> dict[str, float]:
    """Van Roosmalen, "Restoration of archived film and video", TU Delft 1999: the change against both neighbours."""
    if len(pictures) < 3:
        return {"flicker": 0.0, "local_flicker": 0.0, "spot_light": 0.0}
    light = average_cells(pictures, _turned(_LIGHTS, pictures)).reshape(len(pictures), -1)
    levels = light[1:-1] - (light[:-2] + light[2:]) / 2
    shades = np.log(np.maximum(light, 0) + 6)  # a damaged picture may be darker than black
    bends = shades[1:-1] - (shades[:-2] + shades[2:]) / 2
    common = np.median(bends, axis=1, keepdims=True)
    return {
        "flicker": float(np.abs(np.median(levels, axis=1)).mean()),
        "local_flicker": float(np.abs(bends - common).mean()),
        "spot_light": _find_drift(shades),
    }


def _measure_fine(pictures: Floats) -> dict[str, float]:
    """Follow the fine detail of cells over time."""
    count = len(pictures)
    cells = np.concatenate([_find_fine(part) for part in split(pictures)])
    part = max(1, count // 6)
    found = {
        "fine": float(cells.mean()),
        "fading": abs(float(cells[-part:].mean() - cells[:part].mean())),
        "boiling": 0.0,
        "pulse": 0.0,
        "largest_pulse": 0.0,
        "vanishing": 0.0,
    }
    if count > 2:
        bends = cells[1:-1] - (cells[:-2] + cells[2:]) / 2
        pulses = np.abs(bends.mean(1))
        found |= {"boiling": float(np.median(np.abs(bends))), "pulse": float(pulses.mean())}
        found["largest_pulse"] = float(pulses.max())
    if count > 5:
        found["vanishing"] = float(np.quantile(np.abs(cells[4:] - cells[:-4]), 0.9, axis=1).max())
    return found


def _find_drift(cells: NDArray[np.floating]) -> float:
    """Return by how much a few of the cells (frames, cells) change in time, beside what all cells share."""
    alone = cells - np.median(cells, axis=1, keepdims=True)
    return float(np.quantile(alone.std(0), _SPOT))


def _find_fine(pictures: Floats) -> Floats:
    """Return the log of the fine detail of each cell, (frames, cells)."""
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1)), mode="edge")
    around = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    fine = average_cells(np.abs(pictures - around / 4), _turned(_CELLS, pictures))
    return np.log(fine.reshape(len(pictures), -1) + 0.25)


def _measure_camera(
    pictures: Floats, seconds: _Series, repeated: NDArray[np.bool_], interval: float
) -> dict[str, float]:
    """Measure the path of the picture over the frames that are not repeats, in % of the longer side."""
    fresh = np.flatnonzero(np.r_[True, ~repeated]) if len(pictures) > 1 else np.zeros(1, int)
    if len(fresh) < 4:
        return {"shake": 0.0, "jerk": 0.0, "zigzag": 0.0}
    frames = np.diff(seconds[fresh]) / interval
    speed = 100 * find_path(pictures, fresh) / max(pictures.shape[1:]) / np.maximum(frames, 1)[:, None]
    turns = np.diff(speed, axis=0)
    return {
        "shake": float(np.hypot(*turns.T).mean()),
        "jerk": float(np.median(np.abs(turns))),
        "zigzag": float((speed[1:] * speed[:-1]).sum() / ((speed * speed).sum() + 1e-3)),
    }


def _measure_flow(pictures: Floats, interval: float) -> dict[str, float]:
    """Measure what is left of the motion without the camera's, between near and far frames, in % of the longer side."""
    count, rows, columns = pictures.shape
    names = ("near_flow", "near_change", "far_flow", "far_twist", "far_change", "wavering")
    names += ("spot_motion", "spot_wavering")
    found: dict[str, float] = dict.fromkeys(names, 0.0)
    scale = min(1.0, math.sqrt(_FLOW_PIXELS / (rows * columns)))
    size = (max(round(rows * scale), 8), max(round(columns * scale), 8))
    unit = 100 / max(size)
    near, far = max(1, round(_NEAR_SECONDS / interval)), max(2, round(_FAR_SECONDS / interval))
    if count > 2 * near:
        starts = _spread(count - 2 * near, _NEIGHBOURS)
        first, middle, last = (resize(pictures[starts + k * near], size) for k in range(3))
        flow, left_over = _find_left_over(first, middle)
        _, later = _find_left_over(middle, last)
        found["near_flow"] = unit * float(np.median(np.quantile(np.hypot(*left_over), 0.3, axis=(1, 2))))
        found["near_change"] = float(np.abs(first - warp(middle, flow)).mean())
        found["wavering"] = unit * float(np.abs(later - left_over).mean())
        found["spot_wavering"] = unit * _find_spot(np.hypot(*(later - left_over)))
    far = min(far, count - 1)
    if far >= 2:
        starts = _spread(count - far, _SPANS)
        first, last = resize(pictures[starts], size), resize(pictures[starts + far], size)
        flow, left_over = _find_left_over(first, last)
        twist = np.abs(np.diff(left_over[1], axis=2)).mean((1, 2)) + np.abs(np.diff(left_over[0], axis=1)).mean((1, 2))
        found["far_flow"] = unit * float(np.median(np.quantile(np.hypot(*left_over), 0.3, axis=(1, 2))))
        found["far_twist"] = float(np.median(twist))
        found["far_change"] = float(np.median(np.abs(first - warp(last, flow)).mean((1, 2))))
        found["spot_motion"] = unit * _find_spot(np.hypot(*left_over))
    return found


def _find_spot(values: Floats) -> float:
    """Return the mean of the cell that nearly all cells have less than, of the median pair."""
    cells = average_cells(values, _turned(_CELLS, values)).reshape(len(values), -1)
    return float(np.median(np.quantile(cells, _SPOT, axis=1)))


def _find_left_over(before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the flow, and what is left of it without the camera's."""
    flow = find_flow(before, after)
    return flow, without_camera(flow)


def _spread(room: int, count: int) -> NDArray[np.int64]:
    """Return up to `count` different frames, evenly over the first `room`."""
    return np.array(sorted(set(np.linspace(0, room - 1, count).astype(np.int64).tolist())))  # np.unique imports more


def _measure_fixed_edges(pictures: Floats) -> dict[str, float]:
    """Measure edges that stay where they are: of an overlay over a moving picture, or of a logo in a corner."""
    sums = np.zeros((4, pictures.shape[1] - 1, pictures.shape[2] - 1))
    for part in split(pictures):
        across, down = np.diff(part, axis=2)[:, :-1], np.diff(part, axis=1)[:, :, :-1]
        sums += np.stack((across.sum(0), down.sum(0), np.abs(across).sum(0), np.abs(down).sum(0)))
    means = sums / len(pictures)
    steady = np.hypot(means[0], means[1])
    share = steady / (np.hypot(means[2], means[3]) + 1.5)
    fixed = np.where(share > _FIXED, steady, 0.0)
    rows, columns = (max(length // 3, 1) for length in fixed.shape)
    corners = [
        fixed[down, right]
        for down in (slice(rows), slice(-rows, None))
        for right in (slice(columns), slice(-columns, None))
    ]
    return {
        "fixed_edges": quantile(share, 0.95) - quantile(share, 0.5),
        "fixed_corner": max(quantile(corner, 0.95) for corner in corners),
    }
