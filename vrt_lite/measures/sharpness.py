"""Sharpness and noise of single pictures, as levels of luma at about 360 rows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vrt_lite.measures.arrays import average_tiles

_Levels = NDArray[np.int16]

_EVERY = 2
"""Sharpness is measured along every second line."""
_TILE = 16
_BOX = 9
_FAINTEST_EDGE = 18
"""Levels across nine pixels; a fainter edge tells more about noise than about sharpness."""
_QUIET_TILES, _QUIET_BIAS = 0.2, 0.94
"""The share of the tiles that is quiet; of pure noise, a quiet tile has this share of the deviation."""
_DARKEST, _BRIGHTEST = 20, 235


def estimate_noise(levels: _Levels) -> float:
    """Return the standard deviation of the noise, in levels.

    Immerkaer, "Fast noise variance estimation", CVIU 64 (1996): the mean response to a filter that ignores planes. Here
    it is taken in tiles, and the quiet tiles count, so that texture is not taken for noise (Shin et al., "Block-based
    noise estimation using adaptive Gaussian filtering", IEEE TCE 51 (2005)). Tiles at black or white hide noise.
    """
    across = levels[:, 2:] - 2 * levels[:, 1:-1] + levels[:, :-2]
    response = np.abs(across[2:] - 2 * across[1:-1] + across[:-2])
    if min(response.shape) < _TILE:
        return 0.0
    tiles, light = average_tiles(response, _TILE), average_tiles(levels[1:-1, 1:-1], _TILE)
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
