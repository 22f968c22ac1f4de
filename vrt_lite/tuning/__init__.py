"""Plans how the engine runs a model on this machine, and keeps what was measured of both.

`plan_engine` starts from the user's settings, applies what `vrt-lite tune` found, and makes the result fit the memory.
`compare` uses the plan, and `estimate` shows it. Planning loads no model.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from vrt_lite.backends import describe_machine, has_gpu, read_memory
from vrt_lite.disk import home, write_file
from vrt_lite.errors import UsageError, VrtError
from vrt_lite.fitting import EnginePlan, add_sequences, choose_plan
from vrt_lite.fitting.memory_estimate import ModelShape, read_shape
from vrt_lite.machine import MOST_SEQUENCES, EngineSettings, Machine, MachineMemory
from vrt_lite.models import ModelFiles, find
from vrt_lite.profile import Profile
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings

_MAX_FILE_BYTES = 65_536
_IDENTITY_BYTES = 16 * 2**20
_MOST_TIMES = 8
_Kept = TypeVar("_Kept")
Times = tuple[tuple[int, float], ...]
"""Of judgements by a model: the visual tokens of a frame, and the seconds of each order."""


def plan_engine(
    files: ModelFiles,
    settings: Settings,
    *,
    verbose: bool = False,
    sequences: int = 1,
    pairs: int = 1,
    repack: bool | None = None,
    memory: MachineMemory | None = None,
    shape: ModelShape | None = None,
) -> EnginePlan:
    """Plan how the engine runs on this machine, or with the `memory` given, for `pairs` that are judged at once.

    `sequences` is the most that are used.

    `repack` is None where the user has not set it, `shape` where the files' headers were not read yet. Raises
    ModelError, UsageError, OutOfMemoryError.
    """
    refuse_impossible(settings)
    engine, tuned = apply_tuning(files, _engine_settings(settings, verbose=verbose), describe_machine())
    shape, here = shape or read_shape(files), memory or read_memory()
    plan = plan_shape(shape, files.profile, settings, here, engine=engine, repack=repack)
    plan = add_sequences(plan, shape, here, sequences, pairs=pairs)
    return replace(plan, tuned=tuned)


def plan_shape(
    shape: ModelShape,
    profile: Profile,
    settings: Settings,
    memory: MachineMemory,
    *,
    engine: EngineSettings | None = None,
    repack: bool | None = None,
) -> EnginePlan:
    """Plan how the engine would run a model of this shape and profile on a machine with this memory.

    `engine` is what was tuned, where there is a tuning. Raises OutOfMemoryError.
    """
    engine = engine or _engine_settings(settings)
    if settings.kv_type:
        engine = replace(engine, kv_type=settings.kv_type)
    if repack is not None:
        engine = replace(engine, repack=repack)
    return choose_plan(
        shape,
        settings.applied_to(profile),
        engine,
        memory,
        choose_kv_type=settings.kv_type is None,
        choose_pixels=not settings.limits_pixels,
    )


def _engine_settings(settings: Settings, *, verbose: bool = False) -> EngineSettings:
    return EngineSettings(
        context=settings.ctx,
        gpu_layers=settings.gpu_layers,
        threads=settings.threads,
        kv_type=settings.kv_type or "f16",
        verbose=verbose,
    )


def refuse_impossible(settings: Settings) -> None:
    """UsageError for more threads than there are processors, and for layers on a GPU without a GPU."""
    if settings.threads and settings.threads > (cpus := describe_machine().cpus):
        raise UsageError(
            f"--threads {settings.threads} cannot be met: at most {cpus} are allowed here, one for each processor that "
            "this process may use. Lower it, or leave it out."
        )
    if settings.gpu_layers and not has_gpu():
        from vrt_lite.advice import install_engine  # noqa: PLC0415 - rarely needed

        raise UsageError(
            f"--gpu-layers {settings.gpu_layers} cannot be met: the engine installed here has no GPU to use, only the "
            f"processor ({describe_machine().processor}). Leave it out, or install the engine with a GPU back end: "
            f"{install_engine('cuda')} "
            "(for AMD and Intel: -DGGML_VULKAN=on)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The values that can be tuned; None lets the engine choose. `jobs` pairs are judged at once."""

    projector: str
    threads: Annotated[int, msgspec.Meta(ge=1)] | None = None
    repack: bool = False
    jobs: Annotated[int, msgspec.Meta(ge=1, le=MOST_SEQUENCES)] = 1

    def apply_to(self, settings: EngineSettings) -> EngineSettings:
        """The settings with this tuning. What is not at its default was set by the user, and stays."""
        return replace(settings, threads=settings.threads or self.threads, repack=settings.repack or self.repack)


@dataclass(frozen=True, slots=True)
class StoredTuning:
    """A tuning as it is kept: the model's name, the machine that it was measured on, and what was found."""

    format: Literal[2]
    model: str
    machine: Machine
    tuning: Tuning


