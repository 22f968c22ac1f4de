"""Files on disk, alike on every system: the user's folders, digests, writing a file whole or not at all, locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Final

from vrt_lite.errors import ModelError
from vrt_lite.shortage import shortage_of

HOME_VARIABLE: Final = "VRT_LITE_HOME"
_PLAIN = re.compile(r'[^\x00-\x1f\\/:*?"<>|]+')


def home() -> Path:
    """VRT_LITE_HOME, else the user's folder for files that can be downloaded again."""
    return _find_folder("cache")


def data_home() -> Path:
    """VRT_LITE_HOME, else the user's folder for results that took time to make."""
    return _find_folder("data")


def settings_path() -> Path:
    """The file of the user's settings, in VRT_LITE_HOME or else where this system keeps settings; it may not exist."""
    return _find_folder("config") / "config.toml"


def _find_folder(kind: str) -> Path:
    if own := os.environ.get(HOME_VARIABLE):
        return Path(own)
    from platformdirs import PlatformDirs  # noqa: PLC0415 - not where one folder holds everything

    return Path(getattr(PlatformDirs("vrt-lite", appauthor=False), f"user_{kind}_dir"))


def is_plain_name(name: str) -> bool:
    """Whether a file of this name stays inside its folder, on every system."""
    return _PLAIN.fullmatch(name) is not None and name not in (".", "..") and name == name.strip().rstrip(".")


def file_sha256(path: Path) -> str:
    """Digest of a file's bytes, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file for its bytes: a pipe might never end. Raises OSError, ShortageError."""
    _check_regular(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise shortage_of(error) or error from error


@contextlib.contextmanager
def draft_of(path: Path, *, replace: bool = True, flush: bool = True) -> Generator[Path]:
    """Yield a new, empty file to write to: it becomes `path` when the block ends, and is deleted if the block fails.

    `path` is never half written, even if the process is killed. What is there is replaced only if it is a regular file,
    and with `replace` off not at all. With `flush` off a loss of power may leave it damaged. Raises OSError.
    """
    _check_regular(path)
    draft = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        draft.touch(exist_ok=False)
        yield draft
        if flush:
            with draft.open("r+b") as file:
                os.fsync(file.fileno())
        if not replace:
            path.touch(exist_ok=False)
        _check_regular(path)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _check_regular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is there, and is no regular file", str(path))


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole, or keep the old one. Raises OSError."""
    with draft_of(path) as draft:
        draft.write_bytes(data)


@contextlib.contextmanager
def disk_errors() -> Generator[None]:
    """Turn an OSError into a ModelError: one line with the next step."""
    try:
        yield
    except OSError as error:
        what = error.filename or home()
        raise ModelError(
            f"{what}: {error.strerror or error}. Make it writable, or set {HOME_VARIABLE} to another folder."
        ) from error


def locked(name: str, on_wait: Callable[[], object] = lambda: None) -> AbstractContextManager[object]:
    """Hold the lock of that name against other processes, and wait for it. The system frees it when a process dies.

    `on_wait` is called once, before this process waits. `name` is a plain file name, or two with a slash between them.
    Raises OSError.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only where something is fetched or removed

    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name.replace("/", "--"))
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        on_wait()
        return lock
