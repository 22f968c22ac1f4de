"""Keeps what clients send in a folder of the server's own: a draft while it arrives, then under its content's digest.

An upload is one file, or numbered pictures. What was used least is removed when there is too much.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from vrt_lite.clip_files import MOST_PICTURES, PICTURE_SUFFIXES, ClipFiles, find_files
from vrt_lite.decoder import Decoder
from vrt_lite.errors import VideoError
from vrt_lite.ranking.entries import VIDEO_SUFFIXES
from vrt_lite.web.requests import RefusedRequestError

MOST_UPLOAD_BYTES: Final = 2 * 2**30
"""The largest clip that can be uploaded."""
_MOST_KEPT_BYTES: Final = 10 * 2**30
_MOST_KEPT: Final = 2_500
"""How much of what was uploaded is kept so that it can be played and judged again."""
_DIGEST, _RATE = r"[0-9a-f]{64}", r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_UNSAFE = re.compile(r"[^\w .()+,@=-]")
_LONGEST_NAME = 120
_PICTURES: Final = "pictures"
"""The folder of numbered pictures in that of their upload; any other clip lies in the latter itself."""


class UploadFolder:
    """The uploads. A clip's id is "upload:", the digest of its content and, of numbered pictures, @ and their rate."""

    def __init__(self, folder: Path, decoder: Decoder) -> None:
        self.path = folder.absolute()
        self.decoder = decoder
        self._lock = Lock()
        self._places = re.compile(rf"{re.escape(str(self.path))}[/\\](?:{_DIGEST}|draft-\w+[/\\]\w+)[/\\]")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def find(self, clip: str) -> Path:
        """Find the path of an upload, which is used now: others are removed before it. RefusedRequestError if none."""
        found = re.fullmatch(f"upload:({_DIGEST})((?:@{_RATE})?)", clip)
        with contextlib.suppress(OSError, StopIteration, VideoError):
            if found:
                folder = self.path / found[1]
                inner = next(folder.iterdir())
                os.utime(folder)
                return find_files(Path(f"{inner}{found[2]}")).path
        raise RefusedRequestError(404, "missing_clip", f"{clip[:80]!r} is not here any more: upload it again.")

    def keep(self, clip: ClipFiles) -> str:
        """Give a clip that has arrived its place; return its id."""
        folder, sha256 = clip.files[0].parent, clip.digest()
        name = f"upload:{sha256}"
        if clip.fps:
            folder = folder.parent
            name += "" if clip.assumed else f"@{float(clip.fps):.9g}"
        with self._lock:
            try:
                self.find(name)
            except RefusedRequestError:
                place = self.path / sha256
                shutil.rmtree(place, ignore_errors=True)
                folder.replace(place)
        return name

    def hide(self, text: str) -> str:
        """Return a text without the folders in which uploads lie here."""
        return self._places.sub("", text)

    def make_room(self, size: int) -> None:
        """Remove the uploads that were not used for longest, until there is room for so many bytes more."""
        with self._lock, contextlib.suppress(FileNotFoundError):  # another server may remove some too
            kept = list_uploads(self.path)
            count, total = len(kept) + 1, sum(freed for _, freed in kept) + size
            for folder, freed in kept:
                if total <= _MOST_KEPT_BYTES and count <= _MOST_KEPT:
                    return
                shutil.rmtree(folder, ignore_errors=True)
                count, total = count - 1, total - freed


def list_uploads(folder: Path) -> list[tuple[Path, int]]:
    """List the folders of the uploads, the one that was used longest ago first, and the bytes of each.

    Drafts that a killed server has left are among them, and are removed like the rest.
    """
    kept = sorted(folder.glob("*/"), key=lambda upload: upload.stat().st_mtime)
    return [(one, sum(path.stat().st_size for path in one.rglob("*") if path.is_file())) for one in kept]


class UploadDraft:
    """The clips that a request sends, while they arrive: a folder for each field of a form. To be removed at last."""

    def __init__(self, uploads: UploadFolder) -> None:
        self.folders: dict[str, Path] = {}
        """In which each clip arrives, by its field."""
        self._uploads = uploads
        self._folder = uploads.path / f"draft-{secrets.token_hex(8)}"
        self._count = 0
        self._file: BinaryIO | None = None

    def begin_file(self, field: str, name: str) -> None:
        """Begin a file; what is written then goes there. RefusedRequestError if there is one of that name."""
        self._end_file()
        self._count += 1
        if self._count > MOST_PICTURES:
            raise RefusedRequestError(413, "too_large", f"At most {MOST_PICTURES} pictures can be uploaded as a clip.")
        folder = self.folders[field] = self._folder / field / _PICTURES
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / make_file_name(name)
        try:
            self._file = path.open("xb")
        except FileExistsError:
            raise RefusedRequestError(400, "usage", f"Two pictures have the name {path.name!r}: number them.") from None

    def write(self, data: bytes) -> None:
        """Write to the file."""
        assert self._file
        self._file.write(data)

    def keep(self, fps: str) -> dict[str, str]:
        """Check all clips, and keep them: they are on the disk on return. Returns the id of each by its field.

        Several files are numbered pictures, `fps` a second if given. RefusedRequestError for what is no clip that can
        be judged: it is told now, not when a job fails.
        """
        self._end_file()
        if fps and not re.fullmatch(_RATE, fps):
            raise RefusedRequestError(400, "usage", f"fps is {fps[:20]!r}: give the pictures a second as a number.")
        clips = {field: self._check(folder, fps) for field, folder in self.folders.items()}
        return {field: self._uploads.keep(clip) for field, clip in clips.items()}

    def remove(self) -> None:
        """Remove what was not kept."""
        with contextlib.suppress(OSError):
            self._end_file()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check(self, folder: Path, fps: str) -> ClipFiles:
        """Check the clip in a folder, and put it on the disk; return it."""
        path, *others = files = list(folder.iterdir())
        if not any(file.stat().st_size for file in files):
            raise RefusedRequestError(400, "usage", "The upload is empty: send the bytes of a clip.")
        if others:
            path = Path(f"{folder}@{fps}" if fps else folder)
        try:
            clip = find_files(path)
            if len(clip.files) != len(files):
                raise VideoError(path, "has other files: several are one clip only if they are numbered pictures")
            self._uploads.decoder.check(clip.path)
        except VideoError as error:
            message = f"{path.name!r} {self._uploads.hide(error.reason)}."
            raise RefusedRequestError(422, error.kind, message) from error
        _flush(clip.files)
        return clip

    def _end_file(self) -> None:
        if self._file:
            self._file.close()


def _flush(files: tuple[Path, ...]) -> None:
    """Put files on the disk: one by itself, and many with all that is to be written, which is far quicker."""
    if len(files) > 1 and hasattr(os, "sync"):
        os.sync()
        return
    for path in files:
        with path.open("r+b") as file:
            os.fsync(file.fileno())


def make_file_name(name: str) -> str:
    """Make a name that every system accepts and that means nothing to a page."""
    kept = Path(_UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(" ."))
    is_usual = kept.suffix.lower() in VIDEO_SUFFIXES | PICTURE_SUFFIXES
    stem = (kept.stem if is_usual else kept.name).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return f"{stem.rstrip(' .') or 'clip'}{kept.suffix if is_usual else '.mp4'}"
