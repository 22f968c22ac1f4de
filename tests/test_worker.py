"""The worker: what a call returns, tells and raises, and that nothing in the child ends the parent."""

from __future__ import annotations

import ctypes
import gc
import operator
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import worker_calls as calls

from vrt_lite import errors
from vrt_lite.errors import ShortageError, UsageError, VideoError, VrtError, WorkerEndedError, WorkerKilledError
from vrt_lite.interfaces import Encoding, Event, Stop, Working, Wrote
from vrt_lite.worker import Worker, make_job_limits

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One for all tests: it begins anew when its process has ended."""
    with Worker() as opened:
        yield opened


def test_calls_share_one_process_and_the_parents_path_and_folder(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, folder, deaf = worker.call(calls.describe_process)
    assert (path, Path(folder), deaf) == (sys.path, tmp_path.resolve(), True)
    assert worker.call(os.getpid) == worker.call(os.getpid) != os.getpid()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: worker.call(calls.wait_for_all, tmp_path, number, 8), range(8)))
    assert found == [8] * 8


def test_nothing_is_started_before_a_call_and_nothing_is_left_after() -> None:
    before = set(psutil.Process().children(recursive=True))
    threads, files = threading.active_count(), psutil.Process().num_fds() if sys.platform != "win32" else 0
    for _ in range(2):
        with Worker() as worker:
            assert set(psutil.Process().children(recursive=True)) == before
            worker.call(operator.add, 1, 1)
    with pytest.raises(UsageError, match="closed"):
        worker.call(operator.add, 1, 1)
    del worker
    gc.collect()
    assert set(psutil.Process().children(recursive=True)) == before
    assert threading.active_count() == threads
    assert sys.platform == "win32" or psutil.Process().num_fds() == files


def test_events_are_told_in_order_and_words_are_joined(worker: Worker) -> None:
    told: list[Event] = []
    worker.call(calls.tell_words, 1000, observe=told.append)
    assert (told[0], told[-1]) == (Working("reading"), Encoding(1, 2))
    words = [event for event in told if isinstance(event, Wrote)]
    assert len(words) < 200
    for order in (0, 1):
        text = "".join(event.text for event in words if event.order == order)
        assert text == "".join(f"{number} " for number in range(order, 1000, 2))


def test_neither_what_is_printed_nor_a_file_named_like_a_package_disturbs_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello from sitecustomize')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("pickle", "struct", "vrt_lite"):
        (folder / f"{name}.py").write_text("raise SystemExit('taken')\n")
    monkeypatch.chdir(folder)
    with Worker() as worker:
        assert worker.call(calls.print_noise) == 0
        assert worker.call(operator.add, 1, 2) == 3


FAILURES: dict[str, tuple[Callable[..., object], list[object], type[Exception], str]] = {
    "foreseen": (calls.fail, [VideoError("a.mp4", "is no video")], VideoError, "'a.mp4' is no video"),
    "shortage": (calls.fail, [ShortageError("open files")], ShortageError, "open files"),
    "of a file": (os.listdir, ["/nowhere/at/all"], FileNotFoundError, "nowhere"),
    "not to be sent": (calls.fail, [], RuntimeError, "StrangeError: strange 7"),
    "in the result": (threading.Lock, [], TypeError, "pickle"),
    "in a thread": (calls.lose_an_error, ["thread"], WorkerKilledError, "lack of memory"),
    "in a callback": (calls.lose_an_error, ["callback"], WorkerKilledError, "lack of memory"),
}
if sys.platform != "win32":
    FAILURES |= {
        "abort": (calls.abort, ["GGML_ASSERT(a) failed"], WorkerEndedError, r"by signal SIGABRT: GGML_ASSERT\(a\) f"),
        "long line": (calls.abort, ["x" * 1000], WorkerEndedError, f"by signal SIGABRT: {'x' * 200}[.]"),
        "crash": (ctypes.string_at, [0], WorkerEndedError, "by signal SIGSEGV[.]"),
        "exit": (os._exit, [3], WorkerEndedError, "with status 3[.]"),
        "kill": (signal.raise_signal, [9], WorkerKilledError, "lack of memory"),
    }


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_error_and_one_that_nobody_foresaw_ends_the_process(worker: Worker, name: str) -> None:
    function, args, kind, words = FAILURES[name]
    before = worker.call(os.getpid)
    with pytest.raises(kind, match=words) as raised:
        worker.call(function, *args)
    error = raised.value
    assert "\n" not in str(error)
    if isinstance(error, WorkerEndedError):
        assert error.status == (5 if kind is WorkerKilledError else 4)
    assert isinstance(error, VrtError) or "worker.py" in error.__notes__[0], "no traceback of the child"
    assert (worker.call(os.getpid) == before) is (kind is VideoError)


def test_every_error_can_be_sent() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, VrtError)]
    assert len(kinds) > 12
    for kind in kinds:
        error = kind("a.mp4", "is broken") if issubclass(kind, VideoError) else kind("memory")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.status) == (kind, str(error), error.status)


@posix
def test_an_end_ends_every_call(worker: Worker, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(worker.call, calls.hang, tmp_path / str(number)) for number in range(3)]
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.01)
        with pytest.raises(WorkerEndedError):
            worker.call(ctypes.string_at, 0)
        assert all(isinstance(call.exception(timeout=60), WorkerEndedError) for call in waiting)


def test_a_process_without_an_answer_or_a_sign_of_life_is_given_up(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkerEndedError, match="no answer in time"):
        worker.call(calls.hang, tmp_path / "begun", seconds=0.3)
    assert worker.call(operator.add, 1, 2) == 3
    monkeypatch.setattr("vrt_lite.worker._TICK_SECONDS", 0.05)
    monkeypatch.setattr("vrt_lite.worker._LOST_AT_TICK", 10)
    with pytest.raises(WorkerEndedError, match="does not answer any more"):
        worker.call(re.match, "(a|aa)+$", "a" * 60 + "b")  # which lets no other thread run


def test_an_observer_that_raises_ends_the_call_alone(worker: Worker) -> None:
    before = worker.call(os.getpid)
    with pytest.raises(ZeroDivisionError):
        worker.call(calls.tell_for_ever, observe=lambda _: 1 / 0)
    assert worker.call(os.getpid) == before


@pytest.mark.parametrize("call", [calls.check_for_ever, calls.hang])
def test_a_stop_ends_work_and_kills_a_process_that_hangs(
    worker: Worker, tmp_path: Path, call: Callable[..., object]
) -> None:
    begun, stop, before = tmp_path / "begun", Stop(), worker.call(os.getpid)
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(worker.call, call, begun, stop=stop)
        while not begun.exists():
            time.sleep(0.01)
        stop.set(KeyError())
        with pytest.raises(KeyError):
            called.result(timeout=60)
    assert (worker.call(os.getpid) == before) is (call is calls.check_for_ever)
    with pytest.raises(KeyError):  # set already, it lets nothing begin
        worker.call(call, begun, stop=stop)


@pytest.mark.skipif(sys.maxsize < 2**32, reason="the sizes are those of 64 bits")
def test_the_limits_of_a_job_lie_where_windows_reads_them() -> None:
    """By winnt.h: 144 bytes, the flags after two times, the memory of a process after 48 bytes of counters."""
    limits = bytes(make_job_limits(3 * 2**30))
    assert len(limits) == 144
    assert int.from_bytes(limits[16:20], "little") == 0x100
    assert int.from_bytes(limits[112:120], "little") == 3 * 2**30
    assert not any(limits[:16] + limits[20:112] + limits[120:])


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such limit")
def test_memory_is_limited_in_the_child_alone() -> None:
    size = 2**29
    with Worker(memory_bytes=size) as worker:
        with pytest.raises((MemoryError, ShortageError)):
            worker.call(calls.allocate, size)
        assert worker.call(calls.allocate, size // 8) == size // 8
    assert calls.allocate(size) == size


@posix
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_the_process_ends_with_its_parent(tmp_path: Path, how: str) -> None:
    program = (
        "import os, time\nfrom vrt_lite.worker import Worker\nworker = Worker()\n"
        "print(worker.call(os.getpid), flush=True)\nworker.call(time.sleep, 600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        getattr(parent, how)()
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrt_lite.worker._VERSION", "0.0.0")
    with Worker() as worker, pytest.raises(WorkerEndedError, match=r"vrt-lite 0.0.0 was replaced by"):
        worker.call(operator.add, 1, 2)
