"""Keeps vision embeddings by name, in memory and on disk. They are read back bit for bit.

    FOLDER/<digest>.embedding   one array: header (magic, version, shape, checksum), then its bytes
    FOLDER/new/                 the same while it is written

There is no lock, and nothing is flushed. A file is written in new/ and renamed, and its checksum covers its name, shape
and bytes: what a dead process or a power loss leaves fails the check and counts as absent. Two processes that write one
name write the same bytes. If the disk cannot be written, the cache is in memory alone. Links and files with other names
are not touched. The name of an embedding must contain everything that its value depends on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
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

from vrt_lite.disk import home
from vrt_lite.errors import UsageError

SIZE_VARIABLE: Final = "VRT_LITE_CACHE_MB"
MEMORY_BYTES: Final = 512 * 2**20
DISK_BYTES: Final = 2_000_000_000
LEAST_FREE_BYTES: Final = 64 * 2**20
"""The cache leaves these to the store of runs and to other programs."""

_HEADER = struct.Struct("<7sBII16s")
_MAGIC, _VERSION = b"vrt-emb", 1
_ENTRY = re.compile(r"[0-9a-f]{40}\.embedding")
_UNFINISHED = re.compile(r"[0-9a-f]{40}\.[0-9a-f]{16}")
_LEFT_BEHIND_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Disk:
    """Where embeddings are kept between runs, and how many bytes of them at most."""

    folder: Path
    most_bytes: int = DISK_BYTES


def cache_folder() -> Path:
    """The user's folder for embeddings; it may not exist yet."""
    return home() / "embeddings"


