"""Says which files a clip consists of: one file, or numbered pictures. Digests them, and decodes nothing.

Numbered pictures are named by a pattern (`frames/%04d.png`) or by their folder. The path may end in `@` and a frame
rate: `frames/%04d.png@8`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from vrt_lite.disk import file_sha256
from vrt_lite.errors import MissingClipError, UsageError, VideoError

ASSUMED_FPS: Final = 24
"""The frame rate of numbered pictures for which none is given."""
PICTURE_SUFFIXES: Final = frozenset((".png", ".jpg", ".jpeg"))
MOST_PICTURES: Final = 20_000
MOST_FPS: Final = 1_000
_RATED: Final = re.compile(r"(.+)@([0-9]{1,9}(?:\.[0-9]{1,9})?)", re.DOTALL)
_NUMBER: Final = re.compile(r"%(?:0([1-9][0-9]?))?d")
_DIGITS: Final = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NumberedPictures:
    """The pictures of one clip, in order, and their pattern. `assumed` means that no frame rate was given."""

    pattern: Path
    files: tuple[Path, ...]
    fps: Fraction
    assumed: bool

    @property
    def path(self) -> Path:
        """The path that names these pictures at this frame rate, also where their folder was given."""
        return self.pattern if self.assumed else Path(f"{self.pattern}@{float(self.fps):.9g}")

    def digest(self) -> str:
        """Return a sha256 of the frame rate and of all pictures, in hexadecimal. Raises OSError."""
        found = hashlib.sha256(f"numbered pictures, {self.fps} a second\n".encode())
        for file in self.files:
            found.update(f"{file_sha256(file)}\n".encode())
        return found.hexdigest()


def digest_clip(path: Path) -> str:
    """Return a clip's sha256, in hexadecimal: of its file's bytes, or of its pictures. Raises OSError, VideoError."""
    pictures = find_pictures(path)
    return pictures.digest() if pictures else file_sha256(path)


def stamp_clip(path: Path) -> tuple[str, float]:
    """Return a text that changes when a file of a clip does, and the Unix time of the last change in seconds.

    Raises OSError; VideoError for what is no regular file.
    """
    pictures = find_pictures(path)
    stamps, changed = [str(pictures.fps) if pictures else ""], 0
    for file in pictures.files if pictures else (path,):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise VideoError(path, f"is no regular file: {file.name!r}")
        stamps.append(f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}")
        changed = max(changed, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest(), changed / 1e9


def find_pictures(path: Path) -> NumberedPictures | None:
    """Return the numbered pictures that a path names; None if it names one file, or nothing.

    VideoError for a folder or pattern without pictures, and for pictures with a gap in their numbers.
    """
    place, fps = split_rate(path)
    if not _names_pictures(place):
        return None
    try:
        if os.path.isdir(place):  # noqa: PTH112 - it raises nothing
            place /= _only_pattern(path, place)
        names = _fitting(place.name, (file.name for file in place.parent.iterdir()))
    except OSError as error:
        kind = MissingClipError if isinstance(error, FileNotFoundError) else VideoError
        raise kind(path, f"cannot be read: {error.strerror}") from error
    if not names:
        raise MissingClipError(path, f"names no picture: no file of the folder {place.parent} fits {place.name!r}")
    if len(names) > MOST_PICTURES:
        made = f"ffmpeg -framerate {ASSUMED_FPS} -i {place} OUT.mp4"
        raise VideoError(path, f"is {len(names)} pictures; at most {MOST_PICTURES} are read. Make a video: {made}")
    first, last = min(names), max(names)
    if gap := next((number for number in range(first, min(last, first + len(names))) if number not in names), None):
        raise VideoError(path, f"has a gap: there is no {_fill(place.name, gap)!r}; number the pictures without gaps")
    files = tuple(place.parent / names[number] for number in range(first, last + 1))
    if odd := next((file for file in files if not _is_file(file)), None):
        raise VideoError(path, f"has a picture that is no regular file: {odd.name!r}")
    return NumberedPictures(place, files, Fraction(ASSUMED_FPS) if fps is None else fps, assumed=fps is None)


def split_rate(path: Path) -> tuple[Path, Fraction | None]:
    """Return a path without its frame rate, and the rate, None without one.

    What has the whole name, or names no pictures, is returned as it is. VideoError for a rate that is not allowed.
    """
    rated = _RATED.fullmatch(str(path))
    if not rated or os.path.lexists(path) or not _names_pictures(Path(rated[1])):
        return path, None
    if not 0 < (fps := Fraction(rated[2])) <= MOST_FPS:
        raise VideoError(path, f"has a frame rate of {rated[2]}; allowed are rates above 0, up to {MOST_FPS}")
    return Path(rated[1]), fps


def add_rate(paths: Sequence[Path], fps: str | None) -> list[Path]:
    """Add a frame rate to the paths of numbered pictures that have none. UsageError if no path names such pictures."""
    if fps is None:
        return list(paths)
    if not any(_names_pictures(split_rate(path)[0]) for path in paths):
        raise UsageError(f"--fps {fps} is for numbered pictures (frames/%04d.png); these clips have their own times.")
    return [Path(f"{path}@{fps}") if _names_pictures(path) else path for path in paths]


def is_clip_there(path: Path) -> bool:
    """Return whether a path names a file that is there, or numbered pictures of which some are, perhaps with gaps."""
    try:
        return _is_file(path) or find_pictures(path) is not None
    except VideoError as error:
        return not isinstance(error, MissingClipError)


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files of a clip; the path itself if it names no pictures that can be read."""
    try:
        pictures = find_pictures(path)
    except VideoError:
        pictures = None
    return pictures.files if pictures else (path,)


