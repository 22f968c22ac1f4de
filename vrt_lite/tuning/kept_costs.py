"""Keeps what judging has cost on this machine: by model and engine settings, and by type of matrix.

Each is a small file beside the tunings. A file that cannot be read or written is as if there was none.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from vrt_lite.disk import home, write_file
from vrt_lite.fitting.predicted_time import Habits, UnitCosts
from vrt_lite.machine import EngineSettings, Machine
from vrt_lite.models import ModelFiles
from vrt_lite.tuning import identify_model

_Kept = TypeVar("_Kept", "KeptCosts", "KeptMatrixSpeeds")
_MAX_FILE_BYTES = 65_536


class KeptCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mean costs and habits of so many judgements by a model."""

    format: Literal[1]
    model: str
    judgements: int
    costs: UnitCosts
    habits: Habits


class KeptMatrixSpeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By ggml's type: weights that are multiplied in a second, with one token and with each of many."""

    format: Literal[1]
    machine: Machine
    one: dict[str, float]
    many: dict[str, float]


def read_costs(files: ModelFiles, settings: EngineSettings, machine: Machine) -> KeptCosts | None:
    """Read what this model has cost with these settings; None if nothing is kept."""
    return _read(_costs_path(files, settings, machine), KeptCosts)


def keep_costs(files: ModelFiles, settings: EngineSettings, machine: Machine, kept: KeptCosts) -> None:
    """Keep what this model has cost with these settings."""
    _write(_costs_path(files, settings, machine), kept)


def read_matrix_speeds(machine: Machine) -> KeptMatrixSpeeds | None:
    """Read how fast this machine multiplies matrices; None if nothing is kept."""
    return _read(_speeds_path(machine), KeptMatrixSpeeds)


def keep_matrix_speeds(kept: KeptMatrixSpeeds) -> None:
    """Keep how fast this machine multiplies matrices."""
    _write(_speeds_path(kept.machine), kept)


def _costs_path(files: ModelFiles, settings: EngineSettings, machine: Machine) -> Path:
    same = replace(settings, verbose=False)
    return _path("costs", identify_model(files.text), files.projector.name, same, machine)


def _speeds_path(machine: Machine) -> Path:
    return _path("matrices", machine)


def _path(kind: str, *facts: object) -> Path:
    name = hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()
    return home() / "speeds" / f"{kind}-{name}.json"


def _read(path: Path, kind: type[_Kept]) -> _Kept | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_FILE_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


def _write(path: Path, kept: msgspec.Struct) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(kept))
