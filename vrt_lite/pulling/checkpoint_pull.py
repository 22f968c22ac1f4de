"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds both GGUF files as far as they are written, and
checkpoint/<commits>/<repository>/ with the small files, the journal of converted shards, and one shard. So a kill
costs one shard. A reward model's state (model.pth) is one shard that arrives before anything is planned, and stays
until the model is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, STATE, list_shards
from vrt_lite.conversion.convert_folder import PairPlan, begin, describe, plan_pair, write_shard
from vrt_lite.conversion.families import read_halves
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.type_names import CONVERTER_TYPES, TEXT_TYPES
from vrt_lite.conversion.weights import read_json, reading
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes
from vrt_lite.models.gguf import Gguf, list_pair, normalise_quant, quant_of
from vrt_lite.models.hub import Advance, HubFile, Listing, check_free_space, download, is_whole
from vrt_lite.models.library import Recipe, StoredFile, keep_only, partial_bytes
from vrt_lite.models.quants import SHARE_OF_MEMORY, TextFile, best_quant
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.gguf_files import does_not_fit
from vrt_lite.pulling.pull_source import (
    MODEL_FILES,
    OWN_FILES,
    Pull,
    expected_sha256,
    fetch_small_files,
    keep_nothing_refused,
)

PROJECTOR_TYPE: Final = "f16"
CHOICES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""The types among which a pull chooses by itself, the largest first."""
JOURNAL: Final = "converted.json"
_CHECKPOINT: Final = "checkpoint"


def pull_checkpoint(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Convert a checkpoint into the partial folder, with its profile if there is one. Returns the text's quant.

    Without a quant or a projector's type those that are begun or here stay.
    """
    listed, folder, progress, name = pull.listed, pull.folder, pull.progress, pull.source.name
    check_type(listed.repository, pull.source.quant or PROJECTOR_TYPE)
    where = f"{listed.repository} at {listed.revision[:12]}"
    progress.say(f"{name}: {where}, a checkpoint that is converted here")
    # The folder has the repository's name, from which the files get theirs.
    checkpoint = folder / _CHECKPOINT / listed.commits / listed.repository.partition("/")[2]
    checkpoint.mkdir(parents=True, exist_ok=True)
    keep_only(folder / _CHECKPOINT, {listed.commits})
    fetch_small_files(listed.base or listed, checkpoint, MODEL_FILES)
    fetch_small_files(listed, checkpoint, OWN_FILES)
    with keep_nothing_refused(name):
        config, shards = read_config(checkpoint), find_shards(pull.source, listed, checkpoint)
        quant, projector_type = _choose_types(pull, config)
        text_type = check_type(listed.repository, quant)
        pair = describe_pair(config, text_type=text_type, projector_type=projector_type)
    largest = max(shard.size for shard in shards.values())
    check_free_space(folder, sum(map(_weights_of, pair)) + largest - partial_bytes(name))
    if state := shards.get(STATE):  # the files' headers have its heads and their number of tokens
        progress.begin("fetching", state.size)
        _fetch(listed, state, checkpoint, progress.advance)
    with keep_nothing_refused(name):
        plan = plan_pair(checkpoint, text_type=text_type, projector_type=projector_type)
    keep_only(folder, {_CHECKPOINT, *(file.name for file in plan.files)})
    _convert(pull, shards, plan, checkpoint)
    if plan.profile:
        write_file(folder / PROFILE_NAME, plan.profile)
    text, projector = (describe(folder / file.name) for file in plan.files)
    return quant, [
        StoredFile(projector.path.name, "projector", projector.size, projector.sha256),
        StoredFile(text.path.name, "text", text.size, text.sha256),
    ]


