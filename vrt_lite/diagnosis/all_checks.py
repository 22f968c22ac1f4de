"""The checks of this machine: engine, devices, files, models, settings, packages. Their imports may be missing."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from vrt_lite.advice import (
    ON_WINDOWS,
    command,
    install,
    install_engine,
    install_extra,
    list_extra,
    move_aside,
    unset_variable,
)
from vrt_lite.diagnosis.finding import Finding, reinstall
from vrt_lite.disk import HOME_VARIABLE, data_home, home, settings_path
from vrt_lite.errors import ASK_DOCTOR, ModelError, StoreError, UsageError, VrtError
from vrt_lite.machine import Machine, MachineMemory, format_bytes
from vrt_lite.models import bundled_names, find
from vrt_lite.models.gguf import gguf_bytes
from vrt_lite.models.library import partial_bytes, partial_names, recipes, stored_models
from vrt_lite.runs.store import Store, users_store
from vrt_lite.stored_settings import KEYS, LOCAL, read_stored
from vrt_lite.worker import Worker

_LOAD_SECONDS, _RUN_SECONDS = 60.0, 300.0
"""How long the engine may take to load, and to run a small model; for a GPU, programs may be compiled first."""
_LEAST_FREE_BYTES: Final = 2 * 10**9
_BACK_END: Final = re.compile(r"(?:lib)?ggml-([a-z]+)\.(?:so|dylib|dll)")
BY_MAKER: Final = {"NVIDIA": "cuda", "Apple": "metal", "AMD or Intel": "vulkan"}
"""By maker of the GPU: the back end that uses it."""
_MAKERS: Final = {"0x10de": "NVIDIA", "0x1002": "AMD or Intel", "0x8086": "AMD or Intel"}
"""By the number of a PCI device's vendor."""
_HIDING: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
"""Environment variables that choose GPUs, and may leave none."""
_KNOWN: Final = (HOME_VARIABLE, "VRT_LITE_API_KEY", "VRT_LITE_TOKEN", *(key.variable for key in KEYS.values()))
_CODECS: Final = ("h264", "hevc", "vp9", "av1")
_EXTRAS: Final = {"web": "vrt-lite serve", "eval": "eval --plots and sets in parquet"}
"""By extra: what needs it."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An engine that can be loaded: its back ends, and what it tells of this machine."""

    back_ends: tuple[str, ...]
    machine: Machine
    memory: MachineMemory

    @property
    def gpu_back_end(self) -> str:
        """The first back end that uses GPUs; "" without one."""
        return next((name for name in self.back_ends if name not in ("cpu", "blas", "rpc")), "")


def run_all_checks() -> dict[str, list[Finding]]:
    """All findings, by group."""
    report, engine = check_engine()
    checks = {
        "engine": [engine],
        "machine": [check_devices(report, find_gpu_makers())] if report else [],
        "files": [check_folders(), check_store()],
        "models": [check_models(), check_configured_model()],
        "settings": [check_settings(), check_variables()],
        "packages": [check_codecs(), check_extras()],
    }
    return {group: [finding for check in of for finding in run_check(check)] for group, of in checks.items()}


def run_check(check: Iterable[Finding]) -> list[Finding]:
    """The findings of a check of files; one that tells which file cannot be read, if there is such a file."""
    try:
        return [*check]
    except OSError as error:
        path = Path(str(error.filename))
        text = f"{path} cannot be read: {error.strerror}"
        return [Finding("file_unreadable", "problem", text, give_access(path, error))]


# The engine and its devices


def _read_machine() -> tuple[Machine, MachineMemory]:
    """In the child: load the engine, and ask it for this machine's devices and memory."""
    from vrt_lite.backends import describe_machine, read_memory  # noqa: PLC0415

    return describe_machine(), read_memory()


def _run_judge() -> float:
    """In the child: run the bundled judge's model as by default; returns the tokens that it reads in a second."""
    from vrt_lite.tuning import Tuning  # noqa: PLC0415
    from vrt_lite.tuning.tune import measure_model  # noqa: PLC0415

    files = find()
    return 1 / measure_model(files, Tuning(projector=files.projector.name), (0, 1, 0)).seconds


