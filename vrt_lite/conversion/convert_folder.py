"""Converts a checkpoint folder to a quantised pair, and goes on where an earlier run was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from vrt_lite.conversion.pair_plan import plan_pair
from vrt_lite.conversion.pair_writer import PairWriter
from vrt_lite.conversion.whole_files import FinishedFile
from vrt_lite.errors import ModelError


def convert_folder(
    source: Path,
    out: Path,
    *,
    text_type: str,
    projector_type: str,
    name: str | None = None,
    authorship: Mapping[str, str] | None = None,
    imatrix: Path | None = None,
    adapter: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[FinishedFile]:
    """Write the pair of `plan_pair` to `out`. `progress` is called with the bytes done and the bytes in all.

    Shards that were changed since an earlier run are converted anew. Raises ModelError for a checkpoint that cannot be
    used, UsageError for a full disk, an unfit name, or another model's profile in `out`.
    """
    planned = plan_pair(
        source,
        text_type=text_type,
        projector_type=projector_type,
        name=name,
        authorship=authorship,
        imatrix=imatrix,
        adapter=adapter,
        origin=_state_of_shards(source),
    )
    for shard in planned.shards:
        if not (source / shard).is_file():
            raise ModelError(f"{source / shard} is missing: download the shard, or the whole checkpoint folder")
    with PairWriter(planned, out) as writer:
        done = writer.done_bytes

        def advance(size: int) -> None:
            nonlocal done
            done += size
            progress(done, planned.weight_bytes)

        for shard in writer.missing_shards():
            writer.write_shard(source / shard, advance)
        return writer.finish()


def _state_of_shards(folder: Path) -> str:
    """Return a text that changes when a shard is replaced."""
    found = [(path.name, path.stat()) for path in sorted(folder.glob("*.safetensors"))]
    return repr([(name, state.st_size, state.st_mtime_ns) for name, state in found])
