"""The one writer of GGUF files: shard by shard, in any order. A run that was stopped goes on with the next shard.

A folder holds the unfinished files, each with its final size from the start, and a journal: the plan's digest and the
shards of which all is on disk, written once their bytes are synced. So a kill or a power cut costs one shard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vrt_lite.conversion.gguf_writer import encoded_blocks
from vrt_lite.conversion.pair_plan import PairPlan
from vrt_lite.disk import file_sha256, write_file

JOURNAL: Final = "converted.json"


@dataclass(frozen=True)
class FinishedFile:
    """One finished file."""

    path: Path
    size: int
    sha256: str


def describe(path: Path) -> FinishedFile:
    """Return size and digest of a finished file."""
    return FinishedFile(path, path.stat().st_size, file_sha256(path))


def begin(plan: PairPlan, folder: Path) -> list[str]:
    """Begin the files of a plan, or go on with them; returns the shards that are not converted yet."""
    converted = _converted(plan, folder)
    if not converted:
        folder.mkdir(parents=True, exist_ok=True)
        _record(plan, folder, [])
        for planned in plan.files:
            with (folder / planned.name).open("wb") as file:
                file.write(planned.header)
                file.truncate(planned.size)
    return [shard for shard in plan.shards if shard not in converted]


def write_shard(plan: PairPlan, folder: Path, shard: Path, advance: Callable[[int], None] = lambda size: None) -> None:
    """Convert a shard. When it returns, all of it is on disk and recorded.

    `advance` is called with the bytes of each block. Raises ModelError if the file is not the shard that was planned,
    or has a weight that cannot be stored.
    """
    table = plan.read_table(shard)
    for planned in plan.files:
        with (folder / planned.name).open("r+b") as file:
            for offset, target in planned.placed:
                if target.shard == shard.name:
                    file.seek(offset)
                    for block in encoded_blocks(target, table[target.place.source]):
                        file.write(block.data)
                        advance(block.nbytes)
            file.flush()
            os.fsync(file.fileno())
    _record(plan, folder, [*_converted(plan, folder), shard.name])


def _record(plan: PairPlan, folder: Path, converted: list[str]) -> None:
    write_file(folder / JOURNAL, json.dumps([plan.digest, *converted]).encode())


def _converted(plan: PairPlan, folder: Path) -> list[str]:
    """Return the shards of which all is on disk; none if that is of another plan, or a file is not there as it was."""
    try:
        digest, *shards = json.loads((folder / JOURNAL).read_bytes())
        as_it_was = digest == plan.digest and all((folder / f.name).stat().st_size == f.size for f in plan.files)
    except (OSError, ValueError, TypeError, RecursionError):
        return []
    return shards if as_it_was else []
