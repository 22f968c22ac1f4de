"""Converts a checkpoint folder to a pair, and goes on where an earlier run was stopped."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import FinishedFile, begin, describe, write_shard
from vrt_lite.conversion.reward_state import STATE
from vrt_lite.disk import locked, write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.profile import PROFILE_NAME

UNFINISHED: Final = ".vrt-unfinished"
"""The end of the name of the folder that holds what is not finished."""
Advance = Callable[[int, int], None]


def convert_folder(
    source: Path,
    out: Path,
    *,
    text_type: str = "q8_0",
    projector_type: str = "f16",
    progress: Advance = lambda done, total: None,
    **options: Any,
) -> list[FinishedFile]:
    """Write the pair of `plan_pair`, which describes the options, to `out`, replacing files of those names.

    A profile.toml beside the checkpoint is copied as well. Without it the pair would get VR-Thinker's prompts. Shards
    that were changed since an earlier run are converted anew. Raises ModelError for a checkpoint that cannot be used,
    UsageError for a full disk, an unfit name, or another model's profile in `out`.
    """
    weights = sorted((*source.glob("*.safetensors"), *source.glob(STATE)))
    shards = [(path.name, path.stat()) for path in weights]
    origin = repr([(name, state.st_size, state.st_mtime_ns) for name, state in shards])
    plan = plan_pair(source, text_type=text_type, projector_type=projector_type, origin=origin, **options)
    return write_planned(plan, out, source.resolve(), progress)


export_pair = partial(convert_folder, exported=True)
"""Converts to the types that llama.cpp's converter knows with the converter's own bytes."""


def write_planned(
    plan: PairPlan, out: Path, source: Path, progress: Advance = lambda done, total: None
) -> list[FinishedFile]:
    """Write the files of a plan whose shards are all in `source`. `progress` is called with bytes done and in all.

    One process at a time works there; another waits. Raises ModelError for a shard that is not as planned or a weight
    that cannot be stored, and then leaves nothing; UsageError for a full disk, and for another profile in `out`.
    """
    for shard in plan.shards:
        plan.read_table(source / shard)  # raises for a damaged table before anything is written
    folder, profile = out / f"{plan.files[0].name}{UNFINISHED}", out / PROFILE_NAME
    with _disk_errors(out), locked(f"convert-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"):
        if plan.profile and profile.is_file() and profile.read_bytes() != plan.profile:
            raise UsageError(f"{profile} is another profile than the checkpoint's: give another folder")
        missing, total = begin(plan, folder), plan.weight_bytes(plan.shards)
        done = total - plan.weight_bytes(missing)

        def advance(size: int) -> None:
            nonlocal done
            done += size
            progress(done, total)

        try:
            for shard in missing:
                write_shard(plan, folder, source / shard, advance)
        except ModelError:
            shutil.rmtree(folder)
            raise
        paths = [(folder / file.name).replace(out / file.name) for file in plan.files]
        shutil.rmtree(folder)
        if plan.profile:
            write_file(profile, plan.profile)
            paths.append(profile)
        return [describe(path) for path in paths]


@contextmanager
def _disk_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename or folder}: {error.strerror or error}"
        raise UsageError(f"{where}. Mend this or give another folder, and run again: it goes on") from error
