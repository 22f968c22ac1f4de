"""Writes a scene as two mp4 files, and a labelled set that `vrt-lite eval` reads."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from train.training_cases import TrainingCase
from train.world.defects import MOTION
from train.world.draw import scene
from train.world.drawn_frames import SceneOpener
from train.world.labels import labels_of
from train.world.values import TICKS, ClipSpec, Scene
from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import KEYS

MOST_FRAMES = 144
"""A clip with more frames is written at a lower frame rate, with the same duration and every tick."""
_AT_ONCE = 16
_COLUMNS = ("id", "a", "b", "prompt", *KEYS, "group")


def write_mp4(
    pair: TrainingCase | Scene, folder: Path, *, device: str = "cpu", most_frames: int = MOST_FRAMES
) -> tuple[Path, Path]:
    """Write a pair as SEED_1.mp4 and SEED_2.mp4: H.264, 4:2:0, nearly lossless. `most_frames` is 48 or more."""
    if isinstance(pair, Scene):
        drawn = pair
    elif isinstance(pair.open, SceneOpener):
        drawn = pair.open.scene
    else:
        raise UsageError(f"Case {pair.key} is not from the world: it has no scene to write.")
    folder.mkdir(parents=True, exist_ok=True)
    first, second = (folder / f"{drawn.seed}_{number}.mp4" for number in (1, 2))
    for path, clip in zip((first, second), drawn.clips, strict=True):
        _write(path, clip, device, most_frames)
    return first, second


def write_set(
    folder: Path,
    first: int,
    count: int,
    *,
    device: str = "cpu",
    hidden: float = 0.35,
    most_frames: int = MOST_FRAMES,
    done: Callable[[int], None] = lambda _: None,
) -> Path:
    """Write the pairs of seeds `first` to `first + count - 1` and the table pairs.csv; returns the table's path.

    Existing clips are kept, so that an interrupted run can continue. The column `group` separates hidden pairs from the
    others. `done` is called with the number of pairs written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "pairs.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_COLUMNS)
        for number, seed in enumerate(range(first, first + count), start=1):
            drawn = scene(seed, hidden=hidden)
            names = [f"{seed}_1.mp4", f"{seed}_2.mp4"]
            if not all((folder / name).is_file() for name in names):
                write_mp4(drawn, folder, device=device, most_frames=most_frames)
            given = labels_of(drawn)
            rows.writerow((seed, *names, drawn.caption, *(given[key] for key in KEYS), _group(drawn)))
            done(number)
    return table


def _group(drawn: Scene) -> str:
    """Return whether the evidence is hidden, and in what."""
    if not drawn.hidden:
        return "shown"
    moving = any(defect.hidden and defect.kind in MOTION for clip in drawn.clips for defect in clip.defects)
    return "hidden motion" if moving else "hidden picture"


def _write(path: Path, clip: ClipSpec, device: str, most_frames: int) -> None:
    """Write one clip, whole or not at all."""
    from train.world.render import frames as rendered  # noqa: PLC0415 - torch, only where pictures are needed

    count = min(clip.frames, max(most_frames, TICKS))
    rate = Fraction(clip.fps * count, clip.frames)
    positions = [(TICKS - 1) * i / (count - 1) for i in range(count)]
    size = (clip.width, clip.height)
    drawn = (
        picture
        for start in range(0, count, _AT_ONCE)
        for picture in rendered(clip, positions[start : start + _AT_ONCE], size, device=device)
    )
    _encode_clip(path, drawn, size, rate)


def _encode_clip(
    path: Path, pictures: Iterable[NDArray[np.uint8]], size: tuple[int, int], rate: Fraction, *, crf: int = 12
) -> None:
    """Encode pictures (height, width, 3) of `size` (width, height) as H.264: a whole file or none."""
    with draft_of(path) as draft, av.open(str(draft), "w") as out:
        stream = out.add_stream("libx264", rate=rate, options={"preset": "veryfast", "crf": str(crf)})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.time_base = 1 / rate
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, 1 / rate
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
