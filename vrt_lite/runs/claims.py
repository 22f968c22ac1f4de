"""Who is judging what: the identity of this process, and whether another one still lives.

A process here is known by its number and the moment of its birth, so that a number given anew is not taken for it.
Of a process on another machine nothing is known but the last sign of life that it wrote; clocks of machines that share
a store must agree within a minute or so.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Final

import psutil

BEAT_SECONDS: Final = 20.0
"""How often the owner of a claim gives a sign of life."""
SILENT_SECONDS: Final = 300.0
"""After so long without one, a process on another machine counts as dead."""
_SAME_BIRTH_SECONDS = 5.0  # the system's clock may be set between two looks


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has claimed a question: one open store of one process."""

    token: str
    host: str
    pid: int
    born: float


def new_owner() -> Owner:
    """This process, as the owner of what one open store claims."""
    pid, born = _this_process()
    return Owner(uuid.uuid4().hex, host(), pid, born)


def lives(owner: Owner, beat: float) -> bool:
    """Whether the owner of a claim, whose last sign of life was at `beat` (unix seconds), still works on it."""
    if owner.host != host():
        return time.time() - beat < SILENT_SECONDS
    try:
        process = psutil.Process(owner.pid)
        same = abs(process.create_time() - owner.born) < _SAME_BIRTH_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # there, but another user's
        return True


@cache
def host() -> str:
    """This machine, or this container: where process numbers mean the same processes."""
    space = 0
    with contextlib.suppress(OSError, AttributeError):
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link to nothing that a Path could follow
    return f"{platform.node()}/{space}"


def _this_process() -> tuple[int, float]:
    process = psutil.Process()
    return process.pid, process.create_time()
