"""Vision embeddings kept by name, in memory and on disk: what was encoded once is read back bit for bit.

Knows names, arrays and files; refuses to know what an embedding shows and what its value depends on: whoever names it
puts all of that into the name.

    FOLDER/<digest>.embedding   one array: header (magic, version, shape, checksum), then its bytes
    FOLDER/new/                 the same while it is written
    FOLDER/written              a byte for every 4 KiB written since the folder was last swept

No lock, and nothing is flushed. A file is written beside its place and renamed, and its checksum covers its name, shape
and bytes: what a dead process or a power loss leaves fails the check and counts as absent. Two processes that write one
name write the same bytes. What cannot be written is not kept: with a full disk or a folder that cannot be written, the
cache is one in memory. Links and files of other names are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from vrt_lite.errors import UsageError
from vrt_lite.models.store import home

SIZE_VARIABLE: Final = "VRT_LITE_CACHE_MB"
MEMORY_BYTES: Final = 512 * 2**20
DISK_BYTES: Final = 2_000_000_000

_HEADER = struct.Struct("<7sBII16s")
_MAGIC, _VERSION = b"vrt-emb", 1
_ENTRY = re.compile(r"[0-9a-f]{40}\.embedding")
_UNFINISHED = re.compile(r"[0-9a-f]{40}\.[0-9a-f]{16}")
_BLOCK = 4096
_LEFT_BEHIND_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Disk:
    """Where embeddings are kept between runs, and how many bytes of them at most."""

    folder: Path
    most_bytes: int = DISK_BYTES


def cache_folder() -> Path:
    """The user's folder for embeddings; it need not be there."""
    return home() / "embeddings"


