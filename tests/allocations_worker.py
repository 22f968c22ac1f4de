"""Compares in a process in which memory ends, or an allocation fails: see failing_allocations.c, to be preloaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

from vrt_lite.api import Judge
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings

SETTINGS = Settings(cache=False, max_pixels=12544)
_opened: list[Judge] = []


def compare_within(clips: tuple[Path, Path], prompt: str, more_bytes: int) -> Judgement:
    """Compare with so much more memory than the process has once the judge is open."""
    import resource

    with Judge(settings=SETTINGS) as judge:
        judge.key_here()
        status = Path("/proc/self/status").read_text(encoding="ascii")
        used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (used + more_bytes, used + more_bytes))
        return judge.compare(*clips, prompt=prompt)


def fail_allocations(first: int, last: int) -> int:
    """Let allocations fail by their numbers from now on; returns how many there were since it was called before."""
    return ctypes.CDLL(None).fail_allocations(ctypes.c_long(first), ctypes.c_long(last))


def compare_failing(clips: tuple[Path, Path], prompt: str, first: int, last: int) -> tuple[Judgement, int]:
    """Compare with a judge that stays open, while these allocations fail. Returns how many there were too."""
    try:
        judgement = compare_starving(clips, prompt, first, last)
    finally:
        count = fail_allocations(-1, -1)
    return judgement, count


def compare_starving(clips: tuple[Path, Path], prompt: str, first: int, last: int = 2**62) -> Judgement:
    """Compare as `compare_failing` does, and let allocations go on to fail."""
    if not _opened:
        _opened.append(Judge(settings=SETTINGS))
    fail_allocations(first, last)
    return _opened[0].compare(*clips, prompt=prompt)
