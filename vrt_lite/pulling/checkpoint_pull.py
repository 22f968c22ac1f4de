"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds both GGUF files as far as they are written, the journal of converted shards,
and checkpoint/<commits>/<repository>/ with the small files and one shard. So a kill
costs one shard. A reward model's state (model.pth) is one shard that arrives before anything is planned, and stays
until the model is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, STATE, list_shards
from vrt_lite.conversion.convert_folder import PairPlan, describe_pair, plan_pair
from vrt_lite.conversion.type_names import TYPES
from vrt_lite.conversion.weights import read_json
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes, total_memory
from vrt_lite.models.gguf import normalise_quant
from vrt_lite.models.hub import HubFile, download
from vrt_lite.models.library import StoredFile, describe_file, keep_only
from vrt_lite.pulling.pull_source import (
    MODEL_FILES,
    OWN_FILES,
    SHARE_OF_MEMORY,
    Pull,
    choose_quant,
    fetch_small_files,
)

CHOICES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""The types among which a pull chooses by itself, the largest first."""
_CHECKPOINT: Final = "checkpoint"


def pull_checkpoint(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Convert a checkpoint into the partial folder. Returns the text's quant, and both files."""
    listed, folder, progress, kind = pull.listed, pull.folder, pull.progress, pull.projector_type
    asked = normalise_quant(pull.source.quant).lower()
    if asked and asked not in TYPES:
        raise ModelError(
            f"{listed.repository} is a checkpoint, which cannot be converted to {asked!r}; choose {', '.join(TYPES)}."
        )
    where = f"{pull.source.name}: {listed.repository} at {listed.revision[:12]}"
    progress.say(f"{where}, a checkpoint that is converted here")
    # The folder has the repository's name, from which the files get theirs.
    checkpoint = folder / _CHECKPOINT / listed.commits / listed.repository.partition("/")[2]
    checkpoint.mkdir(parents=True, exist_ok=True)
    keep_only(folder / _CHECKPOINT, {listed.commits})
    fetch_small_files(listed.base or listed, checkpoint, MODEL_FILES)
    fetch_small_files(listed, checkpoint, OWN_FILES)
    with pull.keep_nothing_refused():
        # The recipe's state, the shards that the index names, or the only one.
        here, state = {file.path: file for file in listed.files}, pull.source.state
        names = {state} if state else {*list_shards(checkpoint / INDEX).values()} or {ONLY_SHARD}
        if missing := sorted(names - here.keys()):
            raise ModelError(f"{listed.repository} lists neither a GGUF file nor the shard {missing[0]!r:.80}.")
        shards = {here[name].name: here[name] for name in names}
        config = read_json(checkpoint / "config.json").values
        sizes = dict[str, int]()
        for each in [asked] if asked else CHOICES:
            pair = describe_pair(config, text_type=each, projector_type=kind)
            sizes[each.upper()] = sum(file.size for file in pair)
    quant, why = asked.upper(), "as asked for"
    if not asked:
        quant = choose_quant(pull.source.name, sizes, memory_bytes=total_memory())
        why = f"the largest for {SHARE_OF_MEMORY:.0%} of this machine's memory"
    progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    pull.check_room(sizes[quant] + max(shard.size for shard in shards.values()))
    if state:  # the files' headers have its heads and their number of tokens
        progress.begin("fetching", here[state].size)
        download(listed, here[state], checkpoint / STATE, progress.advance)
    with pull.keep_nothing_refused():
        plan = plan_pair(checkpoint, text_type=quant.lower(), projector_type=kind)
    _convert(pull, shards, plan, checkpoint)
    text, projector = (folder / file.name for file in plan.files)
    return quant, [describe_file(projector, "projector"), describe_file(text, "text")]


def _convert(pull: Pull, shards: Mapping[str, HubFile], plan: PairPlan, checkpoint: Path) -> None:
    """Write both files, and fetch the shards that they still need, one after another."""
    folder, progress, made = pull.folder, pull.progress, plan.shards
    size, stay = format_bytes(sum(shards[name].size for name in made)), format_bytes(sum(made.values()))
    progress.say(f"fetched: {size}, shards: {len(made)}, each deleted as soon as it is converted; {stay} stay")
    # The names of the shards of this revision of which all is in files with these headers.
    begun = hashlib.sha256(b"".join([pull.listed.commits.encode(), *(file.header for file in plan.files)]))
    journal = folder / f"{begun.hexdigest()}.json"
    keep_only(folder, {_CHECKPOINT, journal.name, *(file.name for file in plan.files)})
    converted: list[str] = json.loads(journal.read_bytes()) if journal.is_file() else []
    if converted:
        progress.say(f"going on: {len(converted)} of {len(made)} shards are converted")
    else:
        plan.begin(folder)
    missing = [name for name in made if name not in converted]
    progress.begin("fetching and converting", sum(shards[name].size + made[name] for name in missing))
    for name in missing:
        path = checkpoint / name
        download(pull.listed, shards[name], path, progress.advance)
        plan.write_shard(folder, path, progress.advance)
        converted.append(name)
        write_file(journal, json.dumps(converted).encode())
        if name != STATE:
            path.unlink()
        progress.say(f"{name}: sha256 checked, converted")
