"""A killed run leaves no half file under a final name, and the next run is as if it had not been."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from synthetic_checkpoint import make

from vrt_lite.conversion.convert_folder import UNFINISHED, export_pair

NIGHTLY_KILLS = 30
KILLS = pytest.mark.parametrize("kills", [3, pytest.param(NIGHTLY_KILLS, marks=pytest.mark.nightly)])
WIDTH, ROWS = 256, 1 << 12  # an embedding of 4 MiB in float32


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill") / "c"
    make(folder, width=WIDTH, rows=ROWS, dtype="F32")
    return folder


def start(verb: Callable[..., Any], source: Path, **options: Any) -> BaseProcess:
    """The verb in a process of its own; on POSIX forked from one that has the imports done, to save the time."""
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload(["vrt_lite.conversion.convert_folder", "convert.quantize"])
    run = context.Process(target=verb, args=(source,), kwargs=options)
    run.start()
    return run


def wait_until_it_writes(run: BaseProcess, out: Path) -> None:
    """Starting takes longer than writing, and nothing can break in it."""
    begin = time.time_ns()
    while run.is_alive() and not any(changed_at(path) > begin for path in out.glob(f"*{UNFINISHED}/*")):
        time.sleep(0.002)


def changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # it has its name now
        return 0


def digests(out: Path, pattern: str = "*.gguf") -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob(pattern)}


def kill_again_and_again(
    begin: Callable[[], BaseProcess], out: Path, whole: dict[str, str], longest_seconds: float, kills: int
) -> int:
    """Returns how often a run was killed while it worked; checks what stands in the folder after each."""
    generator, cut, sources = random.Random(16), 0, set(digests(out))
    for _ in range(kills):
        run = begin()
        wait_until_it_writes(run, out)
        time.sleep(generator.uniform(0, longest_seconds))
        run.kill()
        run.join()
        cut += run.exitcode != 0
        found = digests(out)
        assert sources <= found.keys()
        assert found.items() <= whole.items()
        assert len(list(out.glob(f"*{UNFINISHED}"))) <= 1
        for name in found.keys() - sources:
            (out / name).unlink()
    return cut


@KILLS
def test_export(tmp_path: Path, checkpoint: Path, kills: int) -> None:
    out = tmp_path / "out"
    begin = time.perf_counter()
    export_pair(checkpoint, tmp_path / "whole")
    seconds = time.perf_counter() - begin
    whole = digests(tmp_path / "whole")
    cut = kill_again_and_again(lambda: start(export_pair, checkpoint, out=out), out, whole, seconds, kills)
    assert kills < NIGHTLY_KILLS or cut > kills // 3  # of few kills, none may hit
    export_pair(checkpoint, out)
    assert digests(out, "*") == whole
