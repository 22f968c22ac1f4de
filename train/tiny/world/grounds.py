"""Backgrounds: textures with the statistics of natural images, generated from a seed, and photographs.

The photographs are files of scikit-image and matplotlib; nothing is downloaded. Test seeds have their own textures and
photographs. Pictures are NumPy arrays, and the last few hundred are cached.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from train.tiny.world.values import Stuff
from vrt_lite.errors import UsageError

POOL = 96
"""How many textures of each stuff a family has; a scene shows a piece of one, with its own colours."""
HEIGHT, WIDTH = 448, 640

_TRAINING = (
    "skimage/data/astronaut.png",
    "skimage/data/brick.png",
    "skimage/data/camera.png",
    "skimage/data/coffee.png",
    "skimage/data/coins.png",
    "skimage/data/gravel.png",
    "skimage/data/hubble_deep_field.jpg",
    "skimage/data/ihc.png",
    "skimage/data/motorcycle_left.png",
    "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
)
_TEST = (
    "skimage/data/chelsea.png",
    "skimage/data/grass.png",
    "skimage/data/retina.jpg",
    "skimage/data/rocket.jpg",
)

_LEAVES, _SHEETS = 2_000, 60
_SMALLEST, _LARGEST = 4.0, 150.0  # radii; their density falls with the third power, so that it looks alike at any scale


def photographs(*, test: bool) -> tuple[str, ...]:
    """Return the photographs for training or for tests, each as PACKAGE/PATH INSIDE IT."""
    return _TEST if test else _TRAINING


@lru_cache(maxsize=256)
def picture(stuff: Stuff, source: str) -> NDArray[np.uint8]:
    """Return a background's picture, (height, width, 3). Raises UsageError for a photograph that is not installed."""
    if stuff == "photo":
        return _photograph(source)
    number, make = {"leaves": (1, _leaves), "clouds": (2, _clouds), "paper": (3, _paper)}[stuff]
    texture = make(np.random.default_rng((int(source), number)))
    return (np.clip(texture, 0, 1) * 255 + 0.5).astype(np.uint8)


def _photograph(name: str) -> NDArray[np.uint8]:
    """Read a photograph from a package's files, at most as high as a texture. The package is not imported."""
    spec = find_spec(name.partition("/")[0])
    path = Path(spec.origin).parents[1] / name if spec and spec.origin else None
    if path is None or not path.is_file():
        raise UsageError(f"The photograph {name} is not here. Install its package: pip install 'vrt-lite[train]'.")
    with Image.open(path) as image:
        shrink = min(1.0, HEIGHT / min(image.size))
        size = (round(image.width * shrink), round(image.height * shrink))
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BICUBIC))


def _leaves(rng: np.random.Generator) -> NDArray[np.float32]:
    """Paint dead leaves: opaque textured shapes of all sizes, one over the other."""
    spread = 1 - (_SMALLEST / _LARGEST) ** 2
    radii = _SMALLEST / np.sqrt(1 - rng.uniform(0, 1, _LEAVES) * spread)
    return _paint_shapes(rng, radii, _spectrum(rng, 1.0))


def _paper(rng: np.random.Generator) -> NDArray[np.float32]:
    """Paint large sheets, one over the other, with shading only: smooth, and sharp at the edges."""
    return _paint_shapes(rng, rng.uniform(_LARGEST / 2, _LARGEST, _SHEETS), np.zeros((HEIGHT, WIDTH), np.float32))


def _paint_shapes(
    rng: np.random.Generator, radii: NDArray[np.float64], grain: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Paint opaque shapes of these radii, the last on top. Each has a piece of the grain and its own shading."""
    canvas = np.empty((HEIGHT, WIDTH, 3), np.float32)
    canvas[:] = _hue(rng, rng.uniform(0, 1))
    canvas += 0.06 * grain[..., None]
    centres = rng.uniform(0, 1, (len(radii), 2)) * (HEIGHT, WIDTH)
    base, rows, columns = rng.uniform(0, 1), np.arange(HEIGHT), np.arange(WIDTH)
    for (y, x), r in zip(centres, radii, strict=True):
        top, left = max(int(y - r), 0), max(int(x - r), 0)
        across, down = columns[left : int(x + r) + 2] - x, rows[top : int(y + r) + 2, None] - y
        inside = _outline(rng, across, down, r)
        shade = rng.uniform(0, 0.1) * grain[top : top + inside.shape[0], left : left + inside.shape[1]]
        shade = shade + rng.uniform(-0.15, 0.15) * down / r
        patch = canvas[top : top + inside.shape[0], left : left + inside.shape[1]]
        patch[inside] = _hue(rng, base) + shade[inside][:, None]
    return canvas


def _outline(
    rng: np.random.Generator, across: NDArray[np.float64], down: NDArray[np.float64], radius: float
) -> NDArray[np.bool_]:
    """Return the pixels that a leaf of this radius covers: a rotated ellipse or rectangle."""
    angle, slim = rng.uniform(0, np.pi), rng.uniform(0.4, 1.0)
    c, s = np.cos(angle), np.sin(angle)
    u, v = across * c + down * s, (down * c - across * s) / slim
    if rng.random() < 0.55:
        return u * u + v * v < radius * radius
    return np.maximum(np.abs(u), np.abs(v)) < 0.7 * radius


def _hue(rng: np.random.Generator, base: float) -> NDArray[np.float32]:
    """Draw a muted colour, usually near the background's main hue."""
    hue = (base + rng.normal(0, 0.12)) % 1 if rng.random() < 0.75 else rng.uniform(0, 1)
    strength, value = 0.75 * rng.beta(2, 3), rng.uniform(0.12, 0.9)
    red, green, blue = np.abs(hue * 6 - np.array([3, 2, 4]))
    wheel = np.clip(np.array([red - 1, 2 - green, 2 - blue]), 0, 1)
    return (value * (1 - strength + strength * wheel)).astype(np.float32)


def _clouds(rng: np.random.Generator) -> NDArray[np.float32]:
    """Paint a texture with correlated colours, whose amplitude falls with frequency as in a natural image."""
    power = rng.uniform(1.1, 1.9)
    shared = _spectrum(rng, power)
    own = np.stack([_spectrum(rng, power) for _ in range(3)], axis=-1)
    return (_hue(rng, rng.uniform(0, 1)) * 0.5 + 0.25 + 0.17 * shared[..., None] + 0.05 * own).astype(np.float32)


def _spectrum(rng: np.random.Generator, power: float) -> NDArray[np.float32]:
    """Draw noise of amplitude 1/frequency^power, mean 0 and deviation 1, which wraps around at the edges."""
    waves = np.fft.rfft2(rng.standard_normal((HEIGHT, WIDTH)))
    rate = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
    rate[0, 0] = np.inf
    field = np.fft.irfft2(waves / rate**power, s=(HEIGHT, WIDTH))
    return (field / field.std()).astype(np.float32)