def users_disk(megabytes: int | None = None) -> Disk | None:
    """The user's folder and its limit, else VRT_LITE_CACHE_MB; None if that is 0. UsageError if it is no number."""
    given = str(megabytes) if megabytes is not None else os.environ.get(SIZE_VARIABLE) or str(DISK_BYTES // 10**6)
    if not (given.isascii() and given.isdigit()):
        raise UsageError(f"{SIZE_VARIABLE} is {given!r}; give a whole number of megabytes, or 0 to keep nothing.")
    return Disk(cache_folder(), int(given) * 10**6) if int(given) else None


class EmbeddingCache:
    """Embeddings by key, in memory and, with a `disk`, between runs. For one thread at a time.

    The value of a key never changes. `namespace` gives everything else that the values depend on; it is called once,
    when the disk is first needed. The caller limits the memory with `trim`, when nothing is in use.
    """

    def __init__(
        self, disk: Disk | None = None, *, namespace: Callable[[], str] = str, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._disk = disk
        self._find_namespace = functools.cache(namespace)
        self._memory: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._memory_used = 0
        self._memory_bytes = memory_bytes
        self._writable = disk is not None
        self._before_sweep = 0  # bytes that may be written before the folder is checked again

    def get(self, key: str) -> NDArray[np.float32] | None:
        """The embedding, shape (tokens, width), not to be written to; None if it is not there. Counts as a use."""
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        array = _read(self._disk, self._name(key)) if self._disk else None
        if array is not None:
            self._hold(key, array)
        return array

    def holds(self, key: str) -> bool:
        """Whether it is there; it then stays in memory until the next `trim`."""
        return self.get(key) is not None

    def put(self, key: str, array: NDArray[np.float32]) -> None:
        """Keep an embedding, shape (tokens, width); the cache owns the array then. A disk error is no failure."""
        self._hold(key, array)
        if self._disk and self._writable:
            try:
                self._write(self._disk, self._name(key), array)
            except OSError:
                self._writable = False

    def trim(self, keep: frozenset[str] = frozenset()) -> None:
        """Drop the least recently used from memory until its limit is met, never those in `keep`."""
        for key in list(self._memory):
            if self._memory_used <= self._memory_bytes:
                return
            if key not in keep:
                self._memory_used -= self._memory.pop(key).nbytes

    def forget(self) -> None:
        """Drop everything from memory; the disk stays as it is."""
        self._memory.clear()
        self._memory_used = 0

    def _hold(self, key: str, array: NDArray[np.float32]) -> None:
        if key in self._memory:
            self._memory_used -= self._memory.pop(key).nbytes
        view = array.view()
        view.flags.writeable = False
        self._memory[key] = view
        self._memory_used += view.nbytes

    def _name(self, key: str) -> str:
        return hashlib.blake2b(f"{self._find_namespace()}\n{key}".encode(), digest_size=20).hexdigest()

    def _write(self, disk: Disk, name: str, array: NDArray[np.float32]) -> None:
        """Put an array on the disk, unless it would push out all others. Raises OSError.

        Checking all files for each new one would cost more than writing it. So the folder is swept before a cache's
        first file, and then each time a 32nd part of the limit is written. At least three such parts stay free for
        what other processes write meanwhile.
        """
        data = _encode(name, array)
        if len(data) > disk.most_bytes // 2:
            return
        if len(data) > self._before_sweep:
            _sweep(disk, len(data))
            self._before_sweep = max(disk.most_bytes // 32, len(data))
        self._before_sweep -= len(data)
        if shutil.disk_usage(disk.folder).free - len(data) < LEAST_FREE_BYTES:
            return
        draft = disk.folder / "new" / f"{name}.{os.urandom(8).hex()}"
        try:
            with draft.open("xb") as file:
                file.write(data)
            _move(draft, _place(disk, name))
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def usage(folder: Path) -> tuple[int, int]:
    """How many embeddings are in a folder, and the bytes that the cache takes there."""
    entries, unfinished = list(_files(folder, _ENTRY)), list(_files(folder / "new", _UNFINISHED))
    return len(entries), sum(file.bytes for file in entries + unfinished)


def clear(folder: Path) -> None:
    """Delete what the cache has written, and nothing else. Safe while others use it. Raises OSError."""
    for file in [*_files(folder, _ENTRY), *_files(folder / "new", _UNFINISHED)]:
        file.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, order=True)
class _File:
    used_nanoseconds: int
    bytes: int
    path: Path


def _files(folder: Path, pattern: re.Pattern[str]) -> Iterator[_File]:
    """Regular files with such names; none if the folder does not exist. Files that vanish meanwhile are left out."""
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
    """Read an array from the disk and mark its file as used. A file that fails its check is deleted."""
    path, array = _place(disk, name), None
    with contextlib.suppress(OSError):  # it vanished, or cannot be read, touched or deleted
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            # A file larger than the limit for all is not ours, and might not fit into memory.
            array = _decode(path.read_bytes(), name) if status.st_size <= disk.most_bytes else None
            if array is None:
                path.unlink()
            else:
                os.utime(path)
    return array


def _encode(name: str, array: NDArray[np.float32]) -> bytes:
    payload = array.astype("<f4", copy=False).tobytes()
    rows, columns = array.shape
    return _HEADER.pack(_MAGIC, _VERSION, rows, columns, _checksum(name, rows, columns, payload)) + payload


def _decode(data: bytes, name: str) -> NDArray[np.float32] | None:
    """The array in a file's bytes; None if they are not a whole file of that name."""
    if len(data) < _HEADER.size:
        return None
    magic, version, rows, columns, checksum = _HEADER.unpack_from(data)
    payload = memoryview(data)[_HEADER.size :]
    if (magic, version) != (_MAGIC, _VERSION) or len(payload) != 4 * rows * columns:
        return None
    if _checksum(name, rows, columns, payload) != checksum:
        return None
    return np.frombuffer(payload, "<f4").astype(np.float32, copy=False).reshape(rows, columns)


def _move(draft: Path, place: Path) -> None:
    """Rename a whole file to its place, unless something there is not a regular file."""
    # On Windows a file that is being read is not replaced. It has the same name, and so the same bytes.
    with contextlib.suppress(OSError):
        if not os.path.lexists(place) or stat.S_ISREG(place.lstat().st_mode):
            draft.replace(place)


def _sweep(disk: Disk, size: int) -> None:
    """Make room for `size` bytes: delete what dead processes left, and the least recently used files.

    An eighth of the limit stays free. Raises OSError if the folder cannot be made.
    """
    disk.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (disk.folder / "new").mkdir(mode=0o700, exist_ok=True)
    used = size
    for file in _files(disk.folder / "new", _UNFINISHED):
        if time.time_ns() - file.used_nanoseconds > _LEFT_BEHIND_SECONDS * 10**9:
            _delete(file)
        else:
            used += file.bytes
    entries = sorted(_files(disk.folder, _ENTRY))
    used += sum(file.bytes for file in entries)
    for file in entries:
        if used <= disk.most_bytes - disk.most_bytes // 8:
            return
        used -= file.bytes if _delete(file) else 0


def _delete(file: _File) -> bool:
    """Delete a file; False if it is being read, on Windows."""
    with contextlib.suppress(OSError):
        file.path.unlink(missing_ok=True)
        return True
    return False
