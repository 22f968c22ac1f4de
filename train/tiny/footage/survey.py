"""Lists the footage in a folder: the size and duration of each clip.

The result is stored beside the clips as survey.json, so that a scene can be drawn without opening a clip.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import get_args

import av
from PIL import Image

from train.tiny.footage.packages import Split
from vrt_lite.disk import draft_of, file_sha256, write_file
from vrt_lite.errors import UsageError, VideoError
from vrt_lite.video import open_clip

SURVEY = "survey.json"
PHOTOGRAPHS = frozenset({".jpg", ".jpeg", ".webp", ".png"})
SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".avi", ".webm", ".mkv"}) | PHOTOGRAPHS
LONGEST_SECONDS = 30.0
"""Only this much from the start of a clip is used."""


@dataclass(frozen=True, slots=True)
class SurveyedClip:
    """One clip, or a photograph. `path` is relative to the footage's folder. Its first `frames` frames are used."""

    path: str
    sha256: str
    width: int
    height: int
    fps: float
    frames: int

    @property
    def group(self) -> str:
        """Split and package."""
        return "/".join(PurePosixPath(self.path).parts[:2])

    @property
    def photograph(self) -> bool:
        """Whether it is one picture."""
        return PurePosixPath(self.path).suffix.lower() in PHOTOGRAPHS


def survey(folder: Path, *, progress: Callable[[str], None] = lambda what: None) -> tuple[SurveyedClip, ...]:
    """List the clips of all splits under a folder, and store the survey. Returns all of them.

    What a killed fetch left half written has a name with a dot before it, and is left out. A program stream (.mpg)
    gets a copy that vrt-lite can read. Raises UsageError for a clip that cannot be read.
    """
    found: list[SurveyedClip] = []
    for path in folder.rglob("*.mpg"):
        _rewrap(path)
    for path in sorted(
        p for split in get_args(Split) for p in (folder / split).rglob("[!.]*") if p.suffix.lower() in SUFFIXES
    ):
        name = path.relative_to(folder).as_posix()
        progress(name)
        try:
            found.append(_open_photograph(path, name) if path.suffix.lower() in PHOTOGRAPHS else _open(path, name))
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
        raise UsageError(f"{folder} has no footage of the split {split}; without its {SURVEY} all is fetched.")
    return clips


def _read(path: Path) -> tuple[SurveyedClip, ...]:
    names = [field.name for field in fields(SurveyedClip)]
    try:
        rows = json.loads(path.read_text("utf-8"))
        return tuple(SurveyedClip(**{name: row[name] for name in names}) for row in rows)
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


def _open(path: Path, name: str) -> SurveyedClip:
    with open_clip(path) as clip:
        info = clip.info
    frames = min(info.frames, int(LONGEST_SECONDS * info.fps))
    return SurveyedClip(name, info.sha256, info.width, info.height, info.fps, frames)


def _open_photograph(path: Path, name: str) -> SurveyedClip:
    with Image.open(path) as picture:
        picture.load()
        return SurveyedClip(name, file_sha256(path), *picture.size, fps=0.0, frames=1)
