"""The one writer of GGUF files: shard by shard, in any order. A run that was stopped goes on with the next shard.

Each file has its final size from the start. Beside them is a journal: the plan's digest, then a line for each shard of
which all is on disk, written once its bytes are synced. So a kill or a power cut costs one shard. A line that was cut
off has no end, and does not count.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from vrt_lite.conversion.gguf_writer import encoded_blocks
from vrt_lite.conversion.pair_plan import PairPlan
from vrt_lite.disk import allocated_bytes, file_sha256, locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import explain_full_disk
from vrt_lite.profile import PROFILE_NAME

UNFINISHED: Final = ".vrt-unfinished"
JOURNAL: Final = ".vrt-journal"


@dataclass(frozen=True)
class FinishedFile:
    """One finished file."""

    path: Path
    size: int
    sha256: str


def describe(path: Path) -> FinishedFile:
    """Return size and digest of a finished file."""
    return FinishedFile(path, path.stat().st_size, file_sha256(path))


def write_planned(
    plan: PairPlan, out: Path, source: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[FinishedFile]:
    """Write the files of a plan whose shards are all in `source`. `progress` is called with bytes done and in all.

    Raises ModelError for a weight that cannot be stored, and then leaves nothing; UsageError as `PairWriter`.
    """
    for shard in plan.shards:
        if not (source / shard).is_file():
            raise ModelError(f"{source / shard} is missing: download the shard, or the whole checkpoint folder")
        plan.tensors_from(source / shard)  # raises for a damaged table before anything is written
    with PairWriter(plan, out) as writer:
        missing, total = writer.missing_shards(), plan.weight_bytes(plan.shards)
        done = total - plan.weight_bytes(missing)

        def advance(size: int) -> None:
            nonlocal done
            done += size
            progress(done, total)

        try:
            for shard in missing:
                writer.write_shard(source / shard, advance)
        except ModelError:
            writer.discard()
            raise
        return writer.finish()


class PairWriter:
    """Writes the files of a plan in `folder`. One process at a time works there; another waits.

    Raises UsageError for a full disk, and for another model's profile in `folder`.
    """

    def __init__(self, plan: PairPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        # Pairs of several text types share the projector's final name, but no unfinished file.
        first = plan.files[0].name
        self._parts = [folder / f"{first}.{i}{UNFINISHED}" for i in range(len(plan.files))]
        self._paths = [folder / file.name for file in plan.files]
        self._journal = folder / f"{first}{JOURNAL}"
        self._done: list[str] = []
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack, _disk_errors(self._folder):
            profile = self._folder / PROFILE_NAME
            if self._plan.profile and profile.is_file() and profile.read_bytes() != self._plan.profile:
                raise UsageError(f"{profile} is another profile than the checkpoint's: give another folder")
            key = hashlib.sha256(str(self._journal.resolve()).encode()).hexdigest()
            stack.enter_context(locked(f"convert-{key[:16]}"))
            self._done = self._read_journal()
            if not self._done:
                self._begin()
            elif self.missing_shards():
                _check_space(self._folder, self._plan.size - sum(map(allocated_bytes, self._parts)))
            self._lock = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def missing_shards(self) -> list[str]:
        """Return the shards that are not converted yet."""
        return [shard for shard in self._plan.shards if shard not in self._done]

    def write_shard(self, path: Path, advance: Callable[[int], None] = lambda size: None) -> None:
        """Convert a shard. When it returns, all of it is on disk and recorded.

        `advance` is called with the bytes of each block. Raises ModelError if the file is not the shard that was
        planned, or has a weight that cannot be stored.
        """
        made = self._plan.tensors_from(path)
        with _disk_errors(self._folder):
            for part, tensors in zip(self._parts, made, strict=True):
                with part.open("r+b") as file:
                    for offset, target in tensors:
                        file.seek(offset)
                        for block in encoded_blocks(target):
                            file.write(block.data)
                            advance(block.nbytes)
                    file.flush()
                    os.fsync(file.fileno())
            self._done.append(path.name)
            with self._journal.open("ab") as journal:
                journal.write(f"{path.name}\n".encode())
                journal.flush()
                os.fsync(journal.fileno())

    def finish(self, *, keep_journal: bool = False) -> list[FinishedFile]:
        """Give the files their names, once every shard is converted; returns them and a copied profile.

        With the journal kept, another writer of this plan finds all done. Raises ModelError if a shard is missing.
        """
        if missing := self.missing_shards():
            raise ModelError(f"{len(missing)} shards are not converted yet, first {missing[0]}")
        with _disk_errors(self._folder):
            paths = list(self._paths)
            if self._plan.profile:
                paths.append(self._folder / PROFILE_NAME)
                write_file(paths[-1], self._plan.profile)
            for part, path in zip(self._parts, self._paths, strict=True):
                with suppress(FileNotFoundError):  # an earlier run was stopped between two of these
                    part.replace(path)
            if not keep_journal:
                self._journal.unlink()
        return [describe(path) for path in paths]

    def discard(self) -> None:
        """Delete what is not finished."""
        for path in (self._journal, *self._parts):
            path.unlink(missing_ok=True)

    def _read_journal(self) -> list[str]:
        """Return the shards that an earlier run of this plan has converted."""
        try:
            digest, *done = self._journal.read_text("utf-8").split("\n")[:-1]
        except (OSError, ValueError):
            return []
        # A file may have its final name already if all are whole.
        whole = set(done) >= self._plan.shards.keys()
        names = zip(self._parts, self._paths, strict=True)
        there = [path if whole and not part.exists() else part for part, path in names]
        sizes = [path.stat().st_size if path.is_file() else -1 for path in there]
        return done if digest == self._plan.digest and sizes == [file.size for file in self._plan.files] else []

    def _begin(self) -> None:
        """Create the files with their headers, then the journal."""
        self.discard()
        _check_space(self._folder, self._plan.size)
        self._folder.mkdir(parents=True, exist_ok=True)
        for part, planned in zip(self._parts, self._plan.files, strict=True):
            with part.open("wb") as file:
                file.write(planned.header)
                file.truncate(planned.size)
        self._journal.write_bytes(f"{self._plan.digest}\n".encode())


def _check_space(folder: Path, needed: int) -> None:
    existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    if reason := explain_full_disk(existing, needed):
        raise UsageError(f"{reason} Free some, or name a folder on another disk.")


@contextmanager
def _disk_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename or folder}: {error.strerror or error}"
        raise UsageError(f"{where}. Mend this or give another folder, and run again: it goes on") from error
