"""Measures of colour: how much there is, its detail and noise, where its edges lie, and how it changes in time."""

from __future__ import annotations

import math

import numpy as np

from vrt_lite.measures.arrays import Floats, Luma, average_tiles, halve, quantile, smooth

_NEUTRAL = 0.04
"""Colour over luma; less is grey to the eye."""
_REACH = 8
"""So many pixels of the chroma planes its edges may lie beside those of the light."""
_STEEPEST = 40, 20
"""Gradients of light and of colour are clipped here."""
_TILE = 16


def measure_colours(y: Floats, blue: Luma, red: Luma) -> dict[str, float]:
    """Measure the colours of a picture from its light in levels, and the chroma planes at half the size."""
    light = halve(y)
    rows, columns = (min(lengths) for lengths in zip(light.shape, blue.shape, strict=True))
    light = light[:rows, :columns]
    planes = [plane[:rows, :columns].astype(np.float32) - 128 for plane in (blue, red)]
    return {**_measure_amounts(y[::4, ::4], planes), **_measure_detail(light, planes), **_measure_place(light, planes)}


def _measure_amounts(light: Floats, planes: list[Floats]) -> dict[str, float]:
    blue, red = (plane[::2, ::2] for plane in planes)
    rows, columns = (min(a, b) for a, b in zip(blue.shape, light.shape, strict=True))
    blue, red, light = blue[:rows, :columns], red[:rows, :columns], light[:rows, :columns]
    bright = light >= quantile(light, 0.95)
    shade = light + 16
    neutral = np.hypot(blue, red) < _NEUTRAL * shade
    return {
        "neutral": float(neutral.mean()),
        "saturation": quantile(np.hypot(blue, red), 0.95),
        "colours": math.hypot(float(blue.std()), float(red.std())),
        "cast": math.hypot(float(blue.mean()), float(red.mean())),
        "tint": math.hypot(quantile(blue / shade, 0.5), quantile(red / shade, 0.5)),
        "white_point": math.hypot(float(blue[bright].mean()), float(red[bright].mean())),
    }


def _measure_detail(light: Floats, planes: list[Floats]) -> dict[str, float]:
    fine = sum(np.abs(plane - smooth(plane)) for plane in planes)
    return {
        "colour_detail": math.log((float(np.mean(fine)) + 0.05) / (float(np.abs(light - smooth(light)).mean()) + 0.05)),
        "colour_noise": quantile(average_tiles(np.asarray(fine), _TILE), 0.2),
    }


def _measure_place(light: Floats, planes: list[Floats]) -> dict[str, float]:
    """Compare where the edges of colour lie with those of the light, along rows and along columns."""
    shift, lag = 0.0, 0.0
    places = np.arange(-_REACH, _REACH + 1)
    for plane in planes:
        for axis in (0, 1):
            edges, others = (
                np.minimum(np.abs(np.diff(each.swapaxes(0, axis)[:, ::2], axis=0)), most)
                for each, most in zip((light, plane), _STEEPEST, strict=True)
            )
            likeness = _correlate_along(edges - edges.mean(), others - others.mean())
            peaks = np.maximum(likeness - np.median(likeness), 0)
            shift += abs(float(peaks @ places)) / (float(peaks.sum()) + 0.02) / 4
            lag += float(likeness.max() - likeness[_REACH]) / 4
    return {"colour_shift": shift, "colour_lag": lag}


def _correlate_along(one: Floats, two: Floats) -> Floats:
    """Return the correlation with `two` moved along the first axis by each of the places."""
    length = len(one)
    if length <= 2 * _REACH:
        return np.zeros(2 * _REACH + 1)
    middle = np.ascontiguousarray(one[_REACH : length - _REACH]).ravel()
    two = np.ascontiguousarray(two)
    norm = math.sqrt(float(middle @ middle) * float(np.vdot(two, two)) + 1e-3)
    found = [middle @ two[at : at + length - 2 * _REACH].ravel() for at in range(2 * _REACH + 1)]
    return np.array(found, np.float64) / norm


def measure_colour_changes(colours: Floats) -> dict[str, float]:
    """Measure how the mean colour changes in time: (frames, 2) in levels of the chroma planes."""
    bends = colours[1:-1] - (colours[:-2] + colours[2:]) / 2
    return {
        "colour_drift": math.hypot(*colours.std(0)),
        "colour_flicker": math.hypot(*np.abs(bends).mean(0)) if len(bends) else 0.0,
    }
