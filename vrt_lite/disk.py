"""Files on disk, alike on every system: the user's folders, digests, writing a file whole or not at all, locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import select
import stat
import sys
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final

from vrt_lite.errors import ModelError

HOME_VARIABLE: Final = "VRT_LITE_HOME"
_SETTINGS_NAME: Final = "config.toml"
_WRITER_SECONDS = 10.0
_PLAIN = re.compile(r'[^\x00-\x1f\\/:*?"<>|]+')


def home() -> Path:
    """VRT_LITE_HOME, else the user's folder for files that can be downloaded again."""
    return _find_folder("XDG_CACHE_HOME", ".cache")


def data_home() -> Path:
    """VRT_LITE_HOME, else the user's folder for results that took time to make."""
    return _find_folder("XDG_DATA_HOME", ".local/share")


def _find_folder(variable: str, default: str) -> Path:
    if own := os.environ.get(HOME_VARIABLE):
        return Path(own)
    if sys.platform == "win32":
        variable, default = "LOCALAPPDATA", "AppData/Local"
    return Path(os.environ.get(variable) or Path.home() / default) / "vrt-lite"


def settings_path() -> Path:
    """The file of the user's settings, in VRT_LITE_HOME or else where this system keeps settings; it may not exist."""
    if own := os.environ.get(HOME_VARIABLE):
        return Path(own) / _SETTINGS_NAME
    from platformdirs import user_config_path  # noqa: PLC0415 - not where one folder holds everything

    return user_config_path("vrt-lite", appauthor=False) / _SETTINGS_NAME


def is_plain_name(name: str) -> bool:
    """Whether a file of this name stays inside its folder, on every system."""
    return _PLAIN.fullmatch(name) is not None and name not in (".", "..") and name == name.strip().rstrip(".")


def file_sha256(path: Path) -> str:
    """Digest of a file's bytes, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def allocated_bytes(path: Path) -> int:
    """The bytes that a file takes on the disk, which may be less than its size; 0 for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    blocks = getattr(status, "st_blocks", status.st_size)  # Windows has none
    return min(status.st_size, 512 * blocks) if stat.S_ISREG(status.st_mode) else 0


def open_to_read(path: Path) -> BinaryIO:
    """Open a file for its bytes. Raises OSError, for a pipe also if no program opens its other end in ten seconds."""
    if not path.is_fifo():
        return path.open("rb")
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not select.select([file], [], [], _WRITER_SECONDS)[0]:
        file.close()
        raise TimeoutError(errno.ETIMEDOUT, "it is a pipe, and nothing writes into it", str(path))
    os.set_blocking(file.fileno(), True)
    return file


@contextlib.contextmanager
def draft_of(path: Path, *, replace: bool = True) -> Generator[Path]:
    """Yield a new, empty file to write to: it becomes `path` when the block ends, and is deleted if the block fails.

    `path` is never half written, even if the process is killed. What is there is replaced only if it is a regular file,
    and with `replace` off not at all. Raises OSError.
    """
    _check_regular(path)
    draft = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        draft.touch(exist_ok=False)
        yield draft
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


@contextlib.contextmanager
def locked(name: str) -> Generator[bool]:
    """Hold the lock of that name against other processes; yields whether this process had to wait for it.

    The system frees it when a process dies. `name` is a plain file name, or two with a slash between them.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only where something is fetched or removed

    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name.replace("/", "--"))
    try:
        lock.acquire(timeout=0)
        waited = False
    except Timeout:
        lock.acquire()
        waited = True
    try:
        yield waited
    finally:
        lock.release()
