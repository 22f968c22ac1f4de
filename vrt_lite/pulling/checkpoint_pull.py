"""Pulls a model that is published as a checkpoint: each shard is converted when it has arrived, and then deleted.

While that lasts, the partial folder holds both GGUF files as far as they are written with their journal, and
checkpoint/<commits>/<repository>/ with the small files and at most two shards. A reward model's state (`reward_state`)
is one shard that arrives before anything is planned, and stays until the model is installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from vrt_lite.conversion.checkpoint import INDEX, ONLY_SHARD, list_shards, read_json
from vrt_lite.conversion.families import FAMILIES
from vrt_lite.conversion.pair_files import describe_pair
from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import JOURNAL, begin, describe, write_shard
from vrt_lite.conversion.reward_state import STATE
from vrt_lite.conversion.type_names import CONVERTER_TYPES, TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import wait_until_done
from vrt_lite.machine import SPARE_BYTES, format_bytes
from vrt_lite.models.gguf import Gguf, list_pair
from vrt_lite.models.hub import Advance, HubFile, Listing, Progress, check_free_space, download, is_whole
from vrt_lite.models.library import StoredFile, StoredModel, keep_only, partial_bytes, partial_folder
from vrt_lite.models.quants import SHARE_OF_MEMORY, TextFile, best_quant, normalise_quant, quant_of
from vrt_lite.profile import PROFILE_NAME
from vrt_lite.pulling.gguf_files import does_not_fit
from vrt_lite.pulling.pull_source import (
    MODEL_FILES,
    OWN_FILES,
    SMALL_FILES,
    Pulled,
    PullSource,
    expected_sha256,
    fetch_small_files,
    keep_nothing_refused,
)

PROJECTOR_TYPE: Final = "f16"
CHOICES: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
"""The types among which a pull chooses by itself, the largest first."""
_ENGINE: Final = "llama-cpp-python"
_CHECKPOINT: Final = "checkpoint"
_SECONDS_TO_END = 2.0


def pull_checkpoint(
    source: PullSource,
    listed: Listing,
    here: StoredModel | None,
    memory_bytes: int,
    progress: Progress,
    projector_type: str | None,
) -> Pulled:
    """Convert a checkpoint into the partial folder.

    Without a quant or a `projector_type` those that are begun or here stay.
    """
    asked, folder = normalise_quant(source.quant), partial_folder(source.name)
    if asked:
        check_type(listed.repository, asked)
    progress.say(f"{source.name}: {listed.repository} at {listed.revision[:12]}, a checkpoint that is converted here")
    begun, begun_projector = _read_begun(folder)
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
    with keep_nothing_refused(source.name):
        config = read_config(listed, checkpoint)
        shards = find_shards(source, listed, checkpoint)
        kind = projector_type or begun_projector or (here and here.manifest.projector_type) or PROJECTOR_TYPE
        quant, why = asked or begun, "as asked for" if asked else "as begun"
        if not quant and here:
            quant, why = here.manifest.quant, "as the model here"
        if not quant:
            usable = int(memory_bytes * SHARE_OF_MEMORY)
            quant = choose_type(listed.repository, config, usable, projector_type=kind).upper()
            share = f"{SHARE_OF_MEMORY:.0%} of this machine's memory"
            why = f"the largest from Q4_K_M to Q8_0 that fits {format_bytes(usable)} ({share})"
        text_type = check_type(listed.repository, quant)
    progress.say(f"quant: {quant}, {why}; projector: {kind.upper()}")
    if state := shards.get(STATE):  # the files' headers have its heads and their number of tokens
        result = sum(map(_weights_of, describe_pair(config, text_type=text_type, projector_type=kind)))
        _check_disk(source.name, [state.size], result, progress)
        progress.begin("fetching", state.size)
        _fetch(listed, state, checkpoint, progress.advance)
    with keep_nothing_refused(source.name):
        plan = plan_pair(checkpoint, text_type=text_type, projector_type=kind, origin=listed.commits)
    keep_only(folder, {_CHECKPOINT, JOURNAL, *(file.name for file in plan.files)})
    _convert(source, listed, shards, plan, checkpoint, progress)
    text, projector = (describe(folder / file.name) for file in plan.files)
    files = (
        StoredFile(projector.path.name, "projector", projector.size, projector.sha256),
        StoredFile(text.path.name, "text", text.size, text.sha256),
    )
    return Pulled(quant, files, checkpoint / PROFILE_NAME, f"{_ENGINE} {version(_ENGINE)}", kind)


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


def read_config(listed: Listing, folder: Path) -> Mapping[str, Any]:
    """Read config.json. ModelError if it is of another architecture."""
    config = read_json(folder / "config.json").values
    if (kind := config.get("model_type")) not in FAMILIES:
        known = " or ".join(map(repr, FAMILIES))
        raise ModelError(f"{listed.repository} is of architecture {kind!r:.60}; a judge needs {known}.")
    return config


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


def _read_begun(folder: Path) -> tuple[str, str]:
    """Return the quant and the projector's type of what is begun, by the names of its files; "" if nothing is."""
    texts, projectors = list_pair(folder) if (folder / JOURNAL).is_file() else ([], [])
    return "".join(quant_of(path.name) for path in texts[:1]), "".join(
        quant_of(path.name).lower() for path in projectors[:1]
    )


