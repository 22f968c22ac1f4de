"""Writes five clips to try `vrt-lite rank`: a clean one, and four that get worse step by step.

    python examples/ladder.py ladder
    vrt-lite rank ladder --prompt "A red square moving right."

A square crosses a cloudy texture. Each clip has the faults of the one before, and one more. The names of the clips do
not show the steps, so a ranking by name would be wrong. The same seed gives the same pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

PROMPT = "A red square moving right."
STEPS: dict[str, tuple[str, ...]] = {
    "maple": (),
    "cedar": ("haze",),
    "aspen": ("haze", "stutter"),
    "birch": ("haze", "stutter", "wrong colour"),
    "willow": ("haze", "stutter", "wrong colour", "flicker"),
}
"""The faults of each clip; best first."""
SIZE = (252, 140)
FRAMES, FPS = 48, 16
SIDE, RIM = 40, 3
HAZE, HAZE_LIGHT = 0.55, 190
HELD = 8
"""A clip that stutters shows the first of so many frames in place of all of them."""
FLICKER = (1.4, 0.6)
"""By what the light of every even and every odd frame is multiplied."""
RED, GREEN = (220, 40, 40), (40, 180, 60)
SEED = 5


def write_ladder(folder: Path) -> list[Path]:
    """Write the clips, best first."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / f"{name}.mp4", pictures(faults)) for name, faults in STEPS.items()]


def pictures(faults: Collection[str]) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of one clip, (height, width, 3)."""
    ground = _clouds(np.random.default_rng(SEED))
    colour = np.array(GREEN if "wrong colour" in faults else RED)
    top = (SIZE[1] - SIDE) // 2
    for number in range(FRAMES):
        picture = ground.copy()
        shown = number - number % HELD if "stutter" in faults else number
        left = 20 + round((SIZE[0] - SIDE - 40) * shown / (FRAMES - 1))
        picture[top : top + SIDE, left : left + SIDE] = 0.3 * colour
        picture[top + RIM : top + SIDE - RIM, left + RIM : left + SIDE - RIM] = colour
        if "flicker" in faults:
            picture *= FLICKER[number % 2]
        if "haze" in faults:
            picture += HAZE * (HAZE_LIGHT - picture)
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
    parser.add_argument("folder", type=Path, help="where the clips go")
    for written in write_ladder(parser.parse_args().folder):
        print(written)
