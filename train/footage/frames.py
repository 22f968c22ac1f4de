"""Frames of footage, decoded once and kept at the size that is used. Knows clips and files; refuses to know cases."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.footage.survey import Surveyed
from vrt_lite.video import open_clip

FOLDER = "frames"
_AT_ONCE = 64


def kept(folder: Path, clip: Surveyed, size: tuple[int, int]) -> NDArray[np.uint8]:
    """All frames of a clip that are used, (frames, height, width, 3), read from FOLDER/frames as they are asked for.

    The first call for a size decodes the clip and writes them. Raises VideoError.
    """
    path = folder / FOLDER / f"{clip.sha256[:16]}-{size[0]}x{size[1]}-{clip.frames}.npy"
    if not path.is_file():
        _decode(folder / clip.path, clip.frames, size, path)
    return _mapped(path)


def _decode(source: Path, count: int, size: tuple[int, int], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f"{path.stem}.{os.getpid()}.part.npy")  # two processes may need the same clip at once
    out = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=(count, size[1], size[0], 3))
    for start in range(0, count, _AT_ONCE):
        # Opened anew: a clip keeps what it has shown until it is closed.
        with open_clip(source) as clip:
            shown = clip.frames(range(start, min(start + _AT_ONCE, count)), size=size)
        for index, picture in shown.items():
            out[index] = picture
    out.flush()
    del out  # Windows renames no file that is mapped
    part.replace(path)


@lru_cache(maxsize=64)
def _mapped(path: Path) -> NDArray[np.uint8]:
    return np.load(path, mmap_mode="r")