def _convert(
    source: PullSource,
    listed: Listing,
    shards: Mapping[str, HubFile],
    plan: PairPlan,
    checkpoint: Path,
    progress: Progress,
) -> None:
    """Write both files, and fetch the shards that they still need."""
    folder = partial_folder(source.name)

    def fetch(shard: HubFile, advance: Advance) -> Path:
        return _fetch(listed, shard, checkpoint, advance)

    sizes = [shards[name].size for name in plan.shards]
    count = f"{len(sizes)} shards" if len(sizes) > 1 else "one file"
    progress.say(
        f"fetched: {format_bytes(sum(sizes))} in {count}, deleted as soon as it is converted; "
        f"{format_bytes(plan.weight_bytes(plan.shards))} stay"
    )
    names = begin(plan, folder)
    missing = [shards[name] for name in names]
    if converted := len(sizes) - len(missing):
        progress.say(f"going on: {converted} of {len(sizes)} shards are converted")
    for path in checkpoint.glob("*.safetensors"):
        if path.name not in names:
            path.unlink()
    _check_disk(source.name, [shard.size for shard in missing], plan.size, progress)
    to_fetch = sum(shard.size for shard in missing)
    progress.begin("fetching and converting", to_fetch + plan.weight_bytes(names))
    with closing(_arriving(missing, fetch, progress.advance)) as paths:
        for path in paths:
            write_shard(plan, folder, path, progress.advance)
            if path.name != STATE:
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


def _check_disk(name: str, shards: Sequence[int], result_bytes: int, progress: Progress) -> None:
    """Say how much room the disk needs and has. ModelError if it has too little."""
    needed = max(0, result_bytes + sum(sorted(shards)[-2:]) - partial_bytes(name))
    free = shutil.disk_usage(partial_folder(name)).free
    progress.say(f"disk: at most {format_bytes(needed + SPARE_BYTES)} more are needed, {format_bytes(free)} are free")
    check_free_space(partial_folder(name), needed)


class _EndedError(Exception):
    """Nobody waits for this shard any more."""


def _arriving(
    shards: Sequence[HubFile], fetch: Callable[[HubFile, Advance], Path], advance: Advance
) -> Generator[Path]:
    """Yield the paths of the shards, in their order; while one is used, the next arrives.

    `fetch` brings one shard, in a thread; what it raises is raised here. Whoever takes the next path must have deleted
    the file before: at most two are on the disk. When the generator is closed, so is the download.
    """
    ended = Event()

    def advance_unless_ended(count: int) -> None:
        if ended.is_set():
            raise _EndedError
        advance(count)

    def bring(shard: HubFile, arrival: Future[Path]) -> None:
        try:
            arrival.set_result(fetch(shard, advance_unless_ended))
        except BaseException as error:
            arrival.set_exception(error)

    def start(shard: HubFile) -> tuple[Thread, Future[Path]]:
        arrival: Future[Path] = Future()
        # A daemon: an interrupt does not wait for a server that sends nothing.
        thread = Thread(target=bring, args=(shard, arrival), daemon=True)
        thread.start()
        return thread, arrival

    waiting = [start(shard) for shard in shards[:1]]
    try:
        for following in [*shards[1:], None][: len(shards)]:
            path = wait_until_done(waiting[-1][1])
            if following:
                waiting.append(start(following))
            yield path
    finally:
        ended.set()
        for thread, _ in waiting:
            thread.join(_SECONDS_TO_END)
