"""Measures of single pictures at their stored resolution, and of pairs of neighbours: detail, codes, colours, grids."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.measures.arrays import Floats, Luma, average_tiles, correlate, halve, quantile, smooth
from vrt_lite.measures.colours import measure_colours
from vrt_lite.measures.sharpness import estimate_noise, measure_sharpness

WINDOW = (640, 352)
WHOLE_PIXELS = 300_000
"""A picture of no more pixels is measured whole; else a window of about this size, that begins at whole blocks."""
PLACES = ((0.5, 0.5), (0.15, 0.15), (0.15, 0.85), (0.85, 0.15), (0.85, 0.85))
"""Where the window of each picture lies, as shares of the room: (down, right)."""
_BLOCK, _TILE = 8, 16
_ROWS = 360
"""Sharpness and noise are measured at about this many rows, so that clips of different sizes can be compared."""
_STEEPEST = 40
"""Gradients are clipped here, so that a few strong edges do not outweigh the texture."""
_STEEP = 20
"""Levels between two pixels: the steepest edges."""
_SEAM = 0.5
"""An edge has a seam if the picture swings back by more than this share of its step."""
_QUIET, _BUSY, _EVEN = 0.4, 8.0, 0.4
"""Levels of the mean step in tiles of middle contrast; how even the steps are in a picture without such tiles."""
_RUN = 3
_BAND_STEP = 16
"""The largest step of a band, in codes; a larger one is an object's edge."""
_COMB = 36
_AROUND = 4


@dataclass(frozen=True, slots=True)
class Window:
    """A part of one picture as it is stored: luma, both colour differences at half the size, and the scaled picture.

    `scale` turns a code of luma, less `black`, into levels of 255.
    """

    luma: Luma
    blue: Luma
    red: Luma
    scaled: Luma
    black: int
    scale: float


def find_window(rows: int, columns: int, number: int) -> tuple[slice, slice]:
    """Return the rows and columns of the `number`-th window; the corner is at a multiple of 16."""
    if rows * columns <= WHOLE_PIXELS:
        return slice(0, rows), slice(0, columns)
    width, height = WINDOW if columns >= rows else WINDOW[::-1]
    height, width = min(height, rows), min(width, columns)
    down, right = PLACES[number % len(PLACES)]
    top, left = int((rows - height) * down) // _TILE * _TILE, int((columns - width) * right) // _TILE * _TILE
    return slice(top, top + height), slice(left, left + width)


def scale_down(luma: Luma) -> Luma:
    """Return the picture averaged to about 360 rows on its shorter side."""
    factor = max(1, round(min(luma.shape) / _ROWS))
    return luma.copy() if factor == 1 else np.asarray(Image.fromarray(luma).reduce(factor))


def measure_still(window: Window) -> dict[str, float]:
    """Measure one picture."""
    y = (window.luma.astype(np.float32) - window.black) * np.float32(window.scale)
    levels = np.rint((window.scaled.astype(np.float32) - window.black) * window.scale).astype(np.int16)
    noise = estimate_noise(levels)
    return {
        "sharpness": measure_sharpness(levels, noise),
        "noise": noise,
        **_measure_gradients(y),
        **_measure_detail(y),
        "evenness": _measure_evenness(y),
        **_measure_bands(window.luma.astype(np.int16)),
        **_measure_codes(window),
        **measure_colours(y, window.blue, window.red),
    }


def measure_neighbours(one: Luma, two: Luma) -> dict[str, float]:
    """Measure what changes between two neighbouring frames, in the same window."""
    change = np.abs(one.astype(np.int16) - two)
    tiles = average_tiles(change, _TILE)
    return {
        "block_change": math.log((quantile(tiles, 0.97) + 0.3) / (quantile(tiles, 0.6) + 0.3)),
        "grid_change": _find_grid(np.minimum(np.abs(np.diff(change, axis=1)), _STEEPEST).mean(0), _TILE, 0.1),
        "quiet_change": quantile(change[::2, ::3], 0.2) + float((change > 0).mean()),
    }


def _measure_gradients(y: Floats) -> dict[str, float]:
    across, down = np.diff(y, axis=1), np.diff(y, axis=0)
    found: dict[str, float] = {}
    clipped = across.clip(-_STEEPEST, _STEEPEST), np.ascontiguousarray(down.clip(-_STEEPEST, _STEEPEST).T)
    energies = [correlate(part, part) + 0.05 for part in clipped]
    for gap in range(1, 5):
        shares = [correlate(p[:, :-gap], p[:, gap:]) / e for p, e in zip(clipped, energies, strict=True)]
        found[f"gradient_{gap}"] = sum(shares) / 2
    halos = [_measure_halo(part) for part in (across, np.ascontiguousarray(down.T))]
    found["halo"], found["seams"] = (sum(values) / 2 for values in zip(*halos, strict=True))
    flat_across, flat_down = np.minimum(np.abs(across), 24), np.minimum(np.abs(down), 24)
    lines = (flat_across.mean(0), flat_down.mean(1))
    found["blockiness"] = math.exp(max(_find_grid(line, _BLOCK, 0.15) for line in lines))
    found["grid_16"] = sum(_find_grid(line, _TILE, 0.15) for line in lines) / 2
    found["comb"] = _find_comb(down, across.T)
    found["wide_comb"] = _find_comb(np.diff(y[::2], axis=0), np.diff(y[:, ::2], axis=1).T)
    found["steps"] = min(_find_steps(part) for part in (np.abs(down).mean(1), np.abs(across).mean(0)))
    return found


