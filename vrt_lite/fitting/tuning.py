"""What `vrt-lite tune` found for one model on one machine: the value, its file, and how it changes the settings.

Standard library only. Knows where the file lies (HOME/tuning/) and when it holds; refuses to know how speed is
measured and how a machine is described. A file that is broken, older, or of another machine or model counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from vrt_lite.backends.settings import EngineSettings, KvType
from vrt_lite.models.files import ModelFiles
from vrt_lite.models.store import home, write_whole

PAIRS, PREFILLED, WRITTEN = 12, 9_300, 500
"""A verdict of two rounds: 4 frame pairs and 8 single frames of 720 tokens encoded, tokens read, tokens written."""
UBATCHES: Final = (32, 8192)
_FORMAT = 1
_MOST_BYTES = 65_536
_LEADING_BYTES = 16 * 2**20
_TUNED = ("threads", "repack", "flash_attention", "ubatch", "kv_type")


@dataclass(frozen=True, slots=True)
class Machine:
    """What speed depends on beside the model.

    The processor's name, how many of its threads this process may use, the GPUs' names, the engine's version and what
    it was built with. `build` is a digest of what these do not tell apart: the processor's instructions, which differ
    between virtual machines of one name, and the engine's libraries. Two machines with a home folder in common differ
    in one of them, or are equally fast, and what ran on one runs on the other.
    """

    processor: str
    cpus: int
    gpus: tuple[str, ...]
    engine: str
    build: str

    @property
    def computes_bf16(self) -> bool:
        """Whether the processor multiplies BF16 itself, and the engine lets it. Else BF16 is the slowest type."""
        return "AVX512_BF16 = 1" in self.engine


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds to encode a frame pair at the profile's pixels; tokens a second read and written."""

    pair_seconds: float
    prefill: float
    decode: float

    @property
    def verdict_seconds(self) -> float:
        """Seconds of a verdict of two rounds at this speed."""
        return PAIRS * self.pair_seconds + PREFILLED / self.prefill + WRITTEN / self.decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The settings that were found, and the speed with them and with the defaults. None lets the engine choose."""

    threads: int | None
    repack: bool
    flash_attention: bool | None
    ubatch: int
    kv_type: KvType
    projector: str
    speed: Speed
    default_speed: Speed


def tuning_file(files: ModelFiles, machine: Machine) -> Path:
    """Where what was found for this model on this machine lies, if it is there."""
    name = hashlib.blake2b(repr((_identity(files.text), machine)).encode(), digest_size=16).hexdigest()
    return home() / "tuning" / f"{name}.json"


def save(tuning: Tuning, files: ModelFiles, machine: Machine) -> Path:
    """Keep it, whole or not at all; its file. Raises OSError."""
    path = tuning_file(files, machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {"format": _FORMAT, "model": files.name, "machine": asdict(machine), "tuning": asdict(tuning)}
    write_whole(path, json.dumps(table, indent=2).encode())
    return path


def load(files: ModelFiles, machine: Machine) -> Tuning | None:
    """What was found for this model on this machine; None if nothing was that can be used. Never fails."""
    try:
        with tuning_file(files, machine).open("rb") as file:
            table: dict[str, Any] = json.loads(file.read(_MOST_BYTES))
        if table["format"] != _FORMAT or table["machine"] != {**asdict(machine), "gpus": list(machine.gpus)}:
            return None
        return _read(table["tuning"], cpus=machine.cpus)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def forget(files: ModelFiles, machine: Machine) -> bool:
    """Delete what was found for this model on this machine; whether there was something. Raises OSError."""
    path = tuning_file(files, machine)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def with_projector(files: ModelFiles, machine: Callable[[], Machine]) -> ModelFiles:
    """The files with the best of the projector's types: the one that measuring found, else the default.

    `machine` is asked only if there is a choice.
    """
    by_name = {path.name: path for path in files.projectors}
    found = load(files, machine()) if len(by_name) > 1 else None
    if found and found.projector in by_name:
        return replace(files, projector=by_name[found.projector])
    return default_projector(files, machine)


def default_projector(files: ModelFiles, machine: Callable[[], Machine]) -> ModelFiles:
    """The files with the projector's type that is best as far as is known without measuring.

    BF16 is the quickest where the processor computes in it, and the slowest elsewhere.
    """
    bf16 = [path for path in files.projectors if "bf16" in path.name.lower()]
    better = len(files.projectors) > 1 and bf16 and machine().computes_bf16
    return replace(files, projector=bf16[0]) if better else files


def tuned(files: ModelFiles, settings: EngineSettings, machine: Machine) -> tuple[EngineSettings, bool]:
    """The settings as tuned for this model on this machine, and whether they are.

    What was measured holds for the layers where the engine puts them by itself.
    """
    found = load(files, machine) if not settings.exact else None
    if found is None or (machine.gpus and settings.gpu_layers is not None):
        return settings, False
    return applied(found, settings), True


def applied(tuning: Tuning, settings: EngineSettings) -> EngineSettings:
    """The settings with what was found. A setting that is not at its default was chosen by the user, and stays."""
    default = EngineSettings()
    free = [name for name in _TUNED if getattr(settings, name) == getattr(default, name)]
    merged = replace(settings, **{name: getattr(tuning, name) for name in free})
    return merged if legal(merged) else settings


def report(settings: EngineSettings, *, by_tuning: bool) -> dict[str, object]:
    """The settings that tuning can choose, as in force, for a judgement's JSON; None is the engine's own choice."""
    return {**{name: getattr(settings, name) for name in _TUNED}, "tuned": by_tuning}


def legal(settings: EngineSettings | Tuning) -> bool:
    """Whether the engine can run with these together: it quantises values only for flash attention."""
    return settings.kv_type == "f16" or settings.flash_attention is not False


def _read(table: dict[str, Any], *, cpus: int) -> Tuning:
    """The value, every field checked; ValueError, TypeError or KeyError if it is none for so many processors."""
    speed, default_speed = (_speed(table.pop(name)) for name in ("speed", "default_speed"))
    tuning = Tuning(**table, speed=speed, default_speed=default_speed)
    low, high = UBATCHES
    good = (
        tuning.threads is None or (type(tuning.threads) is int and 1 <= tuning.threads <= cpus),
        type(tuning.repack) is bool,
        tuning.flash_attention is None or type(tuning.flash_attention) is bool,
        type(tuning.ubatch) is int and low <= tuning.ubatch <= high,
        tuning.kv_type in get_args(KvType),
        type(tuning.projector) is str,
    )
    if not all(good) or not legal(tuning):
        raise ValueError("not a tuning")
    return tuning


def _speed(table: dict[str, Any]) -> Speed:
    speed = Speed(**table)
    if not all(type(number) is float and math.isfinite(number) and number > 0 for number in asdict(speed).values()):
        raise ValueError("not a speed")
    return speed


def _identity(text: Path) -> str:
    """What a text model is known by here: its size and its first 16 MiB.

    They hold all of GGUF's header, that is the shape and type of every tensor. Speed depends on nothing else, so that
    two files of one identity are equally fast; a digest of the whole would take seconds before each verdict.
    """
    digest = hashlib.blake2b(digest_size=16)
    with contextlib.suppress(OSError), text.open("rb") as file:
        digest.update(file.read(_LEADING_BYTES))
        digest.update(str(text.stat().st_size).encode())
    return digest.hexdigest()
