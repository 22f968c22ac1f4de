"""A shortage of memory, open files or threads ends a run with a status, and is never kept as a failure of a clip."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from av.error import FFmpegError, InvalidDataError, err_check
from chat_server import says, serving
from clips import top_level_boxes, write_clip
from judgements import FINAL
from surroundings import LIMITED

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.conversion.weights import reading
from vrt_lite.errors import ShortageError
from vrt_lite.runs.store import Store
from vrt_lite.shortage import ThreadPool, explain_shortage, shortage_of
from vrt_lite.video import open_clip

resource = pytest.importorskip("resource")
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit of memory")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clips").mkdir()
    for number in range(3):
        write_clip(tmp_path / "clips" / f"{number}.mp4", frames=16, gop=4 + number)
    return tmp_path / "clips"


@contextmanager
def limit(kind: str, value: int) -> Iterator[None]:
    """Let this process have no more of something while the block runs."""
    limits = resource.getrlimit(getattr(resource, kind))
    resource.setrlimit(getattr(resource, kind), (value, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(getattr(resource, kind), limits)


def no_more_memory() -> Any:
    return limit("RLIMIT_AS", psutil.Process().memory_info().vms + 64 * 2**20)


def test_a_clip_is_not_blamed_for_too_many_open_files(folder: Path, store: Store) -> None:
    path = folder / "0.mp4"
    lowest = os.dup(0)
    os.close(lowest)
    with limit("RLIMIT_NOFILE", lowest):
        for use in (open_clip, store.digest):
            with pytest.raises(ShortageError, match="no more open files"):
                use(path)
    with open_clip(path) as clip:
        assert clip.info.sha256 == store.digest(path)


def error_of(number: int) -> FFmpegError:
    with pytest.raises(FFmpegError) as caught:
        err_check(-number)
    return caught.value


def test_a_shortage_is_recognised_by_its_number_and_a_try() -> None:
    found = shortage_of(error_of(errno.EMFILE))
    assert found and (found.what, found.status) == ("open files", 5)
    # A damaged file may lead to the first two numbers too: then there is memory.
    for error in (error_of(errno.ENOMEM), error_of(errno.EAGAIN), InvalidDataError(1, ""), FileNotFoundError(2, "")):
        assert shortage_of(error) is None
    with pytest.raises(ShortageError, match="open files"), reading("a shard"):  # it is not called damaged
        raise error_of(errno.EMFILE)
    # A package that is here but was not found.
    assert str(explain_shortage(PackageNotFoundError("llama-cpp-python"))) == str(ShortageError("open files"))
    assert explain_shortage(PackageNotFoundError("no-such-package")) is None


@only_linux
def test_no_thread_is_started_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` waits for ever for a thread that finds no memory for its first lines, or the process ends."""
    errors, started = (error_of(errno.ENOMEM), error_of(errno.EAGAIN)), list[Thread]()
    monkeypatch.setattr(Thread, "start", started.append)
    with no_more_memory():
        found = [shortage_of(error) for error in errors]
        with pytest.raises(ShortageError, match="no more memory"):
            Judge()
    assert [short and (short.what, short.status) for short in found] == [("memory", 5)] * 2
    assert not started


def test_a_pool_that_can_start_no_thread_says_so() -> None:
    """The system refuses the stack that is asked for, as it refuses a thread when there are too many."""
    before = threading.stack_size(2**46)
    try:
        with pytest.raises(ShortageError, match="no more threads"), ThreadPool(1) as pool:
            pool.submit(threading.Event().wait)
    finally:
        threading.stack_size(before)


def rank(folder: Path, *more: str) -> list[str]:
    return ["rank", str(folder), "-p", "A red square.", "--orders", "one", "-q", *more]


def limited(kind: str, value: int, arguments: list[str]) -> tuple[int, str]:
    """Run a command in a process with a limit; returns its status and its last line on stderr."""
    command = [sys.executable, "-c", LIMITED, kind, str(value), *arguments]
    own = {**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace", env=own)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def check_nothing_failed(capfd: Capture) -> None:
    capfd.readouterr()
    assert run(["runs", "--json"]) == 0
    [kept] = json.loads(capfd.readouterr().out)
    assert (kept["judgements"], kept["failures"]) == (3, 0)


def test_a_ranking_with_too_few_files_ends_with_a_status_and_is_whole_the_next_time(
    folder: Path, capfd: Capture
) -> None:
    status, line = limited("RLIMIT_NOFILE", 12, rank(folder))
    assert status == 5, line
    assert run(rank(folder)) == 0
    check_nothing_failed(capfd)


def test_many_jobs_with_few_files_lose_nothing(folder: Path, capfd: Capture) -> None:
    with serving(says(FINAL)) as server:
        asking = rank(folder, "--backend", server.url, "--jobs", "20")
        status, line = limited("RLIMIT_NOFILE", 20, asking)
    assert status in {0, 1, 5, 7, 8}, line
    assert run(["runs", "--json"]) == 0
    assert sum(kept["failures"] for kept in json.loads(capfd.readouterr().out)) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30))
def test_no_verdict_is_lost_by_a_random_limit(folder: Path, capfd: Capture, seed: int) -> None:
    draw = random.Random(seed)
    kind = draw.choice(("RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_AS"))
    value = draw.randint(8, 40) if kind == "RLIMIT_NOFILE" else draw.randint(500, 1500) * 2**20
    status, line = limited(kind, value, rank(folder))
    assert status != 3, line
    assert run(rank(folder)) == 0
    check_nothing_failed(capfd)


def test_a_ranking_that_lost_a_judgement_to_a_clip_says_so(folder: Path, capfd: Capture) -> None:
    path = folder / "0.mp4"
    data = bytearray(path.read_bytes())
    at, size = top_level_boxes(path)["mdat"]
    begin = at + size // 3  # the first picture stays
    data[begin : at + size] = random.Random(0).randbytes(at + size - begin)
    path.write_bytes(data)
    assert run(rank(folder)) == 3
    out, err = capfd.readouterr()
    assert "2 judgement(s) are missing, as a clip could not be read" in err
    assert "vrt-lite runs --retry rank-" in err
    assert out.count("\n") > 3
