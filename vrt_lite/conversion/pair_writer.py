"""Writes a planned pair shard by shard, in any order. A run that was stopped goes on where it was.

Both files have their final size from the start. Beside them is a journal: the plan's digest, then a line for each
tensor that is on disk. A line is written after the tensor's bytes are synced. So what the journal lists is there after
a kill or a power cut, and all else is written again. A line ends in a full stop: one that was cut off counts as none.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from vrt_lite.conversion.gguf_writer import encoded_blocks
from vrt_lite.conversion.pair_files import check_profile
from vrt_lite.conversion.pair_plan import PairPlan, Place
from vrt_lite.conversion.shards import StoredTensor
from vrt_lite.conversion.whole_files import FinishedFile, check_space, describe, sync_folder
from vrt_lite.disk import locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.profile import PROFILE_NAME

UNFINISHED: Final = ".vrt-unfinished"
JOURNAL: Final = ".vrt-journal"
_WHOLE = "whole."
_SYNC_BYTES = 256 << 20
"""Written bytes after which tensors are synced and recorded."""


class PairWriter:
    """Writes the files of a plan in `folder`. One process at a time works there; another waits.

    Raises UsageError for a full disk, and for another model's profile in `folder`.
    """

    def __init__(self, plan: PairPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._paths = [folder / planned.file.path for planned in plan.files]
        # Pairs of several text types share the projector's final name, but no unfinished file.
        name = self._paths[0].name
        self._parts = [folder / f"{name}.{i}{UNFINISHED}" for i in range(len(self._paths))]
        self._journal = folder / f"{name}{JOURNAL}"
        self._stack = ExitStack()
        self._files: list[FileIO] = []
        self._done: set[Place] = set()
        self._written: list[Place] = []
        self._whole = False

    def __enter__(self) -> Self:
        with ExitStack() as stack, _disk_errors(self._folder):
            check_profile(self._plan.profile, self._folder)
            key = hashlib.sha256(str(self._journal.resolve()).encode()).hexdigest()
            stack.enter_context(locked(f"convert-{key[:16]}"))
            if not self._resume():
                self._begin()
            if not self._whole:
                self._files = [stack.enter_context(part.open("r+b", buffering=0)) for part in self._parts]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def done_bytes(self) -> int:
        """Bytes of the tensors that are written."""
        return sum(self._plan.files[i].file.targets[j].size for i, j in self._done)

    def missing_shards(self) -> tuple[str, ...]:
        """Return the shards of which a tensor is not written yet."""
        return tuple(shard for shard in self._plan.shards if not self._done.issuperset(self._plan.places(shard)))

    def write_shard(self, path: Path, advance: Callable[[int], None] = lambda size: None) -> None:
        """Convert what is not written yet of this shard. When it returns, all of it is on disk and recorded.

        `advance` is called with the bytes of each block. Raises ModelError if the file is not the shard that was
        planned, or has a weight that cannot be stored.
        """
        stored = self._plan.read_shard(path)
        unsynced = 0
        with _disk_errors(self._folder):
            try:
                for place in self._plan.places(path.name):
                    if place not in self._done:
                        unsynced += self._write(place, stored, advance)
                    if unsynced > _SYNC_BYTES:
                        unsynced = self._record()
            except BaseException:
                with suppress(OSError):
                    self._record()
                raise
            self._record()

    def finish(self) -> list[FinishedFile]:
        """Give both files their names, once every tensor is written; returns them and a copied profile.

        Raises ModelError if a shard is missing.
        """
        if missing := self.missing_shards():
            raise ModelError(f"{len(missing)} shards are not converted yet, first {missing[0]}")
        with _disk_errors(self._folder):
            if not self._whole:
                self._append(_WHOLE)
            for file in self._files:
                file.close()
            paths = list(self._paths)
            if self._plan.profile:
                paths.append(self._folder / PROFILE_NAME)
                write_file(paths[-1], self._plan.profile)
            for part, path in zip(self._parts, self._paths, strict=True):
                with suppress(FileNotFoundError):  # an earlier run was stopped between two of these
                    part.replace(path)
            sync_folder(self._folder)
            self._journal.unlink()
        return [describe(path) for path in paths]

    def _resume(self) -> bool:
        """Take over what an earlier run of this plan recorded; returns whether there is anything."""
        try:
            digest, *lines = self._journal.read_text("utf-8").split("\n")
        except (OSError, ValueError):
            return False
        if digest != f"{self._plan.digest}.":
            return False
        self._whole = _WHOLE in lines
        # A whole file may have its final name already.
        found = zip(self._parts, self._paths, strict=True)
        there = [path if self._whole and not part.exists() else part for part, path in found]
        if [path.stat().st_size if path.is_file() else -1 for path in there] != [f.size for f in self._plan.files]:
            return False
        every = [(i, j) for i, planned in enumerate(self._plan.files) for j in range(len(planned.offsets))]
        self._done = {(i, j) for i, j in every if self._whole or f"{i} {j}." in lines}
        check_space(self._folder, 0 if self._whole else self._plan.size - sum(map(_bytes_on_disk, self._parts)))
        return True

    def _begin(self) -> None:
        """Create both files with their headers, then the journal."""
        for path in (self._journal, *self._parts):
            path.unlink(missing_ok=True)
        check_space(self._folder, self._plan.size)
        self._folder.mkdir(parents=True, exist_ok=True)
        for part, planned in zip(self._parts, self._plan.files, strict=True):
            with part.open("wb") as file:
                file.write(planned.header)
                file.truncate(planned.size)
                file.flush()
                os.fsync(file.fileno())
        write_file(self._journal, f"{self._plan.digest}.".encode())
        sync_folder(self._folder)

    def _write(self, place: Place, stored: dict[str, StoredTensor], advance: Callable[[int], None]) -> int:
        i, j = place
        target = self._plan.files[i].file.targets[j]
        target = replace(target, stored=target.stored.moved_to(stored[target.source]))
        file = self._files[i]
        file.seek(self._plan.files[i].offsets[j])
        for block in encoded_blocks(target):
            rest = block.data.cast("B")
            while rest:
                rest = rest[file.write(rest) :]
            advance(block.nbytes)
        self._written.append(place)
        return target.size

    def _record(self) -> int:
        """Sync what was written, then list it in the journal; returns the bytes that are not synced: none."""
        if self._written:
            for file in self._files:
                os.fsync(file.fileno())
            self._append(*(f"{i} {j}." for i, j in self._written))
            self._done.update(self._written)
            self._written.clear()
        return 0

    def _append(self, *lines: str) -> None:
        with self._journal.open("ab") as file:
            file.write("".join(f"\n{line}" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())


def _bytes_on_disk(path: Path) -> int:
    """Return how much of a file takes space already: at its start it is one hole."""
    found = path.stat()
    return min(getattr(found, "st_blocks", 0) * 512, found.st_size)


@contextmanager
def _disk_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(f"{folder}: the disk is full. Free some space and run again: it goes on") from error
        where = f"{error.filename or folder}: {error.strerror or error}"
        raise UsageError(f"{where}. Mend this or give another folder, and run again: it goes on") from error
