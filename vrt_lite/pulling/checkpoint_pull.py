"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds checkpoint/<repository>/ with the small files and at most two shards, both
GGUF files as far as they are written, and begun.json, which says what is made. Another revision or quant begins anew.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import FinishedFile, PairWriter
from vrt_lite.conversion.type_names import PROJECTOR_TYPES
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import SPARE_BYTES, format_bytes
from vrt_lite.models import library
from vrt_lite.models.hub import Advance, HubFile, Listing, Progress, check_free_space, download, is_whole
from vrt_lite.models.library import StoredFile, StoredModel
from vrt_lite.models.quants import SHARE_OF_MEMORY, normalise_quant
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.checkpoint_files import (
    PROJECTOR_TYPE,
    SMALL_FILES,
    check_type,
    choose_type,
    find_shards,
    read_config,
)
from vrt_lite.pulling.pull_source import (
    Pulled,
    PullSource,
    fetch_small_files,
    is_intact,
    keep_nothing_refused,
    list_small_files,
)
from vrt_lite.pulling.shard_arrival import arriving

_ENGINE: Final = "llama-cpp-python"
_BEGUN: Final = "begun.json"
_CHECKPOINT: Final = "checkpoint"


class _Begun(NamedTuple):
    """What an unfinished pull makes."""

    revision: str = ""
    quant: str = ""
    projector: str = ""


def pull_checkpoint(
    source: PullSource,
    listed: Listing,
    here: StoredModel | None,
    memory_bytes: int,
    progress: Progress,
    projector_type: str | None,
) -> Pulled | None:
    """Convert a checkpoint into the partial folder; returns what is then there, None if the model is here already.

    Without a `projector_type` the one that is begun or here stays.
    """
    asked = normalise_quant(source.quant)
    if asked:
        check_type(listed.repository, asked)
    progress.say(f"{source.name}: {listed.repository} at {listed.revision[:12]}, a checkpoint that is converted here")
    progress.say(source.describe_licence(listed))
    made = here.manifest.projector_type or PROJECTOR_TYPE if here else ""
    same = here and here.manifest.revision == listed.revision and asked in ("", here.manifest.quant)
    if here and same and projector_type in (None, made) and is_intact(here):
        return None
    small_files = list_small_files(listed, SMALL_FILES)
    folder = library.partial_folder(source.name)
    begun = _read_begun(folder)
    if begun.revision != listed.revision:
        library.remove_folder(folder)
        begun = _Begun(listed.revision)
    checkpoint = _make_folders(folder, listed)
    _write_begun(folder, begun)
    fetch_small_files(listed, small_files, checkpoint)
    with keep_nothing_refused(source.name):
        config = read_config(listed, checkpoint)
        shards = find_shards(source, listed, checkpoint)
        kind = next(kind for kind in (projector_type, begun.projector, made, PROJECTOR_TYPE) if kind in PROJECTOR_TYPES)
        stays = begun.quant or (here.manifest.quant if here else "")
        quant, why = asked or stays, "as asked for" if asked else "as begun" if begun.quant else "as the model here"
        if not quant:
            usable = int(memory_bytes * SHARE_OF_MEMORY)
            quant = choose_type(listed.repository, config, usable, projector_type=kind).upper()
            share = f"{SHARE_OF_MEMORY:.0%} of this machine's memory"
            why = f"the largest from Q4_K_M to Q8_0 that fits {format_bytes(usable)} ({share})"
        text_type = check_type(listed.repository, quant)
        plan = plan_pair(checkpoint, text_type=text_type, projector_type=kind, origin=listed.revision)
    progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    if begun != (wanted := _Begun(listed.revision, quant, kind)):
        library.keep_only(folder, {_CHECKPOINT})
        _write_begun(folder, wanted)
    try:
        text, projector, *_ = _convert(source, listed, shards, plan, checkpoint, progress)
    except UsageError as error:  # the disk is full: for a command that converts a folder, that is a wrong argument
        raise ModelError(str(error)) from error
    files = (
        StoredFile(projector.path.name, "projector", projector.size, projector.sha256),
        StoredFile(text.path.name, "text", text.size, text.sha256),
    )
    return Pulled(quant, files, f"{_ENGINE} {version(_ENGINE)}", projector_type=kind)


def _read_begun(folder: Path) -> _Begun:
    with contextlib.suppress(OSError, ValueError, TypeError):
        values: Any = json.loads((folder / _BEGUN).read_bytes())
        return _Begun(*map(str, values))
    return _Begun()


def _write_begun(folder: Path, begun: _Begun) -> None:
    write_file(folder / _BEGUN, json.dumps(begun).encode())


def _make_folders(folder: Path, listed: Listing) -> Path:
    """Make and return the checkpoint's folder. It has the repository's name, from which the files get theirs."""
    checkpoint = folder / _CHECKPOINT / listed.repository.partition("/")[2]
    for path in (checkpoint.parent, checkpoint):
        if path.is_symlink():
            path.unlink()
    checkpoint.mkdir(parents=True, exist_ok=True)
    return checkpoint


def _convert(
    source: PullSource,
    listed: Listing,
    shards: Mapping[str, HubFile],
    plan: PairPlan,
    checkpoint: Path,
    progress: Progress,
) -> list[FinishedFile]:
    """Write both files, and fetch the shards that they still need; returns them."""

    def fetch(shard: HubFile, advance: Advance) -> Path:
        path = checkpoint / shard.name
        if is_whole(path, shard.size, shard.sha256):
            advance(shard.size)
            return path
        path.unlink(missing_ok=True)
        download(listed, shard, path, sha256=shard.sha256, report=progress.say, advance=advance)
        return path

    sizes = [shards[name].size for name in plan.shards]
    count = f"{len(sizes)} shards" if len(sizes) > 1 else "one file"
    progress.say(
        f"fetched: {format_bytes(sum(sizes))} in {count}, deleted as soon as it is converted; "
        f"{format_bytes(plan.weight_bytes(plan.shards))} stay"
    )
    folder = library.partial_folder(source.name)
    (folder / PROFILE_NAME).unlink(missing_ok=True)  # a recipe's, of a pull that was stopped at its end
    # The journal stays until the folder is installed: a pull that is stopped at its end fetches nothing again.
    with PairWriter(plan, folder) as writer:
        missing = [shards[name] for name in writer.missing_shards()]
        if converted := len(sizes) - len(missing):
            progress.say(f"going on: {converted} of {len(sizes)} shards are converted")
        for path in checkpoint.glob("*.safetensors"):
            if path.name not in {shard.name for shard in missing}:
                path.unlink()
        _check_disk(source, missing, plan, progress)
        to_fetch = sum(shard.size for shard in missing)
        progress.begin("fetching and converting", to_fetch + plan.weight_bytes(shard.name for shard in missing))
        with arriving(missing, fetch, progress.advance) as paths:
            for path in paths:
                writer.write_shard(path, progress.advance)
                path.unlink()
                progress.say(f"{path.name}: sha256 checked, converted, deleted")
        return writer.finish(keep_journal=True)


def _check_disk(source: PullSource, missing: list[HubFile], plan: PairPlan, progress: Progress) -> None:
    """Say how much room the disk needs and has. ModelError if it has too little."""
    folder = library.partial_folder(source.name)
    largest = sorted((shard.size for shard in missing), reverse=True)[:2]
    needed = max(0, plan.size + sum(largest) - library.partial_bytes(source.name))
    free = shutil.disk_usage(folder).free
    progress.say(f"disk: at most {format_bytes(needed + SPARE_BYTES)} more are needed, {format_bytes(free)} are free")
    check_free_space(folder, needed)
