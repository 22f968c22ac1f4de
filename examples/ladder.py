"""Writes six clips to try `vrt-lite rank`: a clean one, and five that get worse step by step.

    python examples/ladder.py ladder
    vrt-lite rank ladder --prompt "A red square moving right." -m vrt-tiny-0

The clips suit the judge vrt-tiny-0: a coloured shape crosses a cloudy texture. Each step has more blur. The names of
the clips do not show the steps, so a ranking by name would be wrong. The same seed gives the same pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

PROMPT = "A red square moving right."
STEPS = {"maple": 0.0, "cedar": 1.6, "aspen": 2.4, "birch": 3.4, "willow": 4.8, "alder": 6.5}
"""The blur of each clip: its standard deviation in pixels; best first."""
SIZE = (252, 140)
FRAMES, FPS = 48, 16
RED = (220, 40, 40)
SEED = 5


def write_ladder(folder: Path) -> list[Path]:
    """Write the clips, best first."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / f"{name}.mp4", pictures(blur)) for name, blur in STEPS.items()]


def pictures(blur: float) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of one clip, (height, width, 3)."""
    ground = _clouds(np.random.default_rng(SEED))
    still = _blurred(ground, blur)
    top, side, reach = 56, 34, _reach(blur)
    for number in range(FRAMES):
        left = 40 + round(150 * number / (FRAMES - 1))
        # A blur is linear: the change by the square is blurred alone and then added.
        change = np.array(RED) - ground[top : top + side, left : left + side]
        change = np.pad(change, ((reach, reach), (reach, reach), (0, 0)))
        picture = still.copy()
        picture[top - reach : top + side + reach, left - reach : left + side + reach] += _blurred(change, blur)
        yield np.rint(picture).clip(0, 255).astype(np.uint8)


def _clouds(chance: np.random.Generator) -> NDArray[np.float64]:
    """Draw a tinted texture whose amplitude falls as 1/f, as in natural pictures, at half the size."""
    width, height = SIZE[0] // 2, SIZE[1] // 2
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1
    shape = (height, width // 2 + 1, 4)
    waves = (chance.normal(size=shape) + 1j * chance.normal(size=shape)) / frequency[..., None] ** 1.6
    waves[0, 0] = 0
    field = np.fft.irfft2(waves, s=(height, width), axes=(0, 1))
    field /= field.std(axis=(0, 1))
    tinted = np.array((96, 120, 150)) + 24 * field[..., 3:] + 20 * field[..., :3]
    for axis, length in ((0, SIZE[1]), (1, SIZE[0])):
        at = (np.arange(length) + 0.5) / 2 - 0.5
        low = at.astype(int).clip(0, length // 2 - 2)
        share = np.expand_dims(at - low, axis=tuple({0, 1, 2} - {axis}))
        tinted = tinted.take(low, axis) * (1 - share) + tinted.take(low + 1, axis) * share
    return tinted.clip(0, 255)


def _reach(deviation: float) -> int:
    return round(3 * deviation) + 1 if deviation else 0


def _blurred(picture: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """A Gaussian blur along both axes; the borders are repeated."""
    if not deviation:
        return picture
    reach = _reach(deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        padded = np.pad(picture, [(reach, reach) if a == axis else (0, 0) for a in range(3)], mode="edge")
        length, picture = picture.shape[axis], np.zeros_like(picture)
        for first, weight in enumerate(weights):
            picture += weight * (padded[first : first + length] if axis == 0 else padded[:, first : first + length])
    return picture


def _write(path: Path, frames: Iterator[NDArray[np.uint8]]) -> Path:
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("libx264", rate=FPS)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # more threads, other bytes
        stream.options = {"crf": "18", "preset": "veryfast"}
        for picture in frames:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the six clips go")
    for written in write_ladder(parser.parse_args().folder):
        print(written)
