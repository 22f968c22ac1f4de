"""A scene as two mp4 files, and a whole labelled set as `vrt-lite eval` reads it. PyAV and, for pictures, torch."""

from __future__ import annotations

import csv
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av

from train.cases import Case
from train.world.defects import MOTION
from train.world.draw import scene
from train.world.labels import labels_of
from train.world.store import Opening
from train.world.values import TICKS, ClipSpec, Scene
from vrt_lite.errors import UsageError
from vrt_lite.protocol.tags import KEYS

MOST_FRAMES = 144
"""A longer clip is written at a lower rate: as long as it is, with every tick in it."""
_AT_ONCE = 16
_COLUMNS = ("id", "a", "b", "prompt", *KEYS, "group")


def write_mp4(
    pair: Case | Scene, folder: Path, *, device: str = "cpu", most_frames: int = MOST_FRAMES
) -> tuple[Path, Path]:
    """Write the pair as SEED_1.mp4 and SEED_2.mp4: H.264, 4:2:0, nearly without loss. `most_frames` is 48 at least."""
    if isinstance(pair, Scene):
        drawn = pair
    elif isinstance(pair.open, Opening):
        drawn = pair.open.scene
    else:
        raise UsageError(f"Case {pair.key} is not of the world: it has no scene to write.")
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

    Clips that are there already are kept, so that a broken run goes on. `group` tells hidden pairs from the others.
    `done` is told how many pairs are written.
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
    """Whether the evidence is hidden, and in what."""
    if not drawn.hidden:
        return "shown"
    moving = any(defect.hidden and defect.kind in MOTION for clip in drawn.clips for defect in clip.defects)
    return "hidden motion" if moving else "hidden picture"


def _write(path: Path, clip: ClipSpec, device: str, most_frames: int) -> None:
    """One clip, under another name until it is whole."""
    from train.world.render import frames as rendered  # noqa: PLC0415 - torch, only where pictures are wanted

    count = min(clip.frames, max(most_frames, TICKS))
    rate = Fraction(clip.fps * count, clip.frames)
    positions = [(TICKS - 1) * i / (count - 1) for i in range(count)]
    partial = path.with_suffix(".part.mp4")
    with av.open(str(partial), "w") as out:
        stream = out.add_stream("libx264", rate=rate, options={"preset": "veryfast", "crf": "12"})
        stream.width, stream.height, stream.pix_fmt = clip.width, clip.height, "yuv420p"
        stream.codec_context.time_base = 1 / rate
        for start in range(0, count, _AT_ONCE):
            drawn = rendered(clip, positions[start : start + _AT_ONCE], (clip.width, clip.height), device=device)
            for number, picture in enumerate(drawn, start=start):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.pts, frame.time_base = number, 1 / rate
                out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    partial.replace(path)
