"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds checkpoint/<repository>/ with the small files and at most two shards, both
GGUF files as far as they are written, and begun.json, which says what is made. Another revision or quant begins anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import FinishedFile, PairWriter, describe
from vrt_lite.conversion.type_names import PROJECTOR_TYPES
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.machine import SPARE_BYTES, format_bytes
from vrt_lite.models import library
from vrt_lite.models.bounded_file import Advance
from vrt_lite.models.hub import (
    HubFile,
    Listing,
    Progress,
    check_free_space,
    download,
    held_bytes,
    is_whole,
    part_of,
)
from vrt_lite.models.library import StoredFile, StoredModel
from vrt_lite.models.quants import SHARE_OF_MEMORY, normalise_quant
from vrt_lite.pulling.checkpoint_files import (
    PROJECTOR_TYPE,
    check_type,
    choose_type,
    fetch_small_files,
    find_shards,
    list_small_files,
    read_config,
)
from vrt_lite.pulling.pull_source import Pulled, PullSource, is_intact, keep_nothing_refused
from vrt_lite.pulling.shard_arrival import arriving

_ENGINE: Final = "llama-cpp-python"
_BEGUN: Final = "begun.json"
_CHECKPOINT: Final = "checkpoint"


@dataclass(frozen=True, slots=True)
class _Begun:
    """What an unfinished pull makes: of which revision, which quant and projector, by a plan with this digest."""

    revision: str = ""
    quant: str = ""
    projector: str = ""
    plan: str = ""


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
    small_files = list_small_files(listed)
    folder = library.partial_folder(source.name)
    begun = _read_begun(folder)
    if begun.revision != listed.revision:
        library.remove_folder(folder)
        begun = _Begun(listed.revision)
    checkpoint = _make_folders(folder, listed)
    _write_begun(folder, begun)
    fetch_small_files(listed, small_files, checkpoint, progress)
    with keep_nothing_refused(source.name):
        config = read_config(listed, checkpoint)
        shards = find_shards(source, listed, checkpoint)
        kind = next(kind for kind in (projector_type, begun.projector, made, PROJECTOR_TYPE) if kind in PROJECTOR_TYPES)
        quant, why = _choose_quant(asked, begun, here, listed, config, kind, memory_bytes)
        plan = plan_pair(checkpoint, text_type=quant.lower(), projector_type=kind, origin=listed.revision)
    progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    if begun != (wanted := _Begun(listed.revision, quant, kind, plan.digest)):
        library.keep_only(folder, {_CHECKPOINT})
        _write_begun(folder, wanted)
    try:
        text, projector = _find_finished(plan, folder) or _convert(source, listed, shards, plan, checkpoint, progress)
    except UsageError as error:  # the disk is full: for a command that converts a folder, that is a wrong argument
        raise ModelError(str(error)) from error
    files = (
        StoredFile(projector.path.name, "projector", projector.size, projector.sha256),
        StoredFile(text.path.name, "text", text.size, text.sha256),
    )
    return Pulled(quant, files, plan.profile, f"{_ENGINE} {version(_ENGINE)}", projector_type=kind)


def _read_begun(folder: Path) -> _Begun:
    try:
        values: Any = json.loads((folder / _BEGUN).read_bytes())
        return _Begun(**{key: str(value) for key, value in values.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return _Begun()


def _write_begun(folder: Path, begun: _Begun) -> None:
    write_file(folder / _BEGUN, json.dumps(asdict(begun)).encode())


def _make_folders(folder: Path, listed: Listing) -> Path:
    """Make and return the checkpoint's folder. It has the repository's name, from which the files get theirs."""
    checkpoint = folder / _CHECKPOINT / listed.repository.partition("/")[2]
    for path in (checkpoint.parent, checkpoint):
        if path.is_symlink():
            path.unlink()
    checkpoint.mkdir(parents=True, exist_ok=True)
    return checkpoint


def _choose_quant(
    asked: str,
    begun: _Begun,
    here: StoredModel | None,
    listed: Listing,
    config: Mapping[str, Any],
    projector_type: str,
    memory_bytes: int,
) -> tuple[str, str]:
    """Return the quant to make, and why this one. A quant that is begun or here stays."""
    if asked:
        return asked, "as asked for"
    if begun.quant:
        return check_type(listed.repository, begun.quant).upper(), "as begun"
    if here and here.manifest.quant:
        return check_type(listed.repository, here.manifest.quant).upper(), "as the model that is here"
    usable = int(memory_bytes * SHARE_OF_MEMORY)
    quant = choose_type(listed.repository, config, usable, projector_type=projector_type).upper()
    share = f"{SHARE_OF_MEMORY:.0%} of this machine's memory"
    return quant, f"the largest from Q4_K_M to Q8_0 that fits {format_bytes(usable)} ({share})"


def _find_finished(plan: PairPlan, folder: Path) -> list[FinishedFile]:
    """Return both files if an earlier pull has finished them: only then have they their names."""
    paths = [folder / planned.name for planned in plan.files]
    whole = all(is_whole(path, planned.size, "") for path, planned in zip(paths, plan.files, strict=True))
    return [describe(path) for path in paths] if whole else []


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
        f"{format_bytes(plan.size)} stay"
    )
    with PairWriter(plan, library.partial_folder(source.name)) as writer:
        missing = [shards[name] for name in writer.missing_shards()]
        if converted := len(sizes) - len(missing):
            progress.say(f"going on: {converted} of {len(sizes)} shards are converted")
        for path in checkpoint.glob("*.safetensors"):
            if path.name not in {shard.name for shard in missing}:
                path.unlink()
        _check_disk(source, missing, plan, progress)
        held = sum(held_bytes(part_of(checkpoint / shard.name, shard.sha256)) for shard in missing)
        to_fetch = sum(shard.size for shard in missing) - held
        progress.begin("fetching and converting", to_fetch + plan.weight_bytes(writer.missing_shards()))
        with arriving(missing, fetch, progress.advance) as paths:
            for path in paths:
                writer.write_shard(path, progress.advance)
                path.unlink()
                progress.say(f"{path.name}: sha256 checked, converted, deleted")
        return writer.finish()[:2]


def _check_disk(source: PullSource, missing: list[HubFile], plan: PairPlan, progress: Progress) -> None:
    """Say how much room the disk needs and has. ModelError if it has too little."""
    folder = library.partial_folder(source.name)
    largest = sorted((shard.size for shard in missing), reverse=True)[:2]
    needed = max(0, plan.size + sum(largest) - library.partial_bytes(source.name))
    free = shutil.disk_usage(folder).free
    progress.say(f"disk: at most {format_bytes(needed + SPARE_BYTES)} more are needed, {format_bytes(free)} are free")
    check_free_space(folder, needed)
