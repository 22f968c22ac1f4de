"""Plans how the engine runs a model on this machine, and keeps what was measured of both.

`plan_engine` starts from the user's settings, applies what `vrt-lite tune` found, and makes the result fit the memory.
`compare` uses the plan, and `estimate` shows it. Planning loads no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from vrt_lite.backends import describe_machine, has_gpu, read_memory
from vrt_lite.disk import home, write_file
from vrt_lite.errors import UsageError, VrtError
from vrt_lite.fitting import EnginePlan, choose_plan
from vrt_lite.fitting.memory_estimate import read_shape
from vrt_lite.machine import MOST_SEQUENCES, EngineSettings, Machine, MachineMemory
from vrt_lite.models import ModelFiles, find
from vrt_lite.models.gguf import gguf_bytes
from vrt_lite.reading import read_json
from vrt_lite.settings import Settings

_Kept = TypeVar("_Kept")


def plan_engine(
    files: ModelFiles,
    settings: Settings,
    *,
    verbose: bool = False,
    sequences: int = 1,
    pairs: int = 1,
    memory: MachineMemory | None = None,
) -> EnginePlan:
    """Plan how the engine runs on this machine, or with the `memory` given.

    `sequences` is the most that are used, for `pairs` judged at once. Raises ModelError, OutOfMemoryError, and
    UsageError for settings that the profile cannot have.
    """
    tuning = load_tuning(files, describe_machine())
    engine = replace(tuning.settings if tuning else EngineSettings(), verbose=verbose)
    shape, memory = read_shape(files), memory or read_memory()
    plan = choose_plan(shape, files.profile, settings, memory, engine=engine, sequences=sequences, pairs=pairs)
    return replace(plan, tuned=tuning is not None)


def refuse_impossible(settings: Settings) -> None:
    """UsageError for more threads than there are processors, and for layers on a GPU without a GPU."""
    if settings.threads and settings.threads > (cpus := describe_machine().cpus):
        raise UsageError(
            f"--threads {settings.threads} cannot be met: at most {cpus} are allowed here, one for each processor that "
            "this process may use. Lower it, or leave it out."
        )
    if settings.gpu_layers and not has_gpu():
        raise UsageError(
            f"--gpu-layers {settings.gpu_layers} cannot be met: the engine installed here has no GPU to use, only the "
            f"processor ({describe_machine().processor}). Leave it out, or see how to use a GPU: vrt-lite doctor"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The values that can be tuned, as they are kept; None lets the engine choose. `jobs` pairs are judged at once."""

    projector: str
    threads: Annotated[int, msgspec.Meta(ge=1)] | None = None
    repack: bool = False
    jobs: Annotated[int, msgspec.Meta(ge=1, le=MOST_SEQUENCES)] = 1

    @property
    def settings(self) -> EngineSettings:
        """The engine's settings that are tuned."""
        return EngineSettings(threads=self.threads, repack=self.repack)


def kept_path(kind: str, *facts: object) -> Path:
    """The file in which something of this kind is kept about these facts, whether it exists or not."""
    return home() / kind / f"{hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()}.json"


def read_kept(path: Path, kind: type[_Kept]) -> _Kept | None:
    """What is kept in a file; None if there is none, or it cannot be used."""
    try:
        return read_json(path.read_bytes(), kind)
    except (OSError, ValueError, RecursionError):
        return None


def keep(path: Path, kept: object) -> None:
    """Write a file whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, msgspec.json.encode(kept))


def tuning_path(files: ModelFiles, machine: Machine) -> Path:
    """The file for this model on this machine, whether it exists or not.

    A model is known by its size: two with as many bytes have the same matrices, and are equally fast.
    """
    return kept_path("tuning", gguf_bytes(files.text), machine)


def load_tuning(files: ModelFiles, machine: Machine) -> Tuning | None:
    """The tuning of this model on this machine; None if there is none that can be used. Never fails."""
    return read_kept(tuning_path(files, machine), Tuning)


def find_tuning(model: str | Path | None, projector: Path | None = None) -> Tuning | None:
    """The tuning on this machine of the model that these name; None if there is none, or the model cannot be used."""
    if not (home() / "tuning").is_dir():  # then the engine need not be loaded
        return None
    try:
        return load_tuning(find(model, projector=projector), describe_machine())
    except VrtError:
        return None


def choose_projector(files: ModelFiles, describe: Callable[[], Machine]) -> ModelFiles:
    """The files with the type of the projector that tuning found. `describe` is called only if there is a choice."""
    if len(files.projectors) > 1 and (tuning := load_tuning(files, describe())):
        tuned = files.projector.with_name(tuning.projector)
        return replace(files, projector=tuned) if tuned in files.projectors else files
    return files
