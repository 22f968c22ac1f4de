"""Keeps vision embeddings by name, in memory and on disk. They are read back bit for bit.

    FOLDER/<digest>.embedding   one array: a checksum of its name, shape and bytes, then these
    FOLDER/.<random>.embedding  the same while it is written

There is no lock, and nothing is flushed. A file is renamed when it is written: what a dead process or a power loss
leaves fails the check and counts as absent, and goes as the oldest. Two processes that write one name write the same
bytes. If the disk cannot be written, the cache is in memory alone. Files with other names are not touched. The name of
an embedding must contain everything that its value depends on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from vrt_lite.disk import draft_of, home

MEMORY_BYTES: Final = 512 * 2**20
DISK_BYTES: Final = 2_000_000_000

_SHAPE = struct.Struct("<II")
_CHECKSUM_BYTES = 16
_OURS = re.compile(r"([0-9a-f]{40}|\.[0-9a-f]{16})\.embedding")


def cache_folder() -> Path:
    """The user's folder for embeddings; it may not exist yet."""
    return home() / "embeddings"


def most_bytes_of(megabytes: int | None) -> int:
    """The user's limit in bytes: 2000 megabytes if none is set."""
    return DISK_BYTES if megabytes is None else megabytes * 10**6


class EmbeddingCache:
    """Embeddings by key, in memory and, with a `folder`, between runs. For one thread at a time.

    The value of a key never changes. `namespace` gives everything else that the values depend on; it is called once,
    when the disk is first needed. The caller limits the memory with `trim`, when nothing is in use.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        most_bytes: int = DISK_BYTES,
        namespace: Callable[[], str] = str,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._find_namespace = functools.cache(namespace)
        self._memory: dict[str, NDArray[np.float32]] = {}  # the least recently used first
        self._memory_bytes = memory_bytes
        self._writable = True
        self._before_sweep = 0  # bytes that may be written before the folder is checked again

    def get(self, key: str) -> NDArray[np.float32] | None:
        """The embedding, shape (tokens, width), not to be written to; None if it is not there. Counts as a use.

        It then stays in memory until the next `trim`.
        """
        array = self._memory.pop(key, None)
        if array is None and self._folder:
            array = _read(self._folder / self._name_of(key))
        if array is not None:
            self._memory[key] = array
        return array

    def put(self, key: str, array: NDArray[np.float32]) -> None:
        """Keep an embedding, shape (tokens, width); the cache owns the array then. A disk error is no failure."""
        array.flags.writeable = False
        self._memory[key] = array
        if self._folder and self._writable:
            try:
                self._write(self._folder / self._name_of(key), array)
            except OSError:
                self._writable = False

    def trim(self, keep: frozenset[str] = frozenset()) -> None:
        """Drop the least recently used from memory until its limit is met, never those in `keep`."""
        used = sum(array.nbytes for array in self._memory.values())
        for key in [key for key in self._memory if key not in keep]:
            if used <= self._memory_bytes:
                return
            used -= self._memory.pop(key).nbytes

    def forget(self) -> None:
        """Drop everything from memory; the disk stays as it is."""
        self._memory.clear()

    def _name_of(self, key: str) -> str:
        digest = hashlib.blake2b(f"{self._find_namespace()}\n{key}".encode(), digest_size=20)
        return f"{digest.hexdigest()}.embedding"

    def _write(self, path: Path, array: NDArray[np.float32]) -> None:
        """Put an array on the disk, unless it is there or would push out all others. Raises OSError.

        Checking all files for each new one would cost more than writing it. So the folder is swept before a cache's
        first file, and then each time a 32nd part of the limit is written. At least three such parts stay free for
        what other processes write meanwhile.
        """
        body = _SHAPE.pack(*array.shape) + array.astype("<f4", copy=False).tobytes()
        size = _CHECKSUM_BYTES + len(body)
        if size > self._most_bytes // 2 or path.exists():  # another process may have written it, or be reading it
            return
        if size > self._before_sweep:
            _sweep(path.parent, size, self._most_bytes)
            self._before_sweep = max(self._most_bytes // 32, size)
        self._before_sweep -= size
        with draft_of(path, flush=False) as draft:
            draft.write_bytes(_checksum(path, body) + body)


def usage(folder: Path) -> tuple[int, int]:
    """How many embeddings are in a folder, and the bytes that the cache takes there."""
    files = _list(folder)
    return sum(path.name[0] != "." for _, _, path in files), sum(size for _, size, _ in files)


def clear(folder: Path) -> None:
    """Delete what the cache has written, and nothing else. Safe while others use it. Raises OSError."""
    for _, _, path in _list(folder):
        path.unlink(missing_ok=True)


def _list(folder: Path) -> list[tuple[int, int, Path]]:
    """Last use, bytes and path of each file of the cache, the oldest first; none if the folder does not exist."""
    found: list[tuple[int, int, Path]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it has vanished
                if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
    return sorted(found)


def _checksum(path: Path, body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES, key=path.stem.encode()).digest()


def _read(path: Path) -> NDArray[np.float32] | None:
    """Read an array from the disk and mark its file as used. A file that fails its check is deleted."""
    with contextlib.suppress(OSError):  # it vanished, or cannot be read, touched or deleted
        data = path.read_bytes()
        body = data[_CHECKSUM_BYTES:]
        if data[:_CHECKSUM_BYTES] != _checksum(path, body):
            path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return np.frombuffer(body, "<f4", offset=_SHAPE.size).reshape(_SHAPE.unpack_from(body))
    return None


def _sweep(folder: Path, size: int, most_bytes: int) -> None:
    """Make room for `size` bytes: the least recently used files go, until an eighth of the limit is free.

    Raises OSError if the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = _list(folder)
    used = size + sum(size for _, size, _ in files)
    for _, freed, path in files:
        if used <= most_bytes - most_bytes // 8:
            return
        with contextlib.suppress(OSError):  # on Windows: it is being read
            path.unlink(missing_ok=True)
            used -= freed
