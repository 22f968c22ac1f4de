"""Checks of the user's folders, the cache, the store of runs, the models and the tunings."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from vrt_lite import embeddings
from vrt_lite.advice import command, move_aside, unset_variable
from vrt_lite.diagnosis.engine_checks import EngineReport, install_for_gpu
from vrt_lite.diagnosis.finding import Finding, delete_file, reinstall, set_variable
from vrt_lite.disk import HOME_VARIABLE, data_home, home
from vrt_lite.errors import ModelError, StoreError, UsageError
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names, find
from vrt_lite.models.gguf import gguf_bytes
from vrt_lite.models.library import list_unreadable, partial_bytes, partial_names, stored_models
from vrt_lite.runs.store import Store, users_store
from vrt_lite.stored_settings import read_stored
from vrt_lite.tuning import StoredTuning, read_tuning, tuning_folder

_LEAST_FREE_BYTES: Final = 2 * 10**9
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_folders() -> Iterator[Finding]:
    """The folder of models and the folder of runs, which may be the same."""
    yield check_folder("home", home())
    if data_home() != home():
        yield check_folder("data_home", data_home())


def check_folder(kind: str, folder: Path) -> Finding:
    """Whether a folder can be written, or made, and the space on its disk. Leaves nothing behind."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(4096))
            file.flush()
        free = shutil.disk_usage(existing).free
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}"
        return Finding(f"{kind}_unwritable", "problem", text, give_access(existing, error))
    text = f"{folder}: {'writable' if os.path.lexists(folder) else 'not made yet'}, {format_bytes(free)} free"
    if free < _LEAST_FREE_BYTES:
        return Finding("disk_low", "note", f"{text}: too little for a full model", "vrt-lite cache --clear")
    return Finding(kind, "ok", text)


def give_access(folder: Path, error: OSError) -> str:
    """The command after which files can be read and written."""
    if error.errno in _FULL:
        return "vrt-lite cache --clear"
    if sys.platform != "win32" and error.errno == errno.EACCES and folder.stat().st_uid == os.getuid():
        return command("chmod", "-R", "u+rwX", folder)
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return move_aside(folder)
    own = Path.home() if os.access(Path.home(), os.W_OK) else Path(tempfile.gettempdir())
    return set_variable(HOME_VARIABLE, own / "vrt-lite-home")


def check_cache() -> Iterator[Finding]:
    """The cache of encoded frames: its size, its limit, and whether it can be written."""
    folder = embeddings.cache_folder()
    entries, used = embeddings.usage(folder)
    text = f"cache of encoded frames: {folder}, {entries} entries, {format_bytes(used)}"
    kept = read_stored(os.environ)[0].get("cache-mb")
    by_variable = kept is not None and kept.source == "environment"
    disk = embeddings.users_disk(int(kept.value) if kept else embeddings.DISK_BYTES // 10**6)
    if disk is None:
        step = unset_variable(embeddings.SIZE_VARIABLE) if by_variable else "vrt-lite config unset cache-mb"
        yield Finding("cache_off", "note", f"{text}; off, so every frame is encoded again in each run", step)
        return
    text = f"{text} of at most {format_bytes(disk.most_bytes)}"
    if os.path.lexists(folder) and (state := check_folder("cache", folder)).level == "problem":
        yield Finding(state.kind, "note", f"cache of encoded frames: {state.text}", state.next_step)
    elif used > disk.most_bytes * 3 // 4:
        size = str(2 * disk.most_bytes // 10**6)
        larger = set_variable(embeddings.SIZE_VARIABLE, size) if by_variable else f"vrt-lite config set cache-mb {size}"
        yield Finding(
            "cache_full", "note", f"{text}: full, so frames are encoded again that were used long ago", larger
        )
    else:
        yield Finding("cache", "ok", text)


def check_store() -> Iterator[Finding]:
    """Whether the store of runs can be read and written."""
    path = users_store()
    if not os.path.lexists(path):
        yield Finding("store", "ok", f"store of runs: {path}, not made yet")
        return
    try:
        with Store(path) as store:
            runs = store.runs()
        text = f"store of runs: {path}, {len(runs)} runs, {format_bytes(path.stat().st_size)}"
        yield Finding("store", "ok", text)
    except UsageError as error:
        yield Finding("store_foreign", "problem", str(error), move_aside(path))
    except StoreError as error:
        yield Finding("store_unusable", "problem", str(error), move_aside(path))


def check_models() -> Iterator[Finding]:
    """Every model that comes with the package or was pulled: whole or damaged, by the sizes of its files."""
    checkout = Path(__file__).parents[2]
    restore = command("git", "-C", checkout, "checkout", "--", "vrt_lite/bundled")
    repair = restore if (checkout / ".git").exists() else reinstall()
    for name in bundled_names():
        yield _check_model(name, repair)
    for model in stored_models():
        yield _check_model(model.manifest.name, _pull(model.manifest.name))
    for name in list_unreadable():
        yield Finding("model_damaged", "problem", f"{name} is damaged: its manifest cannot be read", _pull(name))
    for name in partial_names():
        text = f"{name} is not complete: {format_bytes(partial_bytes(name))} have arrived"
        yield Finding("pull_unfinished", "note", text, _pull(name))


def _pull(name: str) -> str:
    return command("vrt-lite", "pull", name)


def _check_model(name: str, repair: str) -> Finding:
    try:
        files = find(name)
    except ModelError as error:
        return Finding("model_damaged", "problem", str(error), repair)
    size = gguf_bytes(files.text) + gguf_bytes(files.projector)
    return Finding("model", "ok", f"{name}: whole, {format_bytes(size)}")


def check_tunings(report: EngineReport, makers: Sequence[str]) -> Iterator[Finding]:
    """Whether the saved settings of `vrt-lite tune` fit this machine and engine."""
    found = {path: read_tuning(path) for path in sorted(tuning_folder().glob("*.json"))}
    fitting = {stored.model for stored in found.values() if stored and stored.machine == report.machine}
    for name in sorted(fitting):
        yield Finding("tuning", "ok", f"{name}: tuned for this machine and engine")
    for path, stored in found.items():
        if stored is None:
            path.open("rb").close()  # an OSError says more
            text = f"{path} is damaged, or of another version: it is not used"
            yield Finding("tuning_unusable", "note", text, delete_file(path))
    stale = {stored.model: (path, stored) for path, stored in found.items() if stored and stored.model not in fitting}
    for path, stored in stale.values():
        yield _explain_stale(path, stored, report, makers)
    if not found:
        yield Finding("tuning", "ok", "no model is tuned; the default settings are in use")


def _explain_stale(path: Path, stored: StoredTuning, report: EngineReport, makers: Sequence[str]) -> Finding:
    """The finding for a model that was tuned on another machine, or with another engine, only."""
    name = stored.model
    is_here = name in bundled_names() or any(model.manifest.name == name for model in stored_models())
    # A model that was given as a folder is known by its name alone.
    tune = command("vrt-lite", "tune", name) if is_here else delete_file(path)
    if stored.machine.gpus and not report.machine.gpus:
        text = f"{name}: tuned for {stored.machine.gpus[0]}, and this engine uses no GPU: the settings are not used"
        return Finding("gpu_layers_without_gpu", "note", text, install_for_gpu(makers) if makers else tune)
    same = stored.machine.processor == report.machine.processor
    text = f"{name}: tuned {'with another engine' if same else 'on another machine'}: the settings are not used"
    return Finding("tuning_stale", "note", text, tune)