def kept_path(kind: str, *facts: object) -> Path:
    """The file in which something of this kind is kept about these facts, whether it exists or not."""
    return home() / kind / f"{hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()}.json"


def read_kept(path: Path, kind: type[_Kept]) -> _Kept | None:
    """What is kept in a file; None if there is none, or it cannot be used."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_FILE_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


def keep(path: Path, kept: object) -> None:
    """Write a file whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, msgspec.json.format(msgspec.json.encode(kept)))


def tuning_path(files: ModelFiles, machine: Machine) -> Path:
    """The file for this model on this machine, whether it exists or not."""
    return kept_path("tuning", identify_model(files.text), machine)


def tuning_folder() -> Path:
    """Where all tunings are saved; it may not exist."""
    return home() / "tuning"


def save_tuning(tuning: Tuning, files: ModelFiles, machine: Machine) -> Path:
    """Keep a tuning; returns its file. Raises OSError."""
    path = tuning_path(files, machine)
    keep(path, StoredTuning(2, files.name, machine, tuning))
    return path


def load_tuning(files: ModelFiles, machine: Machine) -> Tuning | None:
    """The tuning of this model on this machine; None if there is none that can be used. Never fails."""
    stored = read_tuning(tuning_path(files, machine))
    return stored.tuning if stored and stored.machine == machine else None


def find_tuning(model: str | Path | None, projector: Path | None = None) -> Tuning | None:
    """The tuning on this machine of the model that these name; None if there is none, or the model cannot be used."""
    if not tuning_folder().is_dir():
        return None
    try:
        return load_tuning(find(model, projector=projector), describe_machine())
    except VrtError:
        return None


def read_tuning(path: Path) -> StoredTuning | None:
    """The tuning in a file; None if it is not one that its machine can use. Never fails."""
    stored = read_kept(path, StoredTuning)
    return stored if stored and (stored.tuning.threads or 1) <= stored.machine.cpus else None


def apply_tuning(files: ModelFiles, settings: EngineSettings, machine: Machine) -> tuple[EngineSettings, bool]:
    """The settings as tuned for this model on this machine, and whether there is a tuning.

    A tuning holds only where the engine chooses the layers on GPUs itself.
    """
    tuning = load_tuning(files, machine) if not settings.exact else None
    if tuning is None or (machine.gpus and settings.gpu_layers is not None):
        return settings, False
    return tuning.apply_to(settings), True


def keep_time(files: ModelFiles, plan: EnginePlan, judgement: Judgement) -> None:
    """Keep how long a judgement took with this plan, unless frames of it were encoded before."""
    encoded = sum(order.rounds[0].frames_encoded for order in judgement.orders)
    if encoded < 2 * plan.profile.first_frames:
        return
    t, (width, height) = judgement.timings, judgement.inputs[0].shown_size
    seconds = (t.vision + t.prefill + t.generate + t.other) / len(judgement.orders)
    times = (*read_times(files, plan), (width * height // plan.profile.pixels_per_token, seconds))
    with contextlib.suppress(OSError):
        keep(_times_path(files, plan), times[-_MOST_TIMES:])


def read_times(files: ModelFiles, plan: EnginePlan) -> Times:
    """What the last judgements with this plan took."""
    return read_kept(_times_path(files, plan), Times) or ()


def _times_path(files: ModelFiles, plan: EnginePlan) -> Path:
    profile, machine = plan.profile.sha256, describe_machine()
    return kept_path("speeds", identify_model(files.text), files.projector.name, plan.settings, profile, machine)


def choose_projector(
    files: ModelFiles, describe_machine: Callable[[], Machine], *, as_tuned: bool = True
) -> ModelFiles:
    """The files with the best type of the projector: the one that tuning found, else the default.

    By default BF16 is best where the processor computes in it; elsewhere it is the slowest. The machine is described
    only if there is a choice.
    """
    if len(files.projectors) < 2:
        return files
    machine = describe_machine()
    tuning = load_tuning(files, machine) if as_tuned else None
    tuned = [path for path in files.projectors if tuning and path.name == tuning.projector]
    bf16 = [path for path in files.projectors if machine.computes_bf16 and "bf16" in path.name.lower()]
    return replace(files, projector=[*tuned, *bf16, files.projector][0])


def identify_model(text: Path) -> str:
    """A digest of a text model's size and its first 16 MiB.

    They hold all of GGUF's header: the shape and type of every tensor. Speed depends on nothing else, so two files with
    the same digest are equally fast. A digest of the whole file would take seconds before each verdict.
    """
    digest = hashlib.blake2b(digest_size=16)
    with contextlib.suppress(OSError), text.open("rb") as file:
        digest.update(file.read(_IDENTITY_BYTES))
        digest.update(str(text.stat().st_size).encode())
    return digest.hexdigest()
