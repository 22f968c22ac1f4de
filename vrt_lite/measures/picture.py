"""Measures of single pictures: sharpness, noise, blockiness and banding. All read luma from 0 to 255, rows first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vrt_lite.measures import MeasureName

Luma = NDArray[np.uint8]
_Levels = NDArray[np.int16]

_EVERY = 2
"""Sharpness and banding are measured along every second line."""
_ROWS = 360
"""Sharpness and noise are measured at about this many rows, so that clips of different sizes can be compared."""
_CROP = (640, 360)
"""Blocks and bands are measured in at most this many stored columns and rows: scaling would hide them."""
_BLOCK, _TILE = 8, 16
_BOX = 9
_FAINTEST_EDGE = 18
"""Levels across nine pixels; a fainter edge tells more about noise than about sharpness."""
_QUIET_TILES, _QUIET_BIAS = 0.2, 0.94
"""The share of the tiles that is quiet; of pure noise, a quiet tile has this share of the deviation."""
_DARKEST, _BRIGHTEST = 20, 235
_RUN = 6
"""Pixels on each side of a band's edge that are nearly equal."""
_BAND_STEP = (2, 16)
"""The steps between two bands, in levels, from the least that is seen to the largest that is no object's edge."""


def measure_pictures(pictures: Sequence[tuple[Luma, Luma]]) -> dict[MeasureName, float]:
    """Measure pictures as `prepare_picture` returns them. Returns the mean of each measure over the pictures."""
    sums: dict[MeasureName, float] = dict.fromkeys(("sharpness", "noise", "blockiness", "banding"), 0.0)
    for scaled, stored in pictures:
        scaled_levels, stored_levels = scaled.astype(np.int16), stored.astype(np.int16)
        noise = estimate_noise(scaled_levels)
        sums["noise"] += noise
        sums["sharpness"] += measure_sharpness(scaled_levels, noise)
        sums["blockiness"] += measure_blockiness(stored_levels)
        sums["banding"] += measure_banding(stored_levels)
    return {name: total / len(pictures) for name, total in sums.items()}


