"""Measures the footage in a folder: the duration, motion and detail of each clip.

Every clip is read once. The result is stored beside the clips as survey.json, so that a case can be drawn without
opening a clip.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import av
import numpy as np
from numpy.typing import NDArray

from train.tiny.footage import photographs
from train.tiny.footage.packages import Split
from vrt_lite.disk import draft_of, file_sha256, write_file
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.video import open_clip

SURVEY = "survey.json"
SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".avi", ".webm", ".mkv"}) | photographs.SUFFIXES
LONGEST_SECONDS = 30.0
"""Only this much from the start of a clip is used."""
_SMALL = (32, 18)
_LOOKED = (160, 90)
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class SurveyedClip:
    """One clip. `path` is relative to the footage's folder. The first `frames` frames are used, at `fps`.

    For each frame, `motion` is the mean difference from the previous frame, in grey levels of a tiny picture (0 for the
    first frame), and `detail` the mean difference of neighbouring pixels, in grey levels of a small picture.
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


def survey(folder: Path, *, progress: Callable[[str], None] = lambda what: None) -> tuple[SurveyedClip, ...]:
    """Measure the new clips under FOLDER/train and FOLDER/test, and store the survey. Returns all surveyed clips.

    A program stream (.mpg) gets a copy that vrt-lite can read. Raises UsageError for a clip that cannot be read.
    """
    known = {clip.path: clip for clip in _read(folder / SURVEY)} if (folder / SURVEY).exists() else {}
    found: list[SurveyedClip] = []
    for path in folder.rglob("*.mpg"):
        _rewrap(path)
    for path in sorted(
        p for split in ("train", "test") for p in (folder / split).rglob("*") if p.suffix.lower() in SUFFIXES
    ):
        name = path.relative_to(folder).as_posix()
        before = known.get(name)
        progress(name)
        try:
            found.append(_measure(path, name, before))
        except VideoError as error:
            raise UsageError(f"Footage cannot be used: {error}") from error
        except OSError as error:
            raise UsageError(f"The photograph {name} cannot be used: {error}.") from error
    write_file(folder / SURVEY, (json.dumps([asdict(clip) for clip in found]) + "\n").encode())
    return tuple(found)


def load_survey(folder: Path, split: Split) -> tuple[SurveyedClip, ...]:
    """Return the surveyed clips of a split. Raises UsageError if there is no survey, or no clip of that split."""
    clips = tuple(clip for clip in _read(folder / SURVEY) if clip.path.startswith(f"{split}/"))
    if not clips:
        raise UsageError(f"{folder} has no footage to {split} on.")
    return clips


def _read(path: Path) -> tuple[SurveyedClip, ...]:
    try:
        rows = json.loads(path.read_text("utf-8"))
        return tuple(
            SurveyedClip(**{**row, "motion": tuple(row["motion"]), "detail": tuple(row["detail"])}) for row in rows
        )
    except OSError as error:
        why = f"{path} cannot be read ({error.strerror})"
        raise UsageError(f"{why}: python -m train.tiny make RUN --footage {path.parent} fetches it.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no survey of footage ({error}); delete it and fetch again.") from error


def _rewrap(path: Path) -> None:
    """Copy a program stream's video, without encoding it again, to a file beside it that vrt-lite can read."""
    out = path.with_suffix(".mkv")
    if out.exists():
        return
    with draft_of(out) as draft, av.open(str(path)) as source, av.open(str(draft), "w") as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.dts is not None:
                packet.stream = copied
                target.mux(packet)


def decode(path: Path, frames: int, size: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    """Yield the first frames of a clip, or of a film of a photograph, each (height, width, 3). Raises VideoError."""
    if path.suffix.lower() in photographs.SUFFIXES:
        yield from photographs.film(path, range(frames), size)
        return
    for start in range(0, frames, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, frames))
        # Open the clip again for each part, because it keeps its frames until it is closed.
        with open_clip(path) as clip:
            shown = clip.frames(numbers, size=size)
        yield from (shown[number] for number in numbers)


def _measure(path: Path, name: str, before: SurveyedClip | None) -> SurveyedClip:
    if path.suffix.lower() in photographs.SUFFIXES:
        sha256, size, fps, frames = file_sha256(path), photographs.SIZE, photographs.FPS, photographs.FRAMES
    else:
        with open_clip(path) as clip:
            info = clip.info
        sha256, size, fps = info.sha256, (info.width, info.height), info.fps
        frames = min(info.frames, int(LONGEST_SECONDS * fps))
    if before and before.sha256 == sha256:
        return before
    motion: list[float] = []
    detail: list[float] = []
    last: NDArray[np.float32] | None = None
    for picture in decode(path, frames, _LOOKED):
        grey = picture.astype(np.float32).mean(axis=2)
        tiny = grey.reshape(_SMALL[1], 5, _SMALL[0], 5).mean(axis=(1, 3))
        motion.append(0.0 if last is None else round(float(np.abs(tiny - last).mean()), 2))
        detail.append(round(float(np.abs(np.diff(grey, axis=1)).mean()), 2))
        last = tiny
    return SurveyedClip(name, sha256, *size, fps, frames, motion=tuple(motion), detail=tuple(detail))
