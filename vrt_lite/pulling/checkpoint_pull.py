"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds both GGUF files as far as they are written with their journal, and
checkpoint/<commits>/<repository>/ with the small files and at most two shards. A reward model's state (`reward_state`)
is one shard that arrives before anything is planned, and stays until the model is installed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, list_shards, read_json
from vrt_lite.conversion.families import read_halves
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import JOURNAL, begin, describe, write_shard
from vrt_lite.conversion.reward_state import STATE
from vrt_lite.conversion.type_names import CONVERTER_TYPES, TEXT_TYPES
from vrt_lite.disk import write_file
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import wait_until_done
from vrt_lite.machine import format_bytes
from vrt_lite.models.gguf import Gguf, list_pair, normalise_quant, quant_of
from vrt_lite.models.hub import Advance, HubFile, Listing, check_free_space, download, is_whole
from vrt_lite.models.library import StoredFile, keep_only, partial_bytes
from vrt_lite.models.quants import SHARE_OF_MEMORY, TextFile, best_quant
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.gguf_files import does_not_fit
from vrt_lite.pulling.pull_source import (
    MODEL_FILES,
    OWN_FILES,
    SMALL_FILES,
    Pull,
    PullSource,
    expected_sha256,
    fetch_small_files,
    keep_nothing_refused,
)

PROJECTOR_TYPE: Final = "f16"
CHOICES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""The types among which a pull chooses by itself, the largest first."""
_CHECKPOINT: Final = "checkpoint"


def pull_checkpoint(pull: Pull) -> tuple[str, list[StoredFile]]:
    """Convert a checkpoint into the partial folder, with its profile if there is one. Returns the text's quant.

    Without a quant or a projector's type those that are begun or here stay.
    """
    listed, folder, progress = pull.listed, pull.folder, pull.progress
    if pull.source.quant:
        check_type(listed.repository, normalise_quant(pull.source.quant))
    where = f"{listed.repository} at {listed.revision[:12]}"
    progress.say(f"{pull.source.name}: {where}, a checkpoint that is converted here")
    # The folder has the repository's name, from which the files get theirs.
    checkpoint = folder / _CHECKPOINT / listed.commits / listed.repository.partition("/")[2]
    for path in (checkpoint.parent.parent, checkpoint.parent, checkpoint):
        if path.is_symlink():
            path.unlink()
    checkpoint.mkdir(parents=True, exist_ok=True)
    keep_only(folder / _CHECKPOINT, {listed.commits})
    if listed.base:
        fetch_small_files(listed.base, checkpoint, MODEL_FILES)
    fetch_small_files(listed, checkpoint, OWN_FILES if listed.base else SMALL_FILES)
    with keep_nothing_refused(pull.source.name):
        config, shards = read_config(checkpoint), find_shards(pull.source, listed, checkpoint)
        quant, projector_type = _choose_types(pull, config)
        text_type = check_type(listed.repository, quant)
    if state := shards.get(STATE):  # the files' headers have its heads and their number of tokens
        result = sum(map(_weights_of, describe_pair(config, text_type=text_type, projector_type=projector_type)))
        check_free_space(folder, state.size + result - partial_bytes(pull.source.name))
        progress.begin("fetching", state.size)
        _fetch(listed, state, checkpoint, progress.advance)
    with keep_nothing_refused(pull.source.name):
        plan = plan_pair(checkpoint, text_type=text_type, projector_type=projector_type, origin=listed.commits)
    keep_only(folder, {_CHECKPOINT, JOURNAL, *(file.name for file in plan.files)})
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
    texts, projectors = list_pair(pull.folder)
    begun = "".join(quant_of(path.name) for path in texts[:1])
    kind = "".join(quant_of(path.name).lower() for path in projectors[:1])
    kind = pull.projector_type or kind or (pull.here and pull.here.manifest.projector_type) or PROJECTOR_TYPE
    if quant := normalise_quant(pull.source.quant):
        why = "as asked for"
    elif begun:
        quant, why = begun, "as begun"
    elif pull.here:
        quant, why = pull.here.manifest.quant, "as the model here"
    else:
        usable = int(pull.memory_bytes * SHARE_OF_MEMORY)
        quant = choose_type(pull.listed.repository, config, usable, projector_type=kind).upper()
        share = f"{SHARE_OF_MEMORY:.0%} of this machine's memory"
        why = f"the largest from Q4_K_M to Q8_0 that fits {format_bytes(usable)} ({share})"
    pull.progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    return quant, kind


def find_shards(source: PullSource, listed: Listing, folder: Path) -> dict[str, HubFile]:
    """Return the shards by name: the recipe's state, those that the index names, or the only one.

    ModelError if one is not listed.
    """
    here = {file.path: file for file in listed.files}
    state = source.recipe.state if source.recipe else ""
    names = {state} if state else {*list_shards(folder / INDEX).values()} or {ONLY_SHARD}
    if missing := sorted(names - here.keys()):
        raise ModelError(f"{listed.repository} does not list the shard {missing[0]!r:.80}, nor one in {INDEX}.")
    for name in names:
        expected_sha256(source, here[name])
    return {here[name].name: here[name] for name in names}


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read config.json. ModelError if it is of another architecture."""
    config = read_json(folder / "config.json")
    read_halves(config)
    return config.values