def _choose_types(pull: Pull, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text's quant and the projector's type, and say why: as asked for, as begun, or as here."""
    begun, begun_kind = ("".join(quant_of(path.name) for path in paths[:1]) for paths in list_pair(pull.folder))
    here, here_kind = (pull.here.manifest.quant, pull.here.manifest.projector_type) if pull.here else ("", "")
    kind = pull.projector_type or begun_kind.lower() or here_kind or PROJECTOR_TYPE
    usable, share = int(pull.memory_bytes * SHARE_OF_MEMORY), f"{SHARE_OF_MEMORY:.0%} of this machine's memory"
    chosen = {
        "as asked for": normalise_quant(pull.source.quant),
        "as begun": begun,
        "as the model here": here,
    }
    why, quant = next(filter(lambda one: one[1], chosen.items()), ("", ""))
    if not quant:
        quant = choose_type(pull.listed.repository, config, usable, projector_type=kind).upper()
        why = f"the largest from Q4_K_M to Q8_0 that fits {format_bytes(usable)} ({share})"
    pull.progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    return quant, kind


def find_shards(source: Recipe, listed: Listing, folder: Path) -> dict[str, HubFile]:
    """Return the shards by name: the recipe's state, those that the index names, or the only one.

    ModelError if one is not listed.
    """
    here = {file.path: file for file in listed.files}
    names = {source.state} if source.state else {*list_shards(folder / INDEX).values()} or {ONLY_SHARD}
    if missing := sorted(names - here.keys()):
        raise ModelError(f"{listed.repository} does not list the shard {missing[0]!r:.80}, nor one in {INDEX}.")
    for name in names:
        expected_sha256(source, here[name])
    return {here[name].name: here[name] for name in names}


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read config.json. ModelError if it is of another architecture."""
    config = read_json(folder / "config.json")
    with reading(config.where):
        read_halves(config)
    return config.values


def check_type(repository: str, quant: str) -> str:
    """Return the type of a quant that was asked for. ModelError if the conversion cannot make it."""
    types = tuple(dict.fromkeys((*CONVERTER_TYPES, *TEXT_TYPES)))
    if (kind := normalise_quant(quant).lower()) not in types:
        raise ModelError(
            f"{repository} is a checkpoint, which cannot be converted to {quant!r}; choose {', '.join(types)}."
        )
    return kind


def choose_type(
    repository: str, config: Mapping[str, Any], memory_bytes: int, *, projector_type: str = PROJECTOR_TYPE
) -> str:
    """Return the largest type from Q4_K_M to Q8_0 that fits `memory_bytes`. ModelError if none does."""
    pairs = {kind: describe_pair(config, text_type=kind, projector_type=projector_type) for kind in CHOICES}
    candidates = [TextFile(kind, kind.upper(), _weights_of(text)) for kind, (text, _) in pairs.items()]
    room = memory_bytes - _weights_of(pairs[CHOICES[0]][1])
    best = best_quant(candidates, room)
    if best is None:
        raise does_not_fit(repository, candidates[-1], room)
    return best.path


def _weights_of(file: Gguf) -> int:
    return sum(tensor.size for tensor in file.tensors)


def _convert(pull: Pull, shards: Mapping[str, HubFile], plan: PairPlan, checkpoint: Path) -> None:
    """Write both files, and fetch the shards that they still need, one after another."""
    progress, sizes = pull.progress, [shards[name].size for name in plan.shards]
    count = f"{len(sizes)} shards" if len(sizes) > 1 else "one file"
    progress.say(
        f"fetched: {format_bytes(sum(sizes))} in {count}, deleted as soon as it is converted; "
        f"{format_bytes(plan.weight_bytes(plan.shards))} stay"
    )
    journal = checkpoint.parent / JOURNAL
    headers = hashlib.sha256(b"".join(file.header for file in plan.files)).hexdigest()
    converted = _read_journal(journal, headers)
    if converted:
        progress.say(f"going on: {len(converted)} of {len(sizes)} shards are converted")
    else:
        begin(plan, pull.folder)
    for path in checkpoint.glob("*.safetensors"):
        if path.name in converted:
            path.unlink()
    missing = [shards[name] for name in plan.shards if name not in converted]
    weights = plan.weight_bytes([shard.name for shard in missing])
    progress.begin("fetching and converting", sum(shard.size for shard in missing) + weights)
    for shard in missing:
        path = _fetch(pull.listed, shard, checkpoint, progress.advance)
        write_shard(plan, pull.folder, path, progress.advance)
        converted.append(path.name)
        write_file(journal, json.dumps([headers, *converted]).encode())
        if path.name != STATE:
            path.unlink()
        progress.say(f"{path.name}: sha256 checked, converted")


def _read_journal(journal: Path, headers: str) -> list[str]:
    """Return the shards of which all is on disk, if it is of files with these headers."""
    try:
        found, *converted = json.loads(journal.read_bytes())
    except (OSError, ValueError):
        return []
    return converted if found == headers else []


def _fetch(listed: Listing, shard: HubFile, folder: Path, advance: Advance) -> Path:
    """Fetch a shard, unless it is there."""
    path = folder / shard.name
    if is_whole(path, shard.size, shard.sha256):
        advance(shard.size)
    else:
        path.unlink(missing_ok=True)
        download(listed, shard, path, sha256=shard.sha256, advance=advance)
    return path