def prepare_picture(luma: Luma) -> tuple[Luma, Luma]:
    """Return copies of what is measured: the picture averaged down to about 360 rows, and its middle as it is stored.

    The middle begins at a multiple of 8 in both directions, as a codec's blocks do.
    """
    rows, columns = luma.shape
    factor = max(1, round(min(rows, columns) / _ROWS))
    scaled = luma if factor == 1 else np.asarray(Image.fromarray(luma).reduce(factor))
    width, height = _CROP
    left, top = (max(size - most, 0) // 2 // _BLOCK * _BLOCK for size, most in ((columns, width), (rows, height)))
    return scaled.copy(), luma[top : top + height, left : left + width].copy()


def estimate_noise(levels: _Levels) -> float:
    """Return the standard deviation of the noise, in levels.

    Immerkaer, "Fast noise variance estimation", CVIU 64 (1996): the mean response to a filter that ignores planes. Here
    it is taken in tiles, and the quiet tiles count, so that texture is not taken for noise (Shin et al., "Block-based
    noise estimation using adaptive Gaussian filtering", IEEE TCE 51 (2005)). Tiles at black or white hide noise.
    """
    across = levels[:, 2:] - 2 * levels[:, 1:-1] + levels[:, :-2]
    response = np.abs(across[2:] - 2 * across[1:-1] + across[:-2])
    rows, columns = (size // _TILE for size in response.shape)
    if not rows or not columns:
        return 0.0
    tiles = _sum_tiles(response, rows, columns) / _TILE**2
    light = _sum_tiles(levels[1:-1, 1:-1], rows, columns) / _TILE**2
    usable = tiles[(light > _DARKEST) & (light < _BRIGHTEST)]
    quiet = np.quantile(usable if usable.size else tiles, _QUIET_TILES)
    return float(math.sqrt(math.pi / 2) / 6 / _QUIET_BIAS * quiet)


def measure_sharpness(levels: _Levels, noise: float) -> float:
    """Return the share of the local contrast that blurring takes away: 0 for blur, above 0.6 for a sharp picture.

    Crete et al., "The blur effect: perception and estimation with a new no-reference perceptual blur metric", HVEI
    2007, as 1 - blur: the smaller of both directions. Here the contrast is squared, so that the noise's part can be
    taken off, and edges are where there is contrast after blurring. 0 without any edge.
    """
    margin, shares = _BOX // 2, list[float]()
    for lines in (levels[:, ::_EVERY], levels[::_EVERY].T):
        if len(lines) <= _BOX:
            return 0.0
        # The difference between neighbours after a mean over nine pixels: only its two ends remain, over nine.
        ends = lines[_BOX:] - lines[:-_BOX]
        edge = np.abs(ends) > max(_FAINTEST_EDGE, 5 * noise)
        step = lines[margin + 1 : len(lines) - margin] - lines[margin : -margin - 1]
        pixels = np.count_nonzero(edge)
        sharp = _sum_squares(step, edge) - 2 * noise**2 * pixels
        blurred = (_sum_squares(ends, edge) - 2 * noise**2 * pixels) / _BOX**2
        shares.append(1 - math.sqrt(blurred / sharp) if 0 < blurred < sharp else 0.0)
    return min(shares)


def _sum_squares(values: _Levels, where: NDArray[np.bool_]) -> float:
    chosen = np.multiply(values, where, dtype=np.float32).ravel(order="K")
    return float(chosen @ chosen)


def measure_blockiness(levels: _Levels) -> float:
    """Return how much larger the steps across the edges of 8x8 blocks are than those inside: 1 without blocks.

    Wang, Sheikh, Bovik, "No-reference perceptual quality assessment of JPEG compressed images", ICIP 2002: the ratio of
    their B and A. The larger of both directions.
    """
    ratios: list[float] = []
    for axis in (0, 1):
        steps = np.abs(np.diff(levels, axis=1 - axis)).mean(axis=axis, dtype=np.float32)
        edge = np.arange(1, len(steps) + 1) % _BLOCK == 0
        inside = ~edge
        if edge.any() and inside.any():
            ratios.append(float((steps[edge].mean() + 0.5) / (steps[inside].mean() + 0.5)))
    return max(ratios, default=1.0)


def measure_banding(levels: _Levels) -> float:
    """Return how many of 1000 pixels lie at the edge of a band: a small step between two stretches without any.

    After CAMBI (Tandon et al., "CAMBI: Contrast-aware multiscale banding index", PCS 2021): steps too small for an
    object's edge, in smooth surroundings. Steps at the edges of 8x8 blocks are left to blockiness.
    """
    count, measured = 0, 0
    least, most = _BAND_STEP
    for lines in (levels[:, ::_EVERY], levels[::_EVERY].T):
        step = np.abs(lines[1:] - lines[:-1])
        length = len(step) - 2 * _RUN
        if length <= 0:
            continue
        smooth = step <= 1
        edge = (step >= least) & (step <= most)
        edge[_BLOCK - 1 :: _BLOCK] = False
        edge = edge[_RUN : _RUN + length]
        for offset in (*range(_RUN), *range(_RUN + 1, 2 * _RUN + 1)):
            edge &= smooth[offset : offset + length]
        rows, columns = np.nonzero(edge)
        # A slope is smooth too, but it is no band.
        before = np.abs(lines[rows + _RUN, columns] - lines[rows, columns])
        after = np.abs(lines[rows + 2 * _RUN + 1, columns] - lines[rows + _RUN + 1, columns])
        count += np.count_nonzero(np.maximum(before, after) <= 1)
        measured += lines.size / 2
    return 1000 * count / measured if measured else 0.0


def _sum_tiles(values: _Levels, rows: int, columns: int) -> NDArray[np.float32]:
    whole = values[: rows * _TILE, : columns * _TILE]
    across = np.add.reduceat(whole, np.arange(0, columns * _TILE, _TILE), axis=1, dtype=np.int32)
    return np.add.reduceat(across, np.arange(0, rows * _TILE, _TILE), axis=0).astype(np.float32)
