"""What footage in a folder shows, measured once: how long, how fast it moves, how much detail it has.

One pass over every clip, kept beside them as survey.json, so that a case can be drawn without opening a file. Knows
clips by vrt-lite's own reader; refuses to know cases and faults.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import av
import numpy as np
from numpy.typing import NDArray

from train.footage.packages import Split
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.models.store import write_whole
from vrt_lite.video import open_clip

SURVEY = "survey.json"
SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".avi", ".webm", ".mkv"})
LONGEST_SECONDS = 30.0
"""Of a clip that says nothing else, this much from its start is used."""
_SMALL = (32, 18)
_LOOKED = (160, 90)
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One clip. `path` is from the footage's folder; the first `frames` frames are used, at `fps`.

    `motion` is by frame the mean difference from the one before, in grey levels of a tiny picture (0 for the first);
    `detail` by frame the mean difference of neighbouring pixels, in grey levels of a small one.
    """

    path: str
    sha256: str
    width: int
    height: int
    fps: float
    frames: int
    motion: tuple[float, ...]
    detail: tuple[float, ...]

    @property
    def group(self) -> str:
        """Split and package."""
        return "/".join(PurePosixPath(self.path).parts[:2])


def survey(folder: Path, *, progress: Callable[[str], None] = lambda what: None) -> tuple[Surveyed, ...]:
    """Measure the clips under FOLDER/train and FOLDER/test and keep what was found; what is known is kept as it is.

    A program stream (.mpg) gets a copy that vrt-lite can read. A clip that cannot be read is a UsageError, naming it.
    """
    known = {clip.path: clip for clip in _read(folder / SURVEY)} if (folder / SURVEY).exists() else {}
    found: list[Surveyed] = []
    for path in folder.rglob("*.mpg"):
        _rewrap(path)
    for path in sorted(p for split in ("train", "test") for p in (folder / split).rglob("*") if p.suffix in SUFFIXES):
        name = path.relative_to(folder).as_posix()
        before = known.get(name)
        progress(name)
        try:
            found.append(_measured(path, name, before))
        except VideoError as error:
            raise UsageError(f"Footage cannot be used: {error}") from error
    write_whole(folder / SURVEY, (json.dumps([asdict(clip) for clip in found]) + "\n").encode())
    return tuple(found)


def surveyed(folder: Path, split: Split) -> tuple[Surveyed, ...]:
    """The clips of a split, as they were measured. UsageError if there is no survey, or none of that split."""
    clips = tuple(clip for clip in _read(folder / SURVEY) if clip.path.startswith(f"{split}/"))
    if not clips:
        raise UsageError(f"{folder} has no footage to {split} on.")
    return clips


def _read(path: Path) -> tuple[Surveyed, ...]:
    try:
        rows = json.loads(path.read_text("utf-8"))
        return tuple(
            Surveyed(**{**row, "motion": tuple(row["motion"]), "detail": tuple(row["detail"])}) for row in rows
        )
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): python -m train footage {path.parent}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no survey of footage ({error}); delete it and fetch again.") from error


def _rewrap(path: Path) -> None:
    """Lay a program stream's pictures in a container that vrt-lite reads, beside it; nothing is coded again."""
    out = path.with_suffix(".mkv")
    if out.exists():
        return
    part = out.with_name(f"{out.stem}.part.mkv")
    with av.open(str(path)) as source, av.open(str(part), "w") as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.dts is not None:
                packet.stream = copied
                target.mux(packet)
    part.replace(out)


def _measured(path: Path, name: str, before: Surveyed | None) -> Surveyed:
    with open_clip(path) as clip:
        info = clip.info
        if before and before.sha256 == info.sha256:
            return before
    frames = min(info.frames, int(LONGEST_SECONDS * info.fps))
    motion: list[float] = []
    detail: list[float] = []
    last: NDArray[np.float32] | None = None
    for start in range(0, frames, _AT_ONCE):
        # Opened anew: a clip keeps what it has shown until it is closed.
        with open_clip(path) as clip:
            shown = clip.frames(range(start, min(start + _AT_ONCE, frames)), size=_LOOKED)
        for index in sorted(shown):
            grey = shown[index].astype(np.float32).mean(axis=2)
            tiny = grey.reshape(_SMALL[1], 5, _SMALL[0], 5).mean(axis=(1, 3))
            motion.append(0.0 if last is None else round(float(np.abs(tiny - last).mean()), 2))
            detail.append(round(float(np.abs(np.diff(grey, axis=1)).mean()), 2))
            last = tiny
    return Surveyed(
        name, info.sha256, info.width, info.height, info.fps, frames, motion=tuple(motion), detail=tuple(detail)
    )
