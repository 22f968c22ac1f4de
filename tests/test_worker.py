"""The worker: what a call returns, tells and raises, and that nothing in the child ends the parent."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import worker_calls as calls

from vrt_lite import errors
from vrt_lite.errors import ShortageError, VideoError, VrtError, WorkerEndedError, WorkerKilledError
from vrt_lite.interfaces import Encoding, Event, Stop, Working, Wrote
from vrt_lite.worker import Worker, make_job_limits

HERE = Path(__file__).parent
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


class EnoughError(Exception):
    """Raised by an observer."""


def test_calls_share_one_process_and_the_parents_path_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Worker() as worker:
        assert worker.call(calls.add, 2, 3) == 5
        monkeypatch.chdir(tmp_path)
        path, folder, deaf = worker.call(calls.describe_process)
        assert (path, Path(folder), deaf) == (sys.path, tmp_path.resolve(), True)
        assert worker.call(calls.process_id) == worker.call(calls.process_id) != os.getpid()


def test_nothing_is_started_before_a_call_and_nothing_is_left_after(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    threads, files = threading.active_count(), psutil.Process().num_fds() if sys.platform != "win32" else 0
    with Worker() as worker:
        assert set(psutil.Process().children(recursive=True)) == before
        for _ in range(3):
            worker.call(calls.add, 1, 1)
            worker.close()
    gc.collect()
    assert set(psutil.Process().children(recursive=True)) == before
    assert threading.active_count() == threads
    assert sys.platform == "win32" or psutil.Process().num_fds() == files


def test_events_are_told_in_order_and_words_are_joined() -> None:
    told: list[Event] = []
    with Worker() as worker:
        worker.call(calls.tell_words, 1000, observe=told.append)
    assert told[0] == Working("reading")
    assert told[-1] == Encoding(1, 2)
    words = [event for event in told if isinstance(event, Wrote)]
    assert len(words) < 200
    for order in (0, 1):
        text = "".join(event.text for event in words if event.order == order)
        assert text == "".join(f"{number} " for number in range(order, 1000, 2))


def test_several_threads_call_at_once(tmp_path: Path) -> None:
    with Worker() as worker, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: worker.call(calls.wait_for_all, tmp_path, number, 8), range(8)))
    assert found == [8] * 8


def test_what_is_printed_comes_between_no_messages(tmp_path: Path) -> None:
    with Worker() as worker:
        assert worker.call(calls.print_noise) == 0
        assert worker.call(calls.add, 1, 2) == 3


def test_a_start_that_prints_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello from sitecustomize')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker() as worker:
        assert worker.call(calls.add, 1, 2) == 3


def test_a_file_named_like_a_package_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pickle", "struct", "vrt_lite"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken')\n")
    monkeypatch.chdir(tmp_path)
    with Worker() as worker:
        assert worker.call(calls.add, 1, 2) == 3


@pytest.mark.parametrize(
    ("function", "error", "words", "goes_on"),
    [
        (calls.raise_video_error, VideoError, "'a.mp4' is no video", True),
        (calls.raise_shortage, ShortageError, "open files", False),
        (calls.raise_file_error, FileNotFoundError, "nowhere", False),
        (calls.raise_strange, RuntimeError, "StrangeError: strange 7", False),
        (calls.return_lock, TypeError, "pickle", False),
    ],
)
def test_an_error_arrives_as_it_is_and_one_that_nobody_foresaw_ends_the_process(
    function: Callable[[], object], error: type[Exception], words: str, goes_on: bool
) -> None:
    with Worker() as worker:
        before = worker.call(calls.process_id)
        with pytest.raises(error, match=words) as raised:
            worker.call(function)
        assert isinstance(raised.value, VrtError) or "worker_calls" in "".join(raised.value.__notes__) or words
        assert (worker.call(calls.process_id) == before) is goes_on


def all_errors(base: type[VrtError]) -> list[type[VrtError]]:
    return [base, *(each for error in base.__subclasses__() for each in all_errors(error))]


def test_every_error_can_be_sent() -> None:
    import pickle

    for kind in (error for error in all_errors(VrtError) if error.__module__ == errors.__name__):
        error = kind("a.mp4", "is broken") if issubclass(kind, VideoError) else kind("memory")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.status) == (kind, str(error), error.status)


@posix
@pytest.mark.parametrize(
    ("function", "args", "words"),
    [
        (calls.write_last_line_and_abort, ("GGML_ASSERT(a) failed",), "by signal SIGABRT: GGML_ASSERT(a) failed."),
        (calls.write_last_line_and_abort, ("x" * 1000,), f"by signal SIGABRT: {'x' * 200}."),
        (calls.read_null, (), "by signal SIGSEGV."),
        (calls.leave, (3,), "with status 3."),
    ],
)
def test_an_end_is_one_error_with_the_last_line_and_the_next_call_has_a_new_process(
    function: Callable[..., object], args: tuple[object, ...], words: str
) -> None:
    with Worker() as worker:
        with pytest.raises(WorkerEndedError) as raised:
            worker.call(function, *args)
        assert words in str(raised.value)
        assert "\n" not in str(raised.value)
        assert raised.value.status == 4
        assert worker.call(calls.add, 1, 2) == 3


@posix
def test_a_killed_process_is_taken_for_want_of_memory() -> None:
    with Worker() as worker, pytest.raises(WorkerKilledError, match="lack of memory") as raised:
        worker.call(calls.kill_itself)
    assert raised.value.status == 5


@posix
def test_an_end_ends_every_call(tmp_path: Path) -> None:
    with Worker() as worker, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(worker.call, calls.hang, tmp_path / str(number)) for number in range(3)]
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.01)
        with pytest.raises(WorkerEndedError):
            worker.call(calls.read_null)
        assert all(isinstance(call.exception(timeout=10), WorkerEndedError) for call in waiting)


@pytest.mark.parametrize("how", ["thread", "callback"])
def test_an_error_that_nobody_would_get_ends_the_process(how: str) -> None:
    with Worker() as worker, pytest.raises(WorkerKilledError, match="lack of memory"):
        worker.call(calls.lose_an_error, how)


def test_a_process_without_a_sign_of_life_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrt_lite.worker._LOST_AT_TICK", 10)
    with Worker() as worker:
        with pytest.raises(WorkerEndedError, match="does not answer any more"):
            worker.call(calls.hold_the_interpreter)
        assert worker.call(calls.add, 1, 2) == 3


def test_an_observer_that_raises_ends_the_call_alone() -> None:
    def enough(event: Event) -> None:
        raise EnoughError

    with Worker() as worker:
        before = worker.call(calls.process_id)
        with pytest.raises(EnoughError):
            worker.call(calls.tell_for_ever, observe=enough)
        assert worker.call(calls.process_id) == before


@pytest.mark.parametrize("hangs", [False, True])
def test_a_stop_ends_work_and_kills_a_process_that_hangs(tmp_path: Path, hangs: bool) -> None:
    begun, stop = tmp_path / "begun", Stop()
    with Worker() as worker, ThreadPoolExecutor(1) as pool:
        before = worker.call(calls.process_id)
        call = pool.submit(worker.call, calls.hang if hangs else calls.check_for_ever, begun, stop=stop)
        while not begun.exists():
            time.sleep(0.01)
        stop.set(EnoughError())
        with pytest.raises(EnoughError):
            call.result(timeout=10)
        assert (worker.call(calls.process_id) == before) is not hangs


def test_a_stop_that_is_set_already_begins_nothing(tmp_path: Path) -> None:
    stop = Stop()
    stop.set(EnoughError())
    with Worker() as worker, pytest.raises(EnoughError):
        worker.call(calls.check_for_ever, tmp_path / "begun", stop=stop)


def test_no_answer_in_time_is_an_end(tmp_path: Path) -> None:
    with Worker() as worker:
        with pytest.raises(WorkerEndedError, match="no answer in time"):
            worker.call(calls.hang, tmp_path / "begun", seconds=0.5)
        assert worker.call(calls.add, 1, 2) == 3


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
    size = 2**30
    with Worker(memory_bytes=size // 2) as worker:
        with pytest.raises((MemoryError, ShortageError)):
            worker.call(calls.allocate, size)
        assert worker.call(calls.allocate, size // 8) == size // 8
    assert calls.allocate(size) == size


@posix
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_the_process_ends_with_its_parent(tmp_path: Path, how: str) -> None:
    program = (
        "import worker_calls as calls\nfrom vrt_lite.worker import Worker, make_job_limits\nfrom pathlib import Path\n"
        "worker = Worker()\nprint(worker.call(calls.process_id), flush=True)\n"
        f"worker.call(calls.hang, Path({str(tmp_path / 'begun')!r}))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        getattr(parent, how)()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrt_lite.worker._VERSION", "0.0.0")
    with Worker() as worker, pytest.raises(WorkerEndedError, match=r"vrt-lite 0.0.0 was replaced by"):
        worker.call(calls.add, 1, 2)
