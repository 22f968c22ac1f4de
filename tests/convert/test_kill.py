"""A killed run leaves no half file under a final name, and the next run is as if it had not been."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import random
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from synthetic_checkpoint import make

from vrt_lite.conversion.convert_folder import UNFINISHED, export_pair

NIGHTLY_KILLS = 30


def start(source: Path, out: Path) -> BaseProcess:
    """An export in a process of its own; on POSIX forked from one that has the imports done, to save the time."""
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload(["vrt_lite.conversion.convert_folder"])
    run = context.Process(target=export_pair, args=(source, out))
    run.start()
    return run


def wait_until_it_writes(run: BaseProcess, out: Path) -> None:
    """Starting takes longer than writing, and nothing can break in it."""
    begin = time.time_ns()
    while run.is_alive():
        with contextlib.suppress(
            FileNotFoundError
        ):  # a file has its name now, or the folder of unfinished ones is gone
            if any(path.stat().st_mtime_ns > begin for path in out.glob(f"*{UNFINISHED}/*")):
                return
        time.sleep(0.002)


def digests(out: Path, pattern: str = "*.gguf") -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob(pattern)}


@pytest.mark.parametrize("kills", [3, pytest.param(NIGHTLY_KILLS, marks=pytest.mark.nightly)])
def test_export(tmp_path: Path, kills: int) -> None:
    checkpoint, out = tmp_path / "c", tmp_path / "out"
    make(checkpoint, width=256, rows=1 << 12, dtype="F32")  # an embedding of 4 MiB in float32
    begin = time.perf_counter()
    export_pair(checkpoint, tmp_path / "whole")
    seconds = time.perf_counter() - begin
    whole = digests(tmp_path / "whole")
    generator, cut = random.Random(16), 0
    for _ in range(kills):
        run = start(checkpoint, out)
        wait_until_it_writes(run, out)
        time.sleep(generator.uniform(0, seconds))
        run.kill()
        run.join()
        cut += run.exitcode != 0
        assert digests(out).items() <= whole.items()
        assert len(list(out.glob(f"*{UNFINISHED}"))) <= 1
        for path in out.glob("*.gguf"):
            path.unlink()
    assert kills < NIGHTLY_KILLS or cut > kills // 3  # of few kills, none may hit
    export_pair(checkpoint, out)
    assert digests(out, "*") == whole