def users_disk() -> Disk | None:
    """The user's folder and its bound, VRT_LITE_CACHE_MB; None if that is 0. UsageError if it is no number."""
    given = os.environ.get(SIZE_VARIABLE) or str(DISK_BYTES // 10**6)
    if not (given.isascii() and given.isdigit()):
        raise UsageError(f"{SIZE_VARIABLE} is {given!r}; give a whole number of megabytes, or 0 to keep nothing.")
    return Disk(cache_folder(), int(given) * 10**6) if int(given) else None


class EmbeddingCache:
    """Embeddings by key, in memory and, with a `disk`, between runs. For one thread at a time.

    One key has one value for all time: `namespace` says everything that the values depend on beside the key. It is
    asked once, when the disk is first needed. Memory is bounded by `trim`, which its user calls when nothing is in use.
    """

    def __init__(
        self, disk: Disk | None = None, *, namespace: Callable[[], str] = str, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._disk = disk
        self._ask_namespace = namespace
        self._namespace: str | None = None
        self._memory: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._held_bytes = 0
        self._memory_bytes = memory_bytes
        self._writable: bool | None = None  # not known before the first try

    def get(self, key: str) -> NDArray[np.float32] | None:
        """The embedding, shape (tokens, width), not to be written to; None if it is not there. Counts as a use."""
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        found = _read(self._disk, self._name(key)) if self._disk else None
        if found is not None:
            self._hold(key, found)
        return found

    def holds(self, key: str) -> bool:
        """Whether it is there; it then stays in memory until the next `trim`."""
        return self.get(key) is not None

    def put(self, key: str, array: NDArray[np.float32]) -> None:
        """Keep an embedding, shape (tokens, width); the array is the cache's from now on. Never fails for the disk."""
        self._hold(key, array)
        if self._disk and self._writable is not False:
            self._writable = _write(self._disk, self._name(key), array, first=self._writable is None)

    def trim(self, keep: frozenset[str] = frozenset()) -> None:
        """Drop from memory the least recently used beyond its bound, never those in `keep`."""
        for key in list(self._memory):
            if self._held_bytes <= self._memory_bytes:
                return
            if key not in keep:
                self._held_bytes -= self._memory.pop(key).nbytes

    def forget(self) -> None:
        """Drop everything from memory; the disk stays as it is."""
        self._memory.clear()
        self._held_bytes = 0

    def _hold(self, key: str, array: NDArray[np.float32]) -> None:
        if key in self._memory:
            self._held_bytes -= self._memory.pop(key).nbytes
        view = array.view()
        view.flags.writeable = False
        self._memory[key] = view
        self._held_bytes += view.nbytes

    def _name(self, key: str) -> str:
        if self._namespace is None:
            self._namespace = self._ask_namespace()
        return hashlib.blake2b(f"{self._namespace}\n{key}".encode(), digest_size=20).hexdigest()


def usage(folder: Path) -> tuple[int, int]:
    """How many embeddings lie in a folder, and the bytes that the cache takes there."""
    entries, unfinished = list(_files(folder, _ENTRY)), list(_files(folder / "new", _UNFINISHED))
    return len(entries), sum(file.bytes for file in entries + unfinished)


def clear(folder: Path) -> None:
    """Delete what the cache has written; nothing else. Safe while others use it. Raises OSError."""
    for file in [*_files(folder, _ENTRY), *_files(folder / "new", _UNFINISHED)]:
        file.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, order=True)
class _File:
    used_nanoseconds: int
    bytes: int
    path: Path


def _files(folder: Path, pattern: re.Pattern[str]) -> Iterator[_File]:
    """Regular files of such names. One that vanishes meanwhile is not there; a folder that is none is empty."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield _File(status.st_mtime_ns, status.st_size, Path(entry.path))


def _place(disk: Disk, name: str) -> Path:
    return disk.folder / f"{name}.embedding"


def _checksum(name: str, rows: int, columns: int, payload: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(f"{name} {rows} {columns} ".encode(), digest_size=16)
    digest.update(payload)
    return digest.digest()


def _read(disk: Disk, name: str) -> NDArray[np.float32] | None:
    """An array from the disk, which counts as a use of its file; a file that fails its check is deleted."""
    path, found = _place(disk, name), None
    with contextlib.suppress(OSError):  # it vanished, or cannot be read, touched or deleted
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            # A file larger than all of them together is none of ours, and might not fit into memory.
            found = _decoded(path.read_bytes(), name) if status.st_size <= disk.most_bytes else None
            if found is None:
                path.unlink()
            else:
                os.utime(path)
    return found


def _decoded(data: bytes, name: str) -> NDArray[np.float32] | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, rows, columns, checksum = _HEADER.unpack_from(data)
    payload = memoryview(data)[_HEADER.size :]
    if (magic, version) != (_MAGIC, _VERSION) or len(payload) != 4 * rows * columns:
        return None
    if _checksum(name, rows, columns, payload) != checksum:
        return None
    return np.frombuffer(payload, "<f4").astype(np.float32, copy=False).reshape(rows, columns)


def _write(disk: Disk, name: str, array: NDArray[np.float32], *, first: bool) -> bool:
    """Put an array on the disk; False if the folder cannot be written. `first` is a process's first time."""
    rows, columns = array.shape
    payload = array.astype("<f4", copy=False).tobytes()
    header = _HEADER.pack(_MAGIC, _VERSION, rows, columns, _checksum(name, rows, columns, payload))
    size = len(header) + len(payload)
    if size > disk.most_bytes // 2:
        return True  # it would push out all others
    beside = disk.folder / "new" / f"{name}.{os.urandom(8).hex()}"
    try:
        if first:
            disk.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.parent.mkdir(mode=0o700, exist_ok=True)
            _sweep_unfinished(disk.folder)
        _make_room(disk, size)
        with beside.open("xb") as file:
            file.writelines((header, payload))
        _move(beside, _place(disk, name))
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return True


def _move(beside: Path, place: Path) -> None:
    """Rename a whole file to its place, unless something that is not ours has it."""
    # On Windows a file that somebody is reading is not replaced; it is of the same name and so has the same bytes.
    with contextlib.suppress(OSError):
        if not os.path.lexists(place) or stat.S_ISREG(place.lstat().st_mode):
            beside.replace(place)


def _make_room(disk: Disk, size: int) -> None:
    """Note that so many bytes will be written, and delete what was not used for longest if that is too many.

    Looking at all files for each one written would cost more than the writing. So a note, of which appending is
    atomic, says how much may have been added since somebody looked, and a sixteenth of the bound is left free for
    that. A process killed between note and file leaves too high a note, never too low a one.
    """
    note, slack = disk.folder / "written", disk.most_bytes // 16
    if note.is_symlink():
        raise FileExistsError(note)
    with note.open("ab", buffering=0) as file:
        file.write(bytes(-(-size // _BLOCK)))
        noted = file.tell() * _BLOCK
    if noted > slack:
        _sweep_unfinished(disk.folder)
        _evict(disk.folder, disk.most_bytes - slack - size)
        note.write_bytes(b"")


def _evict(folder: Path, most_bytes: int) -> None:
    """Delete the least recently used until at most so many bytes are left; others may be deleting as well."""
    entries = sorted(_files(folder, _ENTRY))
    left = sum(file.bytes for file in entries) + sum(file.bytes for file in _files(folder / "new", _UNFINISHED))
    for file in entries:
        if left <= most_bytes:
            return
        with contextlib.suppress(OSError):  # on Windows, while somebody reads it
            file.path.unlink(missing_ok=True)
            left -= file.bytes


def _sweep_unfinished(folder: Path) -> None:
    """Delete what dead processes left half written: what nobody has written to for minutes."""
    for file in _files(folder / "new", _UNFINISHED):
        if time.time_ns() - file.used_nanoseconds > _LEFT_BEHIND_SECONDS * 10**9:
            with contextlib.suppress(OSError):
                file.path.unlink(missing_ok=True)