def check_engine() -> tuple[EngineReport | None, list[Finding]]:
    """The engine, None if it cannot be loaded, and what is found about its build and a run in a child process."""
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None, [Finding("engine_missing", "problem", "llama-cpp-python is not installed", install_engine())]
    back_ends = list_back_ends(Path(spec.origin).parent / "lib")
    text = f"llama-cpp-python {version('llama-cpp-python')}; back ends: {', '.join(back_ends)}"
    found, report = [Finding("engine_build", "ok", text)], None
    with Worker() as worker:
        try:
            report = EngineReport(back_ends, *worker.call(_read_machine, seconds=_LOAD_SECONDS))
            speed = worker.call(_run_judge, seconds=_RUN_SECONDS)
            found.append(Finding("engine_runs", "ok", f"runs the bundled judge: {speed:.0f} tokens read a second"))
        except Exception as error:  # whatever it is, it is what is wrong
            text = str(error).removesuffix(ASK_DOCTOR)
            text = text if isinstance(error, VrtError) else f"{type(error).__name__}: {text}"
            if report:
                text = f"the engine cannot run the bundled judge: {text}"
            kind = "engine_fails" if report else "engine_unusable"
            found.append(Finding(kind, "problem", text, install_engine(report.gpu_back_end if report else "")))
    return report, found


def list_back_ends(folder: Path) -> tuple[str, ...]:
    """The back ends of the engine in a folder of libraries. Loads none of them."""
    names = [path.name for path in folder.glob("*")]
    return tuple(sorted({found[1] for name in names if (found := _BACK_END.fullmatch(name))} - {"base"}))


def check_devices(report: EngineReport, makers: list[str]) -> Iterator[Finding]:
    """The processor, its features, the memory, and the GPUs. `makers` are those of the GPUs that are there."""
    machine, memory = report.machine, report.memory
    features = ", ".join(re.findall(r"(\w+) = 1", machine.engine))
    yield Finding("processor", "ok", f"{machine.processor}, {machine.cpus} usable processors: {features}")
    text = f"memory: {format_bytes(memory.free_bytes)} free of {format_bytes(memory.total_bytes)} with swap"
    yield Finding("memory", "ok", text)
    if gpu := memory.gpu:
        yield Finding("gpu", "ok", f"GPU: {gpu.name}, {format_bytes(gpu.free_bytes)} free")
    elif not makers:
        yield Finding("gpu", "ok", "GPU: none")
    elif not report.gpu_back_end:
        text = f"GPU: one by {makers[0]}, which this engine cannot use; with it, judging is much faster"
        yield Finding("gpu_unused", "note", text, install_engine(BY_MAKER[makers[0]]))
    else:
        hiding = next((name for name in _HIDING if name in os.environ), "")
        why = f"{hiding} may hide it" if hiding else "see whether its driver works"
        driver = "nvidia-smi" if makers[0] == "NVIDIA" else "vulkaninfo --summary"
        step = unset_variable(hiding) if hiding else driver
        yield Finding("gpu_not_found", "note", f"GPU: one by {makers[0]}, which the engine does not find: {why}", step)


def find_gpu_makers() -> list[str]:
    """The makers of this machine's GPUs, as far as its programs and files show them, NVIDIA first."""
    makers = {"NVIDIA"} if shutil.which("nvidia-smi") else set[str]()
    for path in Path("/sys/class/drm").glob("renderD*/device/vendor"):
        makers.add(_MAKERS.get(path.read_text(encoding="ascii", errors="replace").strip(), ""))
    if sys.platform == "darwin":
        makers.add("Apple")
    return [maker for maker in BY_MAKER if maker in makers]


# Files and models


def check_folders() -> Iterator[Finding]:
    """Whether the folders of models and of runs can be written, or made, and the space on their disks."""
    for folder, kind in {data_home(): "data_home", home(): "home"}.items():
        existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(bytes(4096))
                file.flush()
            free = shutil.disk_usage(existing).free
        except OSError as error:
            text = f"{folder} cannot be written: {error.strerror}"
            yield Finding(f"{kind}_unwritable", "problem", text, give_access(existing, error))
            continue
        text = f"{folder}: {'writable' if os.path.lexists(folder) else 'not made yet'}, {format_bytes(free)} free"
        if free < _LEAST_FREE_BYTES:
            yield Finding("disk_low", "note", f"{text}: too little for a full model", "vrt-lite cache --clear")
        else:
            yield Finding(kind, "ok", text)