def list_patterns(names: Iterable[str]) -> dict[str, int]:
    """Find the patterns that two or more names of pictures fit. Return how many names fit each, the most first."""
    series: dict[tuple[str, str], list[str]] = {}
    for name in names:
        stem, suffix = os.path.splitext(name)  # noqa: PTH122 - a name, no path
        if suffix.lower() in PICTURE_SUFFIXES and "%" not in stem and (parts := _DIGITS.fullmatch(stem)):
            series.setdefault((parts[1], parts[3] + suffix), []).append(parts[2])
    found: Counter[str] = Counter()
    for (before, after), numbers in series.items():
        width = min((len(number) for number in numbers if number.startswith("0")), default=1)
        pattern = f"{before}%0{width}d{after}" if width > 1 else f"{before}%d{after}"
        found[pattern] = sum(f"{int(number):0{width}d}" == number for number in numbers)
    return {pattern: count for pattern, count in found.most_common() if count > 1}


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name fits one of the patterns."""
    return any(_fitting(pattern, [name]) for pattern in patterns)


def is_still_webp(path: Path) -> bool:
    """Return whether a file is a WebP that does not say that it is animated; False if it cannot be read."""
    head = b""
    with contextlib.suppress(OSError):
        if path.is_file():  # a FIFO would be waited for
            with path.open("rb") as file:
                head = file.read(21)
    return head[8:12] == b"WEBP" and not (head[12:16] == b"VP8X" and head[20] & 2)


def _only_pattern(path: Path, folder: Path) -> str:
    patterns = list(list_patterns(file.name for file in folder.iterdir()))
    if not patterns:
        raise MissingClipError(path, "is a folder without numbered pictures; give the path of one clip")
    if len(patterns) > 1:
        raise VideoError(
            path, f"is a folder of more than one clip: give {str(folder / patterns[0])!r}, or another pattern"
        )
    return patterns[0]


def _fitting(pattern: str, names: Iterable[str]) -> dict[int, str]:
    """Return the names that a pattern gives, by their number."""
    before, _, after = _NUMBER.split(pattern, maxsplit=1)
    form = re.compile(f"{re.escape(before)}([0-9]{{1,18}}){re.escape(after)}")
    numbered = ((int(found[1]), name) for name in names if (found := form.fullmatch(name)))
    return {number: name for number, name in numbered if _fill(pattern, number) == name}


def _fill(pattern: str, number: int) -> str:
    return _NUMBER.sub(lambda found: found[0] % number, pattern, count=1)


def _names_pictures(path: Path) -> bool:
    """Whether a path is a folder, or a pattern of pictures."""
    if os.path.isdir(path):  # noqa: PTH112 - it raises nothing
        return True
    return path.suffix.lower() in PICTURE_SUFFIXES and bool(_NUMBER.search(path.name)) and not _is_file(path)


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - it raises nothing