def check_type(repository: str, quant: str) -> str:
    """Return the type of a quant that was asked for. ModelError if the conversion cannot make it."""
    types = tuple(dict.fromkeys((*CONVERTER_TYPES, *TEXT_TYPES)))
    if quant.lower() not in types:
        raise ModelError(
            f"{repository} is a checkpoint, which cannot be converted to {quant!r}; choose {', '.join(types)}."
        )
    return quant.lower()


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
    """Write both files, and fetch the shards that they still need."""
    progress, sizes = pull.progress, [shards[name].size for name in plan.shards]
    count = f"{len(sizes)} shards" if len(sizes) > 1 else "one file"
    progress.say(
        f"fetched: {format_bytes(sum(sizes))} in {count}, deleted as soon as it is converted; "
        f"{format_bytes(plan.weight_bytes(plan.shards))} stay"
    )
    names = begin(plan, pull.folder)
    if converted := len(sizes) - len(names):
        progress.say(f"going on: {converted} of {len(sizes)} shards are converted")
    for path in checkpoint.glob("*.safetensors"):
        if path.name not in names:
            path.unlink()
    missing = [shards[name] for name in names if name != STATE]
    two_shards = sum(sorted(shards[name].size for name in names)[-2:])
    check_free_space(pull.folder, plan.size + two_shards - partial_bytes(pull.source.name))
    progress.begin("fetching and converting", sum(shard.size for shard in missing) + plan.weight_bytes(names))
    if STATE in names:
        write_shard(plan, pull.folder, checkpoint / STATE, progress.advance)
    with closing(_arriving(pull, missing, checkpoint)) as paths:
        for path in paths:
            write_shard(plan, pull.folder, path, progress.advance)
            path.unlink()
            progress.say(f"{path.name}: sha256 checked, converted")


def _fetch(listed: Listing, shard: HubFile, folder: Path, advance: Advance) -> Path:
    """Fetch a shard, unless it is there."""
    path = folder / shard.name
    if is_whole(path, shard.size, shard.sha256):
        advance(shard.size)
    else:
        path.unlink(missing_ok=True)
        download(listed, shard, path, sha256=shard.sha256, advance=advance)
    return path


def _arriving(pull: Pull, shards: Sequence[HubFile], checkpoint: Path) -> Generator[Path]:
    """Yield the paths of the shards, in their order; while one is used, the next arrives.

    Whoever takes the next path must have deleted the file before: at most two are on the disk. When the generator is
    closed, the download ends with the next bytes that arrive.
    """
    ended = Event()

    def advance(count: int) -> None:
        if ended.is_set():
            raise InterruptedError
        pull.progress.advance(count)

    def start(shard: HubFile) -> Future[Path]:
        arrival: Future[Path] = Future()

        def bring() -> None:
            try:
                arrival.set_result(_fetch(pull.listed, shard, checkpoint, advance))
            except BaseException as error:
                arrival.set_exception(error)

        # A daemon: an interrupt does not wait for a server that sends nothing.
        Thread(target=bring, daemon=True).start()
        return arrival

    try:
        arrivals = [start(shard) for shard in shards[:1]]
        for following in [*shards[1:], None][: len(shards)]:
            path = wait_until_done(arrivals[-1])
            arrivals += [start(following)] if following else []
            yield path
    finally:
        ended.set()
