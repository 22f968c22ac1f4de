"""Small operations on stacks of pictures, whose last two axes are rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_PART = 24

Floats = NDArray[np.floating]
Luma = NDArray[np.uint8]


@lru_cache(maxsize=64)
def _averaging(length: int, cells: int) -> Floats:
    """Return a matrix (cells, length) that averages a line in equal parts; a pixel at an edge counts for both."""
    edges = np.linspace(0, length, cells + 1)
    at = np.arange(length)
    inside = np.minimum(at + 1, edges[1:, None]) - np.maximum(at, edges[:-1, None])
    shares = inside.clip(0)
    return (shares / shares.sum(1, keepdims=True)).astype(np.float32)


def split(pictures: Floats, *, overlap: int = 0) -> Iterator[Floats]:
    """Yield the pictures in short parts, so that what is computed of them takes little memory.

    With an `overlap` of one, each part begins with the last picture of the one before.
    """
    for begin in range(0, max(len(pictures) - overlap, 1), _PART):
        yield pictures[begin : begin + _PART + overlap]


def blur(pictures: Floats, sigma: float) -> Floats:
    """Blur pictures by a Gaussian of `sigma` pixels; beyond the margin its pixels are repeated."""
    reach = math.ceil(2.5 * sigma)
    weights = np.exp(-(np.arange(reach + 1) ** 2) / (2 * sigma**2))
    weights = (weights / (2 * weights.sum() - weights[0])).astype(np.float32)
    for axis in (-2, -1):
        length: int = pictures.shape[axis]
        padded = np.take(pictures, np.clip(np.arange(-reach, length + reach), 0, length - 1), axis)
        lines = np.moveaxis(padded, axis, 0)
        out = lines[reach : reach + length] * weights[0]
        for away in range(1, reach + 1):
            out += (
                lines[reach - away : reach - away + length] + lines[reach + away : reach + away + length]
            ) * weights[away]
        pictures = np.moveaxis(out, 0, axis)
    return pictures


def smooth(picture: Floats) -> Floats:
    """Blur by the binomial filter of five taps, both ways; the margin stays as it is."""
    out = picture.copy()
    for axis in (0, 1):
        lines = out.swapaxes(0, axis)
        lines[2:-2] = (
            lines[2:-2] * np.float32(0.375)
            + (lines[1:-3] + lines[3:-1]) * np.float32(0.25)
            + (lines[:-4] + lines[4:]) * np.float32(0.0625)
        )
    return out


def halve(pictures: Floats) -> Floats:
    """Return pictures at half the size; an odd last row or column is left out."""
    rows, columns = (length // 2 * 2 for length in pictures.shape[-2:])
    upper, lower = pictures[..., 0:rows:2, :columns], pictures[..., 1:rows:2, :columns]
    return (upper[..., ::2] + upper[..., 1::2] + lower[..., ::2] + lower[..., 1::2]) / 4


def resize(pictures: Floats, size: tuple[int, int]) -> Floats:
    """Return pictures averaged down to (rows, columns)."""
    images = (Image.fromarray(picture.astype(np.float32)) for picture in pictures)
    return np.stack([np.asarray(image.resize((size[1], size[0]), Image.Resampling.BOX)) for image in images])


def average_cells(pictures: Floats, cells: tuple[int, int]) -> Floats:
    """Return the means of (rows, columns) equal cells of each picture.

    For few cells. Larger products would wake the threads of the library that multiplies, which cost more than they
    save.
    """
    rows, columns = pictures.shape[-2:]
    return _averaging(rows, min(cells[0], rows)) @ pictures @ _averaging(columns, min(cells[1], columns)).T


def average_tiles(picture: NDArray[np.generic], side: int) -> Floats:
    """Return the means of the whole square tiles of one picture; of the picture itself where it is smaller."""
    rows, columns = (max(length // side, 1) for length in picture.shape)
    whole = picture[: rows * side, : columns * side]
    across = np.add.reduceat(whole, range(0, whole.shape[0], side), axis=0, dtype=np.float32)
    sums = np.add.reduceat(across, range(0, whole.shape[1], side), axis=1)
    return sums / (math.prod(whole.shape) / sums.size)


def correlate(one: Floats, two: Floats) -> float:
    """Return the mean product of two arrays."""
    return float(np.einsum("ij,ij->", one, two)) / max(one.size, 1)


def quantile(values: NDArray[np.generic], share: float) -> float:
    """Return the value below which a share lies, without interpolation; 0 for no values."""
    flat = values.ravel()
    if not flat.size:
        return 0.0
    at = min(round(share * (flat.size - 1)), flat.size - 1)
    return float(np.partition(flat, at)[at])


def longest_run(mask: NDArray[np.bool_]) -> tuple[int, int]:
    """Return where the longest run of true values begins, and its length."""
    best, began = (0, 0), 0
    for number, value in enumerate(mask.tolist()):
        if not value:
            began = number + 1
        elif number + 1 - began > best[1]:
            best = began, number + 1 - began
    return best
