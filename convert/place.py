"""Files that get their names only when they are whole.

Knows temporary files, locks, syncing and renaming, free space, and what a killed run leaves behind. Refuses
to know what is written. A temporary file lies beside its final name and is called NAME.PID.vrt-part; it is
locked while its run lives, so that the next run can tell a leftover from a neighbour's work and remove it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows, where nobody can remove a file that is open: that is lock enough
    fcntl = None

SUFFIX = ".vrt-part"
SPARE_BYTES = 64 << 20  # metadata, padding, and not filling a disk to its last byte


@dataclass(frozen=True)
class Written:
    """One finished file."""

    path: Path
    size: int
    sha256: str


def describe(path: Path) -> Written:
    """Size and digest of a finished file."""
    with path.open("rb") as file:
        return Written(path, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def make_room(folder: Path, needed: int) -> None:
    """Remove killed runs' leftovers; raise UsageError if `needed` bytes do not fit then. Creates nothing."""
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(f"{existing} is a file, the result needs a folder")
    for path in folder.glob(f"*{SUFFIX}"):
        _remove_if_abandoned(path)
    needed += SPARE_BYTES
    if (free := shutil.disk_usage(existing).free) < needed:
        raise UsageError(f"{existing} has {free / 1e9:.1f} GB free, the result needs {needed / 1e9:.1f}")


@contextmanager
def placing(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary files to write. Synced and renamed to `paths` in order at the end; removed on any exception.

    A kill between two renames leaves the first file new and the second old: each is whole, the pair is not.
    """
    with ExitStack() as stack:
        parts = [stack.enter_context(_part(path)) for path in paths]
        yield parts
        for part in parts:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
        for folder in {path.parent for path in paths}:
            _sync_folder(folder)


@contextmanager
def _part(path: Path) -> Iterator[Path]:
    part = path.with_name(f"{path.name}.{os.getpid()}{SUFFIX}")
    lock = _create_locked(part)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def _create_locked(part: Path) -> int | None:
    """A handle that holds the lock until it is closed. The file stays the same when a writer truncates it."""
    while fcntl:
        handle = os.open(part, os.O_CREAT | os.O_RDWR, 0o666)
        with suppress(OSError):  # a file system without locks: leftovers stay there, nothing else is lost
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A neighbour may have taken it for a leftover between these two calls.
        with suppress(FileNotFoundError):
            if os.path.samestat(part.stat(), os.fstat(handle)):
                return handle
        os.close(handle)
    part.touch()
    return None


def _remove_if_abandoned(part: Path) -> None:
    with suppress(OSError):  # it is gone by now, or locked, or open on Windows
        if fcntl is None:
            part.unlink()
            return
        with part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _sync_folder(folder: Path) -> None:
    """Names survive a power cut too. Windows cannot open a folder and does this by itself."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
