"""Says which files a clip consists of: one file, or numbered pictures. Digests them, and decodes nothing.

Numbered pictures are named by a pattern (`frames/%04d.png`) or by their folder. The path may end in `@` and a frame
rate: `frames/%04d.png@8`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
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
_PICTURE: Final = re.compile(r"([^%]*?)([0-9]+)([^0-9%]*\.(?:png|jpe?g))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClipFiles:
    """The files of one clip, in order; more than one are numbered pictures.

    `path` names the clip: where a folder of numbered pictures was given, by their pattern. `fps` is the frame rate of
    numbered pictures, None for one file of any other kind; `assumed` means that it was not given.
    """

    path: Path
    files: tuple[Path, ...]
    fps: Fraction | None = None
    assumed: bool = False

    def digest(self) -> str:
        """Return a sha256, in hexadecimal: of the file, or of the frame rate and all pictures. Raises OSError."""
        if self.fps is None:
            return file_sha256(self.files[0])
        found = hashlib.sha256(f"numbered pictures, {self.fps} a second\n".encode())
        for file in self.files:
            found.update(f"{file_sha256(file)}\n".encode())
        return found.hexdigest()

    def stamp(self) -> tuple[str, float]:
        """Return a text that changes when a file does, and the Unix time of the last change in seconds. OSError."""
        found = [file.stat() for file in self.files]
        stamps = (f"\n{of.st_size} {of.st_mtime_ns} {of.st_ctime_ns} {of.st_ino}" for of in found)
        digest = hashlib.sha256(f"{self.fps or ''}{''.join(stamps)}".encode())
        return digest.hexdigest(), max(max(of.st_mtime_ns, of.st_ctime_ns) for of in found) / 1e9


def find_files(path: Path) -> ClipFiles:
    """Return the files of the clip that a path names: a file, or a folder or pattern of numbered pictures.

    MissingClipError for what is not there; VideoError for what is no regular file, and for a gap in the numbers.
    """
    place, fps = split_rate(path)
    if not _names_pictures(place):
        _check_file(path, path)
        return ClipFiles(path, (path,))
    folder = place if os.path.isdir(place) else place.parent  # noqa: PTH112 - it raises nothing
    try:
        names = [file.name for file in folder.iterdir()]
    except OSError as error:
        kind = MissingClipError if isinstance(error, FileNotFoundError) else VideoError
        raise kind(path, f"cannot be read: {error.strerror}") from error
    if folder == place:
        groups = group_pictures(names)
        if not groups:
            raise MissingClipError(path, "is a folder without numbered pictures; give the path of one clip")
        place /= next(iter(groups))
        if len(groups) > 1:
            raise VideoError(path, f"is a folder of more than one clip: give {str(place)!r}, or another pattern")
    found = _find_numbers(place.name, names)
    if not found:
        raise MissingClipError(path, f"names no picture: no file of the folder {folder} fits {place.name!r}")
    if len(found) > MOST_PICTURES:
        made = f"ffmpeg -framerate {ASSUMED_FPS} -i {place} OUT.mp4"
        raise VideoError(path, f"is {len(found)} pictures; at most {MOST_PICTURES} are read. Make a video: {made}")
    numbers = range(min(found), min(found) + len(found))
    if gap := next((number for number in numbers if number not in found), None):
        raise VideoError(path, f"has a gap: there is no number {gap}; number the pictures without gaps")
    files = tuple(folder / found[number] for number in numbers)
    for file in files:
        _check_file(path, file, f"has a picture, {file.name!r}, that ")
    rated = place if fps is None else Path(f"{place}@{float(fps):.9g}")
    return ClipFiles(rated, files, Fraction(ASSUMED_FPS) if fps is None else fps, assumed=fps is None)


def _check_file(path: Path, file: Path, what: str = "") -> None:
    """Raise VideoError unless a file of a clip is a regular one; it is not opened, as a FIFO would block for ever."""
    try:
        status = file.stat()
    except (OSError, ValueError) as error:
        if ":/" in str(path)[2:]:  # not C:/
            raise VideoError(path, "looks like a URL, and URLs are never opened; download it first") from None
        kind = VideoError if isinstance(error, PermissionError) else MissingClipError
        reason = getattr(error, "strerror", None) or "not a possible file name"
        raise kind(path, f"{what}cannot be opened: {reason}") from None
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(path, f"{what}is not a regular file; give the path of one clip")


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
    if not _names_pictures(path) and os.path.lexists(path):
        return os.path.isfile(path)  # noqa: PTH113 - it raises nothing
    try:
        find_files(path)
    except VideoError as error:
        return not isinstance(error, MissingClipError)
    return True


def group_pictures(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Find the patterns that two or more names of pictures fit. Return the names by number for each, the most first."""
    series: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if parts := _PICTURE.fullmatch(name):
            series.setdefault((parts[1], parts[3]), []).append(parts[2])
    found: dict[str, dict[int, str]] = {}
    for (before, after), digits in series.items():
        width = min(map(len, digits))
        pattern = f"{before}%{f'0{width}' if width > 1 else ''}d{after}"
        found[pattern] = _find_numbers(pattern, (f"{before}{number}{after}" for number in digits))
    most_first = sorted(found.items(), key=lambda group: -len(group[1]))
    return {pattern: numbers for pattern, numbers in most_first if len(numbers) > 1}


def _find_numbers(pattern: str, names: Iterable[str]) -> dict[int, str]:
    """Return the names that a pattern gives, by their number."""
    before, width, after = _NUMBER.split(pattern, maxsplit=1)
    more = int(width or 1) - 1
    form = re.compile(f"{re.escape(before)}(0[0-9]{{{more}}}|[1-9][0-9]{{{more},}}){re.escape(after)}")
    return {int(found[1]): name for name in names if (found := form.fullmatch(name))}


def _names_pictures(path: Path) -> bool:
    """Whether a path is a folder, or a pattern of pictures."""
    if os.path.isdir(path):  # noqa: PTH112 - it raises nothing
        return True
    is_file = os.path.isfile(path)  # noqa: PTH113 - it raises nothing
    return path.suffix.lower() in PICTURE_SUFFIXES and bool(_NUMBER.search(path.name)) and not is_file
