"""Writes files that get their final names only when they are complete.

A temporary file is written beside its final name, as NAME.PID.vrt-part. It is locked while its run lives. So the next
run can tell the leftover of a killed run, which it removes, from the file of a run that still works.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.disk import file_sha256
from vrt_lite.errors import UsageError
from vrt_lite.machine import explain_full_disk

try:
    import fcntl
except ImportError:  # Windows: an open file cannot be removed there, so no lock is needed
    fcntl = None

SUFFIX = ".vrt-part"


@dataclass(frozen=True)
class FinishedFile:
    """One finished file."""

    path: Path
    size: int
    sha256: str


def describe(path: Path) -> FinishedFile:
    """Return size and digest of a finished file."""
    return FinishedFile(path, path.stat().st_size, file_sha256(path))


def check_space(folder: Path, needed: int) -> None:
    """Remove the leftovers of killed runs, then check that `needed` bytes fit. Raises UsageError."""
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(f"{existing} is a file, the result needs a folder")
    for path in folder.glob(f"*{SUFFIX}"):
        _remove_if_abandoned(path)
    check_room(existing, needed)


def check_room(folder: Path, needed: int) -> None:
    """Check that `needed` bytes fit on the disk of a folder, with some to spare. Raises UsageError."""
    if reason := explain_full_disk(folder, needed):
        raise UsageError(f"{reason} Free some, or name a folder on another disk.")


@contextmanager
def write_whole_files(paths: Sequence[Path]) -> Generator[list[Path]]:
    """Give temporary files to write.

    At the end they are synced and renamed to `paths`; on an exception they are removed.

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
            sync_folder(folder)


@contextmanager
def _part(path: Path) -> Generator[Path]:
    part = path.with_name(f"{path.name}.{os.getpid()}{SUFFIX}")
    lock = _create_locked(part)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def _create_locked(part: Path) -> int | None:
    """Create a locked file. The lock ends when the handle is closed, and survives when a writer truncates the file."""
    while fcntl:
        handle = os.open(part, os.O_CREAT | os.O_RDWR, 0o666)
        with suppress(OSError):  # a file system without locks: leftovers of killed runs stay there
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed it as a leftover between these two calls.
        with suppress(FileNotFoundError):
            if os.path.samestat(part.stat(), os.fstat(handle)):
                return handle
        os.close(handle)
    part.touch()
    return None


def _remove_if_abandoned(part: Path) -> None:
    with suppress(OSError):  # it is removed already, or locked, or open on Windows
        if fcntl is None:
            part.unlink()
            return
        with part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that new names survive a power cut. Windows cannot open a folder and needs no flush."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
