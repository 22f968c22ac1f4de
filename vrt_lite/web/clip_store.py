"""The clips that may be used and played: those under the allowed folders, and those that were uploaded.

A clip is named by its path, or by the id that an upload got. A page plays it by an address that does not tell its name;
what browsers cannot play as it is, such as pictures, GIF and files of older kinds, has a small copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
from collections import OrderedDict
from collections.abc import Generator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from vrt_lite.clip_files import find_files, group_pictures, is_clip_there
from vrt_lite.decoder import Decoder
from vrt_lite.disk import write_file
from vrt_lite.errors import MissingClipError, VideoError
from vrt_lite.ranking.entries import list_videos, natural_key, read_entries
from vrt_lite.web.requests import RefusedRequestError
from vrt_lite.web.upload_folder import UploadFolder

_PLAYED: Final = frozenset((".mp4", ".m4v", ".mov", ".webm"))
_MOST_COPIES: Final = 200
"""Each takes 1 MB at most."""
_MOST_ADDRESSES = 20_000
_MOST_LISTED = 2_000


class ClipStore:
    """The clips that this server may use: those in the allowed `folders`, and uploads, which are kept in `home`."""

    def __init__(self, folders: Sequence[Path], home: Path) -> None:
        self.folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        self.decoder = Decoder()
        self.uploads = UploadFolder(home / "uploads", self.decoder)
        self._copies = home / "copies"
        self._roots = (*self.folders, self.uploads.path.resolve())
        self._lock = Lock()
        self._addresses: OrderedDict[str, Path] = OrderedDict()
        self._secret = secrets.token_bytes(16)

    def find(self, clip: str) -> Path:
        """Find the path of a clip: a file, or the folder or the pattern of numbered pictures.

        RefusedRequestError for a path outside the allowed folders, for a missing upload, and for what is no clip.
        """
        if clip.startswith("upload:"):
            return self.uploads.find(clip)
        path = self._resolve(clip)
        self._check(path)
        return path

    def _check(self, path: Path) -> None:
        """Raise RefusedRequestError unless these are the files of a clip, all in an allowed folder or the uploads."""
        try:
            files = find_files(path).files
        except VideoError as error:
            status = 404 if isinstance(error, MissingClipError) else 400
            raise RefusedRequestError(status, error.kind, f"{str(path)[:200]!r} {error.reason}.") from error
        # Of thousands of pictures only those that are links need a look of their own.
        if not all(map(self._is_inside, {file if os.path.islink(file) else file.parent for file in files})):  # noqa: PTH114 - far quicker
            raise self._refuse(str(path))

    @contextlib.contextmanager
    def open(self, path: Path) -> Generator[Path]:
        """Yield a path of the very file that is checked, even if its name leads elsewhere meanwhile.

        Raises as `find` does. Numbered pictures are checked before and after, as is everything but on Linux.
        """
        if not _CAN_PIN or not os.path.isfile(path):  # noqa: PTH113 - it raises nothing
            self._check(path)
            yield path
            self._check(path)
            return
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            raise self._refuse(str(path)) from None
        try:
            opened = Path(f"/proc/{os.getpid()}/fd/{file}")  # a link to where the file is, whatever led to it
            self._check(opened)
            yield opened
        finally:
            os.close(file)

    def copy(self, address: str) -> Path:
        """Return a small copy of the clip of an address that every browser plays; it is made at the first call.

        Raises as `find_address` and `open` do; OSError if it cannot be kept; VideoError if there can be none.
        """
        path = self.find_address(address)
        with self.open(path) as opened:
            stamp, _ = find_files(opened).stamp()
            name = hashlib.sha256(f"{path}\n{stamp}".encode("utf-8", "surrogateescape")).hexdigest()
            copy = self._copies / f"{name}.mp4"
            if not copy.is_file():
                self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_file(copy, self.decoder.copy([opened]).data)
                kept = sorted(self._copies.glob("*.mp4"), key=lambda copy: copy.stat().st_mtime)
                for old in kept[:-_MOST_COPIES]:
                    old.unlink(missing_ok=True)
        return copy

    def find_all(self, clip: str) -> list[Path]:
        """Find the clips that a path names: a folder stands for those in it that may be used. Raises as `find` does."""
        if clip.startswith("upload:") or not os.path.isdir(folder := self._resolve(clip)):  # noqa: PTH112
            return [self.find(clip)]
        [group] = read_entries([str(folder)])
        return [path for path in group.clips if self.is_allowed(path)]

    def list_folder(self, folder: str) -> dict[str, Any]:
        """List what a folder has, as plain data; the allowed folders themselves if `folder` is empty.

        Each folder and clip has a path and a name, each clip the address at which a page plays it. RefusedRequestError
        for a folder that is not there, or not allowed.
        """
        if not folder:
            roots = [{"path": str(path), "name": str(path)} for path in self.folders]
            return {"path": "", "folders": roots, "clips": []}
        path = self._resolve(folder)
        if not os.path.isdir(path):  # noqa: PTH112 - it raises nothing
            raise RefusedRequestError(404, "missing_folder", f"There is no folder {folder[:200]!r}.")
        entries = sorted((entry for entry in path.iterdir() if not entry.name.startswith(".")), key=natural_key)
        folders = [entry for entry in entries if entry.is_dir() and self._is_inside(entry)]
        patterns = [path / pattern for pattern in group_pictures(entry.name for entry in entries)]
        clips = [clip for clip in (*patterns, *list_videos(path)) if self.is_allowed(clip)]
        return {
            "path": str(path),
            "folders": [{"path": str(entry), "name": entry.name} for entry in folders[:_MOST_LISTED]],
            "clips": [{"path": str(clip), **self.describe(clip)} for clip in clips[:_MOST_LISTED]],
        }

    def describe(self, path: Path) -> dict[str, str]:
        """Return the name of a clip, and the address at which a page plays it."""
        own = path.parts[-2:] if "%" in path.name else [path.name]  # "%04d.png" alone says nothing
        return {"name": "/".join(own), "address": self.make_address(path)}

    def is_allowed(self, path: Path) -> bool:
        """Return whether a clip is there and may be used, even if it is no whole one: who judges it is told why."""
        try:
            self._check(path)
        except RefusedRequestError as refused:
            return refused.refusal == VideoError.kind and is_clip_there(path) and self._is_inside(path)
        return True

    def _is_inside(self, path: Path) -> bool:
        try:
            real = path.resolve()
        except (OSError, ValueError, RuntimeError):  # no such name here, or links that go round
            return False
        return any(real.is_relative_to(folder) for folder in self._roots)

    def make_address(self, path: Path) -> str:
        """Make the address at which a page plays a clip; empty if it may not. That of a copy ends in .mp4."""
        if not self.is_allowed(path):
            return ""
        name = hashlib.blake2b(bytes(path.absolute()), key=self._secret, digest_size=16).hexdigest()
        with self._lock:
            self._addresses[name] = path.absolute()
            self._addresses.move_to_end(name)
            if len(self._addresses) > _MOST_ADDRESSES:
                self._addresses.popitem(last=False)
        return f"/clips/{name}" if path.suffix.lower() in _PLAYED else f"/clips/{name}.mp4"

    def find_address(self, name: str) -> Path:
        """Find the file of an address. RefusedRequestError if there is none; `open` says whether it may be played."""
        with self._lock:
            path = self._addresses.get(name.removesuffix(".mp4"))
        if path is None:
            raise RefusedRequestError(404, "missing_clip", "There is no such clip.")
        return path

    def _resolve(self, text: str) -> Path:
        """Return a path in an allowed folder, with all links followed."""
        if text and not Path(text).is_absolute():
            raise RefusedRequestError(403, "path", f"{text[:200]!r} is a relative path. Give the whole path of a clip.")
        if not text or "\0" in text or not self._is_inside(Path(text)):
            raise self._refuse(text)
        return Path(text).resolve()

    def _refuse(self, text: str) -> RefusedRequestError:
        """Return the refusal of a path, which does not tell whether it is there."""
        folders = ", ".join(map(str, self.folders)) or "none"
        return RefusedRequestError(
            403, "path", f"{text[:200]!r} is in no allowed folder. Allowed: {folders}. Add one: --allow FOLDER."
        )


_CAN_PIN = sys.platform == "linux"  # elsewhere a path of an open file shares its position, or there is none
