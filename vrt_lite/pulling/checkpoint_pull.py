"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds both GGUF files as far as they are written, and
checkpoint/<commits>/<repository>/ with the small files, the journal of converted shards, and one shard. So a kill
costs one shard. A reward model's state (model.pth) is one shard that arrives before anything is planned, and stays
until the model is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, STATE, list_shards
from vrt_lite.conversion.convert_folder import PairPlan, begin, plan_pair, write_shard
from vrt_lite.conversion.families import read_halves
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import TYPES
from vrt_lite.conversion.weights import read_json, reading
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models.gguf import normalise_quant
from vrt_lite.models.hub import HubFile, Listing, download
from vrt_lite.models.library import Recipe, StoredFile, describe_file, keep_only
from vrt_lite.models.quants import SHARE_OF_MEMORY, choose_quant, total_memory
from vrt_lite.pulling.pull_source import MODEL_FILES, OWN_FILES, Pull, fetch_small_files

CHOICES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""The types among which a pull chooses by itself, the largest first."""
_CHECKPOINT: Final = "checkpoint"


def pull_checkpoint(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Convert a checkpoint into the partial folder. Returns the text's quant, and both files."""
    listed, folder, progress, kind = pull.listed, pull.folder, pull.progress, pull.projector_type
    types = (check_type(listed.repository, pull.source.quant),) if pull.source.quant else CHOICES
    where = f"{listed.repository} at {listed.revision[:12]}"
    progress.say(f"{pull.source.name}: {where}, a checkpoint that is converted here")
    # The folder has the repository's name, from which the files get theirs.
    checkpoint = folder / _CHECKPOINT / listed.commits / listed.repository.partition("/")[2]
    checkpoint.mkdir(parents=True, exist_ok=True)
    keep_only(folder / _CHECKPOINT, {listed.commits})
    fetch_small_files(listed.base or listed, checkpoint, MODEL_FILES)
    fetch_small_files(listed, checkpoint, OWN_FILES)
    with pull.keep_nothing_refused():
        config, shards = read_config(checkpoint), find_shards(pull.source, listed, checkpoint)
        sizes = describe_sizes(config, types, kind)
    quant, *others = sizes
    if others:
        texts = {name: text for name, (text, _) in sizes.items()}
        quant = choose_quant(pull.source.name, texts, sizes[quant][1], memory_bytes=total_memory())
    why = "as asked for" if pull.source.quant else f"the largest for {SHARE_OF_MEMORY:.0%} of this machine's memory"
    progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    pull.check_room(sum(sizes[quant]) + max(shard.size for shard in shards.values()))
    if state := shards.get(STATE):  # the files' headers have its heads and their number of tokens
        progress.begin("fetching", state.size)
        download(listed, state, checkpoint / STATE, progress.advance)
    with pull.keep_nothing_refused():
        plan = plan_pair(checkpoint, text_type=quant.lower(), projector_type=kind)
    keep_only(folder, {_CHECKPOINT, *(file.name for file in plan.files)})
    _convert(pull, shards, plan, checkpoint)
    text, projector = (folder / file.name for file in plan.files)
    return quant, [describe_file(projector, "projector"), describe_file(text, "text")]


def find_shards(source: Recipe, listed: Listing, folder: Path) -> dict[str, HubFile]:
    """Return the shards by name: the recipe's state, those that the index names, or the only one.

    ModelError if one is not listed.
    """
    here = {file.path: file for file in listed.files}
    names = {source.state} if source.state else {*list_shards(folder / INDEX).values()} or {ONLY_SHARD}
    if missing := sorted(names - here.keys()):
        raise ModelError(f"{listed.repository} does not list the shard {missing[0]!r:.80}, nor one in {INDEX}.")
    return {here[name].name: here[name] for name in names}


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read config.json. ModelError if it is of another architecture."""
    config = read_json(folder / "config.json")
    with reading(config.where):
        read_halves(config)
    return config.values


def check_type(repository: str, quant: str) -> str:
    """Return the type of a quant that was asked for. ModelError if the conversion cannot make it."""
    if (kind := normalise_quant(quant).lower()) not in TYPES:
        raise ModelError(
            f"{repository} is a checkpoint, which cannot be converted to {quant!r}; choose {', '.join(TYPES)}."
        )
    return kind


def describe_sizes(config: Mapping[str, Any], types: Iterable[str], projector_type: str) -> dict[str, list[int]]:
    """Return the bytes of the text's tensors, and of the projector's, by the text's quant."""
    pairs = {kind: describe_pair(config, text_type=kind, projector_type=projector_type) for kind in types}
    return {kind.upper(): [sum(tensor.size for tensor in file.tensors) for file in pairs[kind]] for kind in pairs}


def _convert(pull: Pull, shards: Mapping[str, HubFile], plan: PairPlan, checkpoint: Path) -> None:
    """Write both files, and fetch the shards that they still need, one after another."""
    progress, names = pull.progress, plan.shards
    size, stay = sum(shards[name].size for name in names), sum(names.values())
    count = f"{len(names)} shards" if len(names) > 1 else "one file"
    progress.say(
        f"fetched: {format_bytes(size)} in {count}, deleted as soon as it is converted; {format_bytes(stay)} stay"
    )
    # The names of the shards of which all is in files with these headers.
    headers = hashlib.sha256(b"".join(file.header for file in plan.files)).hexdigest()
    journal = checkpoint.with_name(f"{headers}.json")
    keep_only(checkpoint.parent, {checkpoint.name, journal.name})
    converted: list[str] = json.loads(journal.read_bytes()) if journal.is_file() else []
    if converted:
        progress.say(f"going on: {len(converted)} of {len(names)} shards are converted")
    else:
        begin(plan, pull.folder)
    missing = [name for name in names if name not in converted]
    progress.begin("fetching and converting", sum(shards[name].size + names[name] for name in missing))
    for name in missing:
        path = checkpoint / name
        download(pull.listed, shards[name], path, progress.advance)
        write_shard(plan, pull.folder, path, progress.advance)
        converted.append(name)
        write_file(journal, json.dumps(converted).encode())
        if name != STATE:
            path.unlink()
        progress.say(f"{name}: sha256 checked, converted")
