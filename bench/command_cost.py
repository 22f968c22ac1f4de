"""Runs a command and measures what it costs: seconds, memory, and the disk that a folder takes meanwhile."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import psutil

_SECONDS = 0.2
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class CommandCost:
    """What a command cost. Peaks are in bytes, over the command's process and all that it started.

    A mapped file counts as resident while the system has room for it, and is given back when it has not: `own_bytes`
    is the peak without mapped files.
    """

    seconds: float
    resident_bytes: int
    own_bytes: int
    disk_bytes: int

    def __add__(self, later: CommandCost) -> CommandCost:
        """Return the cost of both commands, one after the other."""
        return CommandCost(
            self.seconds + later.seconds,
            max(self.resident_bytes, later.resident_bytes),
            max(self.own_bytes, later.own_bytes),
            max(self.disk_bytes, later.disk_bytes),
        )


def run_measured(
    command: Sequence[str], *, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> CommandCost:
    """Run a command in the checkout, with `environment` added, and look at it four times a second.

    The disk is that of all files in `folder`. Raises click.ClickException if the command fails.
    """
    resident = own = disk = 0
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=_ROOT, env=os.environ | (environment or {})) as child:
        process = psutil.Process(child.pid)
        status = None
        while status is None:
            memory = _memory(process)
            resident, own = max(resident, memory[0]), max(own, memory[1])
            disk = max(disk, used_bytes(folder)) if folder else 0
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(_SECONDS)
    seconds = time.perf_counter() - began
    if status:
        raise click.ClickException(f"{' '.join(command[2:])} ended with status {status}")
    return CommandCost(seconds, resident, own, max(disk, used_bytes(folder)) if folder else 0)


def _memory(process: psutil.Process) -> tuple[int, int]:
    """Return the resident bytes of a process and its descendants, with and without mapped files."""
    resident = own = 0
    with suppress(psutil.Error):
        for one in (process, *process.children(recursive=True)):
            memory = one.memory_info()
            resident += memory.rss
            own += memory.rss - getattr(memory, "shared", 0)
    return resident, own


def used_bytes(folder: Path) -> int:
    """Return the bytes on disk of all files below a folder: of a file with holes, what it takes."""
    total = 0
    for place, _, names in os.walk(folder):  # passes over folders that are removed meanwhile
        for name in names:
            with suppress(OSError):  # so may a file be
                found = Path(place, name).lstat()
                total += found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size
    return total
