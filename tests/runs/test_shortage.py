"""A shortage of memory, open files or threads ends a run with a status, and is never kept as a failure of a clip."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from threading import Thread

import psutil
import pytest
from av.error import FFmpegError, InvalidDataError, err_check
from chat_server import says, serving
from clips import write_clip
from judgements import FINAL
from surroundings import LIMITED

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.errors import ShortageError
from vrt_lite.runs.store import Store
from vrt_lite.shortage import ThreadPool, explain_shortage, shortage_of
from vrt_lite.video import open_clip

resource = pytest.importorskip("resource")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clips").mkdir()
    for i in range(4):
        write_clip(tmp_path / "clips" / f"{i}.mp4", frames=16, gop=4 + i)
    return tmp_path / "clips"


@contextmanager
def no_more_files() -> Generator[None]:
    """Let this process open no more files while the block runs."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_clip_is_not_blamed_for_too_many_open_files(folder: Path) -> None:
    path = folder / "0.mp4"
    with Store() as store:
        with no_more_files():
            with pytest.raises(ShortageError, match="no more open files"):
                open_clip(path)
            with pytest.raises(ShortageError, match="no more open files"):
                store.digest(path)
        with open_clip(path) as clip:
            assert clip.info.sha256 == store.digest(path)


@contextmanager
def no_more_memory() -> Generator[None]:
    """Let this process reserve little more memory while the block runs."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def no_more_threads() -> Generator[None]:
    """Ask for a stack that the system refuses, as it refuses a thread when there are too many."""
    before = threading.stack_size(2**46)
    try:
        yield
    finally:
        threading.stack_size(before)


def error_of(number: int) -> FFmpegError:
    with pytest.raises(FFmpegError) as caught:
        err_check(-number)
    return caught.value


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit of memory")
def test_a_lack_of_memory_is_a_shortage_only_if_there_is_one() -> None:
    error = error_of(errno.ENOMEM)
    assert shortage_of(error) is None  # a damaged file asks for too much
    with no_more_memory():
        found = shortage_of(error)
    assert found
    assert (found.what, found.status) == ("memory", 5)


def test_what_ffmpeg_reports_is_recognised_by_its_number() -> None:
    found = shortage_of(error_of(errno.EMFILE))
    assert found and (found.what, found.status) == ("open files", 5)
    # A damaged file may lead to this number too: then there is memory.
    assert shortage_of(error_of(errno.EAGAIN)) is None


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit of memory")
def test_no_thread_is_started_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` waits for ever for a thread that finds no memory for its first lines, or the process ends."""
    error, started = error_of(errno.EAGAIN), list[Thread]()
    monkeypatch.setattr(Thread, "start", started.append)
    with no_more_memory():
        found = shortage_of(error)
        with pytest.raises(ShortageError, match="no more memory"):
            Judge()
    assert found and found.what == "memory"
    assert not started


def test_other_errors_are_no_shortage() -> None:
    assert shortage_of(InvalidDataError(1, "")) is None
    assert shortage_of(FileNotFoundError(errno.ENOENT, "")) is None


def rank(folder: Path, *more: str) -> list[str]:
    return ["rank", str(folder), "-p", "A red square.", "-m", "vrt-tiny-2", "--orders", "one", "-q", *more]


def limited(kind: str, limit: int, arguments: list[str]) -> tuple[int, str]:
    """Run a command in a process with a limit; returns its status and its last line on stderr."""
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, kind, str(limit), *arguments],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_NUM_THREADS": "1"},
    )
    return process.returncode, (process.stderr.strip().splitlines() or [""])[-1]


def assert_heals(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Check that the same command, without a limit, ranks all clips, and that no failure was kept."""
    assert run(rank(folder)) == 0
    assert_nothing_failed(capfd)


def assert_nothing_failed(capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert run(["runs", "--json"]) == 0
    [kept] = json.loads(capfd.readouterr().out)
    assert (kept["judgements"], kept["failures"]) == (6, 0)


def test_a_ranking_with_too_few_files_ends_with_a_status_and_is_whole_the_next_time(
    folder: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: set[int] = set()
    for limit in (9, 12):
        status, line = limited("RLIMIT_NOFILE", limit, rank(folder))
        assert status in {0, 1, 5, 7}, line
        seen.add(status)
    assert 5 in seen
    assert_heals(folder, capfd)


def test_many_jobs_with_few_files_lose_nothing(folder: Path, own_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(says(FINAL)) as server:
        asking = ["rank", str(folder), "-p", "A red square.", "--backend", server.url, "--orders", "one", "-q"]
        for limit in (16, 24):
            status, line = limited("RLIMIT_NOFILE", limit, [*asking, "--jobs", "20"])
            assert status in {0, 1, 5, 7, 8}, line
        assert run([*asking, "--jobs", "20"]) == 0
    assert_nothing_failed(capfd)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30))
def test_no_verdict_is_lost_by_a_random_limit(
    folder: Path, own_home: Path, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    draw = random.Random(seed)
    kind = draw.choice(("RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_AS"))
    limit = draw.randint(8, 40) if kind == "RLIMIT_NOFILE" else draw.randint(500, 1500) * 2**20
    status, line = limited(kind, limit, rank(folder))
    assert status != 3, line
    assert_heals(folder, capfd)


def test_a_pool_that_can_start_no_thread_says_so() -> None:
    with no_more_threads(), pytest.raises(ShortageError, match="no more threads"), ThreadPool(1) as pool:
        pool.submit(threading.Event().wait)


def test_a_ranking_that_lost_a_judgement_to_a_clip_says_so(
    folder: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = folder / "0.mp4"
    data = bytearray(path.read_bytes())
    at, end = data.index(b"mdat"), data.index(b"moov")
    begin = at + (end - at) // 3  # the first picture stays
    data[begin : end - 4] = bytes(random.Random(0).randbytes(end - 4 - begin))
    path.write_bytes(data)
    assert run(rank(folder)) == 3
    out, err = capfd.readouterr()
    assert "3 judgement(s) are missing, as a clip could not be read" in err
    assert "vrt-lite runs --retry rank-" in err
    assert out.count("\n") > 3


def test_a_package_that_is_here_but_was_not_found_is_a_shortage_of_open_files() -> None:
    assert str(explain_shortage(PackageNotFoundError("llama-cpp-python"))) == str(ShortageError("open files"))
    assert explain_shortage(PackageNotFoundError("no-such-package")) is None
