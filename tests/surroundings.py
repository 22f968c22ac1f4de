"""Bad surroundings: a process with little of something, and a disk with little room."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMITED = """
import resource, sys
from vrt_lite.cli import run
if sys.argv[1]:
    kind, limit = getattr(resource, sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
sys.exit(run(sys.argv[3:]))
"""
"""A program for `python -c`: the name of a limit or "", its value, and a command of vrt-lite that has it."""


@contextlib.contextmanager
def small_disk(place: Path, *, megabytes: int) -> Iterator[None]:
    """Mount a disk in memory; skip the test where that is not allowed."""
    if sys.platform != "linux":
        pytest.skip("disks are mounted otherwise there")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, f"size={megabytes}m".encode()):
        pytest.skip(f"no disk can be mounted: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.umount2(bytes(place), 2)