def _find_comb(down: Floats, across: Floats) -> float:
    """Return the log of how many steps turn back from row to row, over those that do from column to column."""
    turns = [float((part[:-1] * -part[1:] > _COMB).mean()) + 0.003 for part in (down, across)]
    return math.log(turns[0] / turns[1])


def _find_steps(changes: Floats) -> float:
    """Return the log of the smallest changes from line to line beside those around: low where lines are repeated."""
    around = sliding_window_view(np.pad(changes, _AROUND, mode="edge"), 2 * _AROUND + 1).mean(1)
    return math.log(float(np.quantile((changes + 0.05) / (around + 0.05), 0.1)) + 0.02)


def _measure_halo(steps: Floats) -> tuple[float, float]:
    """Return how far the picture swings back beside its steep edges, and at how many of them it does.

    The first is the mean over two and three pixels away, as a share of the step. Sharpening too much leaves a dark and
    a bright seam beside each edge.
    """
    middle = steps[:, 3:-3]
    beside = steps[:, 1:-5] + steps[:, :-6] + steps[:, 5:-1] + steps[:, 6:]
    steep = np.abs(middle) > _STEEP
    if not steep.any():
        return 0.0, 0.0
    sizes = np.abs(middle[steep])
    back = -beside[steep] * np.sign(middle[steep])
    return float(back.sum() / sizes.sum()), float((back > _SEAM * sizes).mean())


def _find_grid(steps: NDArray[np.floating], side: int, floor: float) -> float:
    """Return the log of how much larger the mean step at the edges of blocks is than elsewhere."""
    whole = len(steps) // side * side
    if not whole:
        return 0.0
    phases = steps[:whole].reshape(-1, side).mean(0)
    inside = np.delete(phases, (_BLOCK - 1, side - 1))
    return math.log((phases[-1] + floor) / (float(np.median(inside)) + floor))


def _measure_detail(y: Floats) -> dict[str, float]:
    fine = np.abs(y - smooth(y))
    half = halve(y)
    tiles = average_tiles(fine, _TILE)
    coarse = np.abs(half - smooth(half))
    bend = np.abs(4 * y[1:-1, 1:-1] - y[:-2, 1:-1] - y[2:, 1:-1] - y[1:-1, :-2] - y[1:-1, 2:])
    return {
        "detail": quantile(tiles, 0.9),
        "texture": quantile(tiles, 0.4),
        "detail_slope": math.log((fine.mean() + 0.05) / (coarse.mean() + 0.05)),
        "edges": quantile(bend[::3, ::2], 0.95),
    }


def _measure_evenness(y: Floats) -> float:
    """Return the squared mean over the mean square of the steps in tiles of middle contrast.

    Where light was rounded to few levels, or texture smoothed over, few large steps stand beside many small ones.
    """
    shares: list[float] = []
    for steps in (np.diff(y, axis=1), np.diff(y, axis=0)):
        sizes = np.minimum(np.abs(steps), _STEEPEST)
        means, squares = average_tiles(sizes, _TILE), average_tiles(sizes * sizes, _TILE)
        middle = (means > _QUIET) & (means < _BUSY)
        shares.append(float((means**2 / (squares + 0.05))[middle].mean()) if middle.any() else _EVEN)
    return sum(shares) / 2


def _measure_bands(codes: NDArray[np.int16]) -> dict[str, float]:
    """Find steps between two flats, both ways. Between flats of three pixels on each side nothing else changes."""
    weighed, small, large, measured = 0.0, 0, 0, 0
    for lines in (codes, codes.T):
        step = np.abs(np.diff(lines, axis=0))
        length = len(step) - 2 * _RUN
        if length <= 0:
            continue
        flat = step == 0
        alone = ~flat[_RUN : _RUN + length]
        for offset in (*range(_RUN), *range(_RUN + 1, 2 * _RUN + 1)):
            alone &= flat[offset : offset + length]
        alone[(_BLOCK - 1 - _RUN) % _BLOCK :: _BLOCK] = False  # those at the edges of blocks are left to blockiness
        sizes = step[_RUN : _RUN + length][alone].astype(np.float64)
        weighed += float((sizes[sizes <= _BAND_STEP] ** 2).sum())
        small += int((sizes <= 2).sum())
        large += int((sizes > 2).sum())
        measured += lines.size
    measured = max(measured, 1)
    return {
        "banding": math.sqrt(2 * weighed / measured),
        "band_small": small / measured,
        "band_large": large / measured,
    }


def _measure_codes(window: Window) -> dict[str, float]:
    """Measure the histogram of the codes of luma."""
    shares = np.bincount(window.luma.ravel(), minlength=256) / window.luma.size
    smooth = np.convolve(shares, np.ones(9) / 9, "same")
    light = (np.arange(256) - window.black) * window.scale / 255
    mean = float((light * shares).sum())
    return {
        "code_gaps": max(_entropy(smooth / smooth.sum()) - _entropy(shares), 0.0),
        "codes": float((shares > 2e-4).sum() * window.scale / 255),
        "top_code": float(shares.max()) ** 0.5,
        "contrast": math.sqrt(max(float((light**2 * shares).sum()) - mean**2, 0.0)),
        "brightness": mean,
        "dark": float(np.interp(0.1, np.cumsum(shares), light)),
        "white": float(shares[light >= 0.98].sum()),
        "black": float(shares[light <= 0.018].sum()),
    }


def _entropy(shares: NDArray[np.floating]) -> float:
    return -float((shares * np.log(shares + 1e-12)).sum())
