"""Frames of footage: each clip is decoded once, and its frames are stored at the size that is used."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.tiny.footage.survey import SurveyedClip, decode
from vrt_lite.disk import draft_of

FOLDER = "frames"


def load_frames(folder: Path, clip: SurveyedClip, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return all used frames of a clip, (frames, height, width, 3), memory-mapped from FOLDER/frames.

    The first call for a size decodes the clip and writes its frames. Raises VideoError.
    """
    path = folder / FOLDER / f"{clip.sha256[:16]}-{size[0]}x{size[1]}-{clip.frames}.npy"
    if not path.is_file():
        _decode(folder / clip.path, clip.frames, size, path)
    return _map_file(path)


def _decode(source: Path, count: int, size: tuple[int, int], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with draft_of(path) as draft:
        out = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint8, shape=(count, size[1], size[0], 3))
        for index, picture in enumerate(decode(source, count, size)):
            out[index] = picture
        out.flush()
        del out  # Windows cannot rename a mapped file


@lru_cache(maxsize=64)
def _map_file(path: Path) -> NDArray[np.uint8]:
    return np.load(path, mmap_mode="r")
