"""The clips that may be used and played: those under the allowed folders, and those that were uploaded.

A clip is named by its path, or by the id that an upload got. A page plays it by an address that does not tell its name.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from vrt_lite.ranking.entries import VIDEO_SUFFIXES, natural_key
from vrt_lite.web.refusals import RefusedRequestError

MOST_UPLOAD_BYTES: Final = 2 * 2**30
"""The largest clip that can be uploaded."""
MOST_KEPT_BYTES: Final = 10 * 2**30
MOST_KEPT: Final = 400
"""How much of what was uploaded is kept so that it can be played and judged again."""
_UPLOAD = re.compile(r"upload:([0-9a-f]{64})")
_UNSAFE = re.compile(r"[^\w .()+,@=-]")
_LONGEST_NAME = 120
_MOST_ADDRESSES = 20_000
_MOST_LISTED = 2_000
_DRAFT_SECONDS = 3600.0


class ClipStore:
    """The clips that this server may use. `folders` are the allowed ones, `uploads` is where uploads are kept."""

    def __init__(self, folders: Sequence[Path], uploads: Path) -> None:
        self.folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        self._uploads = uploads.absolute()
        self._lock = Lock()
        self._addresses: OrderedDict[str, Path] = OrderedDict()
        self._secret = secrets.token_bytes(16)
        self._uploads.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_drafts()

    def find(self, clip: str) -> Path:
        """Find the file of a clip. RefusedRequestError for a path outside the allowed folders, and a missing upload."""
        if clip.startswith("upload:"):
            found = _UPLOAD.fullmatch(clip)
            kept = self._find_upload(found[1]) if found else None
            if kept is None:
                raise RefusedRequestError(404, "missing_clip", f"{clip[:80]!r} is not here any more: upload it again.")
            return kept
        path = self._resolve(clip)
        if path.is_dir():
            raise RefusedRequestError(400, "usage", f"{clip!r} is a folder; name a clip in it.")
        return path

    def check(self, clip: str, *, folders: bool) -> None:
        """Raise what `find` would raise; with `folders`, an allowed folder will do."""
        if not (folders and not clip.startswith("upload:") and self._resolve(clip).is_dir()):
            self.find(clip)

    def find_folder(self, folder: str) -> Path:
        """Find an allowed folder, or one in it. RefusedRequestError for any other."""
        path = self._resolve(folder)
        if not path.is_dir():
            raise RefusedRequestError(404, "missing_folder", f"There is no folder {folder!r}.")
        return path

    def list_folder(self, folder: str) -> dict[str, Any]:
        """List what a folder has, as plain data; the allowed folders themselves if `folder` is empty."""
        if not folder:
            return {"path": "", "folders": [str(path) for path in self.folders], "clips": []}
        path = self.find_folder(folder)
        shown = [entry for entry in path.iterdir() if not entry.name.startswith(".") and self.is_allowed(entry)]
        entries = sorted(shown, key=natural_key)[:_MOST_LISTED]
        return {
            "path": str(path),
            "folders": [str(entry) for entry in entries if entry.is_dir()],
            "clips": [str(e) for e in entries if e.suffix.lower() in VIDEO_SUFFIXES and e.is_file()],
        }

    def is_allowed(self, path: Path) -> bool:
        """Return whether a file may be used: it lies, all links followed, in an allowed folder or in the uploads."""
        try:
            real = path.resolve()
        except (OSError, ValueError, RuntimeError):  # no such name here, or links that go round
            return False
        return any(real.is_relative_to(folder) for folder in (*self.folders, self._uploads.resolve()))

    def make_address(self, path: Path) -> str:
        """Make the address at which a page plays a clip; empty if it may not."""
        if not self.is_allowed(path):
            return ""
        name = hashlib.blake2b(bytes(path.absolute()), key=self._secret, digest_size=16).hexdigest()
        with self._lock:
            self._addresses[name] = path.absolute()
            self._addresses.move_to_end(name)
            while len(self._addresses) > _MOST_ADDRESSES:
                self._addresses.popitem(last=False)
        return f"/clips/{name}"

    def find_address(self, name: str) -> Path:
        """Find the file of an address. RefusedRequestError if there is none, or it may not be played any more."""
        with self._lock:
            path = self._addresses.get(name)
        if path is None or not self.is_allowed(path) or not path.is_file():
            raise RefusedRequestError(404, "missing_clip", "There is no such clip.")
        return path

    async def take(self, name: str, parts: AsyncIterator[bytes], *, announced: int | None) -> str:
        """Write an upload to disk as it arrives; return the id of the clip.

        RefusedRequestError for one that is too large or empty, and if the disk is full. Nothing is left of it then.
        """
        if announced is not None and announced > MOST_UPLOAD_BYTES:
            raise _too_large()
        draft = self._uploads / f"draft-{secrets.token_hex(8)}"
        digest, size = hashlib.sha256(), 0
        await run_in_threadpool(self._make_room, announced or 0)
        try:
            with draft.open("xb") as file:
                async for part in parts:
                    size += len(part)
                    if size > MOST_UPLOAD_BYTES:
                        raise _too_large()
                    digest.update(part)
                    await run_in_threadpool(file.write, part)
            if not size:
                raise RefusedRequestError(400, "usage", "The upload is empty: send the bytes of a clip.")
            return await run_in_threadpool(self._keep, draft, digest.hexdigest(), name)
        except OSError as error:
            raise RefusedRequestError(507, "disk", f"The upload cannot be kept: {error.strerror or error}.") from error
        finally:
            draft.unlink(missing_ok=True)

    def forget(self, clip: str) -> None:
        """Remove an upload, if it is there."""
        if found := _UPLOAD.fullmatch(clip):
            shutil.rmtree(self._uploads / found[1], ignore_errors=True)

    def _keep(self, draft: Path, sha256: str, name: str) -> str:
        """Give an upload its place: a folder of its digest, and in it its own name, made harmless."""
        if self._find_upload(sha256) is None:
            folder = self._uploads / sha256
            folder.mkdir(mode=0o700, exist_ok=True)
            draft.replace(folder / _make_file_name(name))
        return f"upload:{sha256}"

    def _find_upload(self, sha256: str) -> Path | None:
        folder = self._uploads / sha256
        if not folder.is_dir():
            return None
        os.utime(folder)  # it is in use: others are removed before it
        return next((path for path in folder.iterdir() if path.is_file()), None)

    def _resolve(self, text: str) -> Path:
        """Return an allowed path with all links followed. The refusal does not tell whether another path is there."""
        if not text or "\0" in text or not Path(text).is_absolute() or not self.is_allowed(Path(text)):
            folders = ", ".join(map(str, self.folders)) or "none"
            raise RefusedRequestError(
                403, "path", f"{text[:200]!r} is in no allowed folder. Allowed: {folders}. Add one: --allow FOLDER."
            )
        path = Path(text).resolve()
        if not path.exists():
            raise RefusedRequestError(404, "missing_clip", f"There is no {text!r}.")
        if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
            raise RefusedRequestError(400, "usage", f"{text!r} is no regular file.")
        return path

    def _make_room(self, size: int) -> None:
        """Remove the uploads that were not used for longest, until there is room for one more."""
        with self._lock:
            folders = sorted((f for f in self._uploads.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime)
            sizes = [sum(path.stat().st_size for path in folder.iterdir()) for folder in folders]
            count, total = len(folders) + 1, sum(sizes) + size
            for folder, freed in zip(folders, sizes, strict=True):
                if total <= MOST_KEPT_BYTES and count <= MOST_KEPT:
                    return
                shutil.rmtree(folder, ignore_errors=True)
                count, total = count - 1, total - freed

    def _remove_drafts(self) -> None:
        """Remove what killed uploads have left."""
        for path in self._uploads.glob("draft-*"):
            if time.time() - path.stat().st_mtime > _DRAFT_SECONDS:
                path.unlink(missing_ok=True)


def _make_file_name(name: str) -> str:
    """Make a name that every system accepts and that means nothing to a page."""
    kept = _UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(" .")
    stem, dot, suffix = kept.rpartition(".")
    if not dot or f".{suffix.lower()}" not in VIDEO_SUFFIXES:
        stem, suffix = kept, "mp4"
    while len(stem.encode()) > _LONGEST_NAME:
        stem = stem[:-1]
    return f"{stem.rstrip(' .') or 'clip'}.{suffix}"


def _too_large() -> RefusedRequestError:
    return RefusedRequestError(
        413, "too_large", f"A clip of at most {MOST_UPLOAD_BYTES >> 30} GB can be uploaded. Use a path instead."
    )
