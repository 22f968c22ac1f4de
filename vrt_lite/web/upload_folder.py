"""Keeps what clients send in a folder of the server's own: a draft while it arrives, then under its content's digest.

An upload is one file, or numbered pictures. What was used least is removed when there is too much.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from vrt_lite.clip_files import MOST_PICTURES, PICTURE_SUFFIXES, find_pictures
from vrt_lite.decoder import Decoder
from vrt_lite.errors import VideoError
from vrt_lite.ranking.entries import VIDEO_SUFFIXES
from vrt_lite.web.refusals import RefusedRequestError

MOST_UPLOAD_BYTES: Final = 2 * 2**30
"""The largest clip that can be uploaded."""
MOST_KEPT_BYTES: Final = 10 * 2**30
MOST_KEPT: Final = 2_500
"""How much of what was uploaded is kept so that it can be played and judged again."""
DRAFT: Final = "draft-"
"""The names of folders begin so that are deleted if a killed server leaves them."""
_UPLOAD = re.compile(r"upload:([0-9a-f]{64})")
_UNSAFE = re.compile(r"[^\w .()+,@=-]")
_LONGEST_NAME = 120
_DRAFT_SECONDS = 3600.0
_PICTURES, _NO_RATE = "pictures", "no rate"
"""The folder of numbered pictures, and the one around it if they came without a rate; else its name is the rate."""


class UploadFolder:
    """The uploads. A clip's id is "upload:" and the digest of its content."""

    def __init__(self, folder: Path, decoder: Decoder) -> None:
        self.path = folder.absolute()
        self.decoder = decoder
        self._lock = Lock()
        self._borrowed: Counter[str] = Counter()
        """How many requests use an upload that is removed after the last of them."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_old_drafts()

    def find(self, clip: str) -> Path:
        """Find the path of an upload. RefusedRequestError if it is not here."""
        found = _UPLOAD.fullmatch(clip)
        if found is None or (path := self._find(found[1])) is None:
            raise RefusedRequestError(404, "missing_clip", f"{clip[:80]!r} is not here any more: upload it again.")
        return path

    @contextlib.contextmanager
    def begin(self) -> Generator[UploadDraft]:
        """Begin an upload. What was not kept when the block ends is deleted.

        RefusedRequestError for one that is too large or empty, and if the disk is full.
        """
        draft = self.path / f"{DRAFT}{secrets.token_hex(8)}"
        try:
            draft.mkdir(mode=0o700)
            with UploadDraft(self, draft) as upload:
                yield upload
        except OSError as error:
            raise RefusedRequestError(507, "disk", f"The upload cannot be kept: {error.strerror or error}.") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def keep(self, source: Path, sha256: str, *, borrow: bool) -> str:
        """Give an upload its place; return its id. With `borrow` it is removed by `give_back`, if it is new."""
        with self._lock:
            if self._find(sha256) is None:
                folder = self.path / sha256
                folder.mkdir(mode=0o700, exist_ok=True)
                source.replace(folder / source.name)
                self._borrowed[sha256] = 0
            elif sha256 not in self._borrowed:
                return f"upload:{sha256}"
            if borrow:
                self._borrowed[sha256] += 1
            else:
                del self._borrowed[sha256]
        return f"upload:{sha256}"

    def hide(self, text: str) -> str:
        """Return a text without the folders in which uploads lie here."""
        return re.sub(rf"{re.escape(str(self.path))}[/\\][0-9a-f]{{64}}[/\\]", "", text)

    def give_back(self, clips: list[str]) -> None:
        """Take all uploads from a list that were borrowed, and remove those that nobody else uses."""
        with self._lock:
            while clips:
                sha256 = clips.pop().removeprefix("upload:")
                if sha256 not in self._borrowed:  # it was there before, or was sent to be kept meanwhile
                    continue
                self._borrowed[sha256] -= 1
                if not self._borrowed[sha256]:
                    del self._borrowed[sha256]
                    shutil.rmtree(self.path / sha256, ignore_errors=True)

    def _find(self, sha256: str) -> Path | None:
        folder = self.path / sha256
        inner = next(folder.iterdir(), None) if folder.is_dir() else None
        if inner is None:
            return None
        os.utime(folder)  # it is in use: others are removed before it
        if not inner.is_dir():
            return inner
        with contextlib.suppress(VideoError):
            if pictures := find_pictures(_name_pictures(inner)):
                return pictures.path
        return None

    def make_room(self, size: int) -> None:
        """Remove the uploads that were not used for longest, until there is room for so many bytes more."""
        with self._lock, contextlib.suppress(FileNotFoundError):  # another server may remove some too
            kept = list_uploads(self.path)
            count, total = len(kept) + 1, sum(freed for _, freed in kept) + size
            for folder, freed in kept:
                if total <= MOST_KEPT_BYTES and count <= MOST_KEPT:
                    return
                shutil.rmtree(folder, ignore_errors=True)
                count, total = count - 1, total - freed

    def _remove_old_drafts(self) -> None:
        """Remove what killed uploads have left."""
        for path in self.path.glob(f"{DRAFT}*"):
            if time.time() - path.stat().st_mtime > _DRAFT_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def list_uploads(folder: Path) -> list[tuple[Path, int]]:
    """List the folders of the uploads, the one that was used longest ago first, and the bytes of each."""
    if not folder.is_dir():
        return []
    kept = sorted(folder.glob("[0-9a-f]" * 64), key=lambda upload: upload.stat().st_mtime)
    return [(one, sum(path.stat().st_size for path in one.rglob("*") if path.is_file())) for one in kept]


class UploadDraft:
    """An upload while it arrives, file by file, in a folder of its own. A context manager that closes its files."""

    def __init__(self, uploads: UploadFolder, folder: Path) -> None:
        self._uploads = uploads
        self._folder = folder
        self._files: list[Path] = []
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> UploadDraft:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def begin_file(self, name: str) -> None:
        """Begin a file; what is written then goes there. RefusedRequestError if there is one of that name."""
        self._end_file()
        if len(self._files) >= MOST_PICTURES:
            raise RefusedRequestError(413, "too_large", f"At most {MOST_PICTURES} pictures can be uploaded as a clip.")
        path = self._folder / make_file_name(name)
        if path in self._files:
            raise RefusedRequestError(400, "usage", f"Two pictures have the name {path.name!r}: number them.")
        self._files.append(path)
        self._file = path.open("xb")

    def write(self, data: bytes) -> None:
        """Write to the file. RefusedRequestError if the clip gets too large."""
        self._size += len(data)
        if self._size > MOST_UPLOAD_BYTES:
            raise too_large()
        self._digest.update(data)
        assert self._file
        self._file.write(data)

    def keep(self, fps: str, *, borrow: bool = False) -> str:
        """Keep the upload; return its id. Several files are numbered pictures, with `fps` pictures a second if given.

        RefusedRequestError for an empty upload, and for pictures that are no clip.
        """
        self._end_file()
        if not self._size:
            raise RefusedRequestError(400, "usage", "The upload is empty: send the bytes of a clip.")
        if len(self._files) == 1:
            self._check_clip(self._files[0])
            _flush(self._files)
            return self._uploads.keep(self._files[0], self._digest.hexdigest(), borrow=borrow)
        if not re.fullmatch(r"([0-9]{1,9}(\.[0-9]{1,9})?)?", fps):
            raise RefusedRequestError(400, "usage", f"fps is {fps[:20]!r}: give the pictures a second as a number.")
        inner = self._folder / (fps or _NO_RATE)
        pictures = inner / _PICTURES
        pictures.mkdir(parents=True)
        for file in self._files:
            file.rename(pictures / file.name)
        try:
            found = find_pictures(_name_pictures(inner))
        except VideoError as error:
            raise RefusedRequestError(422, error.kind, f"What was sent as pictures {error.reason}.") from error
        if found is None or len(found.files) != len(self._files):
            raise RefusedRequestError(
                422, "broken_clip", "Several files are one clip only if they are numbered pictures."
            )
        self._check_clip(found.path)
        _flush(found.files)
        return self._uploads.keep(inner, found.digest(), borrow=borrow)

    def _check_clip(self, path: Path) -> None:
        """Raise RefusedRequestError for what is no clip that can be judged: it is told now, not when a job fails."""
        try:
            self._uploads.decoder.check(path)
        except VideoError as error:
            raise RefusedRequestError(422, error.kind, f"{path.name!r} {error.reason}. It is no clip.") from error

    def _end_file(self) -> None:
        if self._file:
            self._file.close()
            self._file = None


def _flush(files: Sequence[Path]) -> None:
    """Put files on the disk: one by itself, and many with all that is to be written, which is far quicker."""
    if len(files) > 1 and hasattr(os, "sync"):
        os.sync()
        return
    for path in files:
        with path.open("r+b") as file:
            os.fsync(file.fileno())


def _name_pictures(folder: Path) -> Path:
    """Name the numbered pictures in a folder, which has the name of their rate."""
    return folder / (_PICTURES if folder.name == _NO_RATE else f"{_PICTURES}@{folder.name}")


def make_file_name(name: str) -> str:
    """Make a name that every system accepts and that means nothing to a page."""
    kept = _UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(" .")
    stem, dot, suffix = kept.rpartition(".")
    if not dot or f".{suffix.lower()}" not in VIDEO_SUFFIXES | PICTURE_SUFFIXES:
        stem, suffix = kept, "mp4"
    while len(stem.encode()) > _LONGEST_NAME:
        stem = stem[:-1]
    return f"{stem.rstrip(' .') or 'clip'}.{suffix}"


def too_large() -> RefusedRequestError:
    """Return the refusal of a clip that is too large."""
    return RefusedRequestError(
        413, "too_large", f"A clip of at most {MOST_UPLOAD_BYTES >> 30} GB can be uploaded. Use a path instead."
    )