def give_access(path: Path, error: OSError) -> str:
    """The command after which a file or folder can be read and written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "vrt-lite cache --clear"
    if sys.platform != "win32" and error.errno == errno.EACCES and path.stat().st_uid == os.getuid():
        return command("chmod", "-R", "u+rwX", path)
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return move_aside(path)
    other = Path.home() / "vrt-lite-home"
    return f"set {HOME_VARIABLE}={other}" if ON_WINDOWS else f"export {HOME_VARIABLE}={command(other)}"


def check_store() -> Iterator[Finding]:
    """Whether the store of runs can be read and written."""
    path = users_store()
    if not os.path.lexists(path):
        yield Finding("store", "ok", f"store of runs: {path}, not made yet")
        return
    try:
        with Store(path) as store:
            text = f"store of runs: {path}, {len(store.runs())} runs, {format_bytes(path.stat().st_size)}"
        yield Finding("store", "ok", text)
    except (UsageError, StoreError) as error:
        kind = "store_foreign" if isinstance(error, UsageError) else "store_unusable"
        yield Finding(kind, "problem", str(error), move_aside(path))


def check_models() -> Iterator[Finding]:
    """Every model that comes with the package or was pulled: whole or damaged, by the sizes of its files."""
    repairs = dict.fromkeys(bundled_names(), reinstall())
    repairs |= {name: _pull(name) for model in stored_models() if (name := model.manifest.name)}
    for name, repair in repairs.items():
        try:
            files = find(name)
        except ModelError as error:
            yield Finding("model_damaged", "problem", str(error), repair)
        else:
            size = gguf_bytes(files.text) + files.projector.stat().st_size
            yield Finding("model", "ok", f"{name}: whole, {format_bytes(size)}")
    for name in partial_names():
        text = f"{name} is not complete: {format_bytes(partial_bytes(name))} have arrived"
        yield Finding("pull_unfinished", "note", text, _pull(name))


def _pull(name: str) -> str:
    return command("vrt-lite", "pull", name)


# Settings and packages


def check_settings() -> Iterator[Finding]:
    """The settings file and the variables of settings: what is set, and what cannot be used."""
    found, problems = read_stored()
    told = [f"{name} by its {'variable' if kept.source != 'file' else 'file'}" for name, kept in found.items()]
    state = "" if os.path.lexists(settings_path()) else ", not made yet"
    yield Finding("settings", "ok", f"settings file: {settings_path()}{state}; set: {', '.join(told) or 'nothing'}")
    for problem in problems:
        yield Finding("setting_invalid", "problem", problem.text, problem.command)


def check_configured_model() -> Iterator[Finding]:
    """Whether the model that a variable or the settings file names is here, unless a server judges."""
    found, _ = read_stored()
    kept, backend = found.get("model"), found.get("backend")
    if kept is None or (backend and backend.value != LOCAL):
        return
    name = str(kept.value)
    try:
        find(name)
    except ModelError as error:
        place, unset = f"model in {settings_path()}", "vrt-lite config unset model"
        if kept.source == "environment":
            place, unset = KEYS["model"].variable, unset_variable(KEYS["model"].variable)
        step = _pull(name) if name.partition(":")[0] in recipes() else unset
        yield Finding("model_missing", "problem", f"{place} is {name}, and judging ends: {error}", step)


def check_variables() -> Iterator[Finding]:
    """Names of variables that nothing reads, and one that keeps the hub's client offline. Values may be secret."""
    if (value := os.environ.get("HF_HUB_OFFLINE", "")).upper() in ("1", "ON", "YES", "TRUE"):
        text = f"HF_HUB_OFFLINE is {value}: pull fetches nothing"
        yield Finding("hub_offline", "note", text, unset_variable("HF_HUB_OFFLINE"))
    for name in sorted(os.environ):
        if name.startswith("VRT_LITE_") and name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            text = f"nothing reads {name}{f'; do you mean {near[0]}?' if near else ''}"
            yield Finding("variable_unknown", "note", text, unset_variable(name))


def check_codecs() -> Iterator[Finding]:
    """Whether clips of the usual codecs can be read."""
    repair = install("--force-reinstall", "--no-cache-dir", "--only-binary", "av", "av")
    try:
        from vrt_lite.video.encoding import has_codec  # noqa: PLC0415 - av may be broken
    except ImportError as error:
        yield Finding("video_unusable", "problem", f"av cannot be loaded, so no clip can be read: {error}", repair)
        return
    if missing := [codec for codec in _CODECS if not has_codec(codec)]:
        yield Finding("decoder_missing", "problem", f"av cannot read clips in {', '.join(missing)}", repair)
    else:
        yield Finding("decoders", "ok", f"av {version('av')} reads {', '.join(_CODECS)}")


def check_extras() -> Iterator[Finding]:
    """Whether the packages of each extra are installed."""
    for extra, use in _EXTRAS.items():
        names = (re.split(r"[^\w.-]", requirement)[0] for requirement in list_extra(extra))
        if missing := [name for name in names if not _is_installed(name)]:
            text = f"the extra {extra} is not whole: {', '.join(missing)} missing, which {use} needs"
            yield Finding("extra_missing", "note", text, install_extra(extra))
        else:
            yield Finding("extra", "ok", f"the extra {extra} is installed: {use}")


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
