"""Converts a checkpoint folder to a pair, and goes on where an earlier run was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from vrt_lite.conversion.pair_plan import plan_pair
from vrt_lite.conversion.pair_writer import FinishedFile, write_planned
from vrt_lite.conversion.reward_state import STATE


def convert_folder(
    source: Path,
    out: Path,
    *,
    text_type: str = "q8_0",
    projector_type: str = "f16",
    name: str | None = None,
    authorship: Mapping[str, str] | None = None,
    imatrix: Path | None = None,
    adapter: Path | None = None,
    folder_name: str | None = None,
    exported: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[FinishedFile]:
    """Write the pair of `plan_pair`, which describes the options, to `out`, replacing files of those names.

    A profile.toml beside the checkpoint is copied as well. Without it the pair would get VR-Thinker's prompts. Shards
    that were changed since an earlier run are converted anew. Raises ModelError for a checkpoint that cannot be used,
    UsageError for a full disk, an unfit name, or another model's profile in `out`.
    """
    weights = sorted((*source.glob("*.safetensors"), *source.glob(STATE)))
    shards = [(path.name, path.stat()) for path in weights]
    plan = plan_pair(
        source,
        text_type=text_type,
        projector_type=projector_type,
        name=name,
        authorship=authorship,
        imatrix=imatrix,
        adapter=adapter,
        folder_name=folder_name,
        exported=exported,
        origin=repr([(name, state.st_size, state.st_mtime_ns) for name, state in shards]),
    )
    return write_planned(plan, out, source.resolve(), progress)


export_pair = partial(convert_folder, exported=True)
"""Converts to the types that llama.cpp's converter knows with the converter's own bytes."""
