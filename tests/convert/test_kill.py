"""A killed run leaves no half file under a final name, and the next run is as if it had not been."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
from synthetic_checkpoint import make

from convert.quantize import quantize_pair
from vrt_lite.conversion.export_pair import export_pair
from vrt_lite.conversion.whole_files import SUFFIX, check_space, write_whole_files

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY_KILLS = 30
KILLS = pytest.mark.parametrize("kills", [5, pytest.param(NIGHTLY_KILLS, marks=pytest.mark.nightly)])
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
        context.set_forkserver_preload(["vrt_lite.conversion.export_pair", "convert.quantize"])
    run = context.Process(target=verb, args=(source,), kwargs=options)
    run.start()
    return run


def wait_until_it_writes(run: BaseProcess, out: Path) -> None:
    """Starting takes longer than writing, and nothing can break in it."""
    seen = set(out.glob(f"*{SUFFIX}"))
    while run.is_alive() and not set(out.glob(f"*{SUFFIX}")) - seen:
        time.sleep(0.002)


def children_of(run: BaseProcess) -> list[psutil.Process]:
    try:
        return psutil.Process(run.pid).children()
    except psutil.NoSuchProcess:  # it has ended
        return []


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
        children = children_of(run)
        run.kill()
        run.join()
        cut += run.exitcode != 0
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive, "the engine outlived its run"
        found = digests(out)
        assert sources <= found.keys()
        assert found.items() <= whole.items()
        assert len(list(out.glob(f"*{SUFFIX}"))) <= 2
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


@KILLS
def test_quantize(tmp_path: Path, checkpoint: Path, kills: int) -> None:
    for name in ("out", "whole"):
        export_pair(checkpoint, tmp_path / name, text_type="f32")
    begin = time.perf_counter()
    quantize_pair(tmp_path / "whole", text_type="q4_k_m", projector_type="q8_0")
    # The engine's process ends by itself some time after its last byte: a kill there would find nothing to break.
    seconds = 0.8 * (time.perf_counter() - begin)
    whole, out = digests(tmp_path / "whole"), tmp_path / "out"
    types = {"text_type": "q4_k_m", "projector_type": "q8_0"}
    cut = kill_again_and_again(lambda: start(quantize_pair, out, **types), out, whole, seconds, kills)
    assert kills < NIGHTLY_KILLS or cut > kills // 3  # of few kills, none may hit
    quantize_pair(out, **types)
    assert digests(out, "*") == whole


def test_only_the_engine_is_killed(tmp_path: Path, checkpoint: Path) -> None:
    export_pair(checkpoint, tmp_path / "out", text_type="f32")
    before = digests(tmp_path / "out", "*")
    command = [sys.executable, "-m", "convert", "quantize", str(tmp_path / "out"), "--type", "q4_k_m"]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not (children := psutil.Process(run.pid).children()):
        time.sleep(0.002)
    children[0].kill()
    _, errors = run.communicate()
    assert run.returncode == 5
    assert errors.startswith("convert: the engine was killed")
    assert errors.count("\n") == 1
    assert digests(tmp_path / "out", "*") == before


def test_a_leftover_goes_and_a_neighbours_work_stays(tmp_path: Path) -> None:
    (tmp_path / f"a.gguf.1{SUFFIX}").write_text("left by a killed run")
    (tmp_path / "b.gguf.part").write_text("another program's")
    with write_whole_files([tmp_path / "c.gguf"]) as (part,):
        part.write_text("whole")
        check_space(tmp_path, 0)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["b.gguf.part", part.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.gguf.part", "c.gguf"]
    with pytest.raises(KeyboardInterrupt), write_whole_files([tmp_path / "c.gguf"]) as (part,):
        part.write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "c.gguf").read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 2
