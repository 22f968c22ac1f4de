"""Runs functions in one child process. What crashes, hangs or runs out of memory there ends no other process.

Parent and child run the same code for the same user, so they send each other pickles: each after the number of its call
and its length. Words that a judge writes are joined for a moment; everything else is sent at once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, BinaryIO, Final, NoReturn, Self, TypeVar

from vrt_lite.errors import ASK_DOCTOR, CLOSED, ShortageError, UsageError, VrtError, WorkerEndedError, WorkerKilledError
from vrt_lite.interfaces import Event, Observe, Stop, Wrote, check_stops, ignore, stops_in_force
from vrt_lite.shortage import explain_shortage, has_memory, limit_heaps, multiply_in_one_thread

_T = TypeVar("_T")
_VERSION: Final[str] = sys.modules["vrt_lite"].__version__  # not imported, as that module names what imports this one
_HEAD: Final = struct.Struct("<QQ")
"""Before each message: the number of its call, and its length in bytes."""
_CANCEL: Final = b""
_PING, _PONG = b"?", b""
"""The parent pings a process, which answers with a message of no bytes."""
_HELLO: Final = b"\0vrt-lite worker\n"
"""What is printed before it is not meant for the parent: Python may run code of the user's when it starts."""
_START: Final = "import sys; sys.path[:] = sys.argv[3:]; from vrt_lite.worker import serve_calls; serve_calls()"
_GRACE_SECONDS, _INTERRUPT_SECONDS = 2.0, 0.2
"""How long a call that was cancelled may take to end by itself; less after Ctrl-C."""
_JOIN_SECONDS: Final = 0.03
_STARVED: Final = 86
"""The status of a process that had no memory left to send an answer."""
_TICK_SECONDS: Final = 0.2
"""The longest wait, as an interrupt cannot break one on Windows."""
_PING_AT_TICK, _LOST_AT_TICK = 5, 30
"""A process that sends nothing for so long is pinged, and is taken for lost if it does not answer. Ticks are
counted, as a clock goes on while both processes are stopped."""
_MOST_REASON: Final = 200
"""Characters of the last line that a process printed."""
_THREAD_BYTES: Final = 64 * 2**20
_MOST_OUTPUT: Final = 65536
"""Bytes of what it printed last in which that line is looked for."""
_JOB_EXTENDED_LIMITS, _JOB_LIMIT_PROCESS_MEMORY = 9, 0x100
"""JobObjectExtendedLimitInformation and JOB_OBJECT_LIMIT_PROCESS_MEMORY of winnt.h."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A call to be made, in the folder that the parent is in."""

    function: Callable[..., Any]
    args: tuple[object, ...]
    observed: bool
    folder: str


@dataclass(frozen=True, slots=True)
class _Told:
    event: Event


@dataclass(frozen=True, slots=True)
class _Done:
    value: Any


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class Worker:
    """A child process for functions, for several at once if threads share it; a context manager that kills it.

    It begins with the first call, and anew with the first one after its end. `memory_bytes` limits what it can
    allocate, on Linux and Windows; macOS has no such limit. What it prints is kept, and the last line explains its end;
    with `prints` it is printed here instead.
    """

    def __init__(self, memory_bytes: int | None = None, *, prints: bool = False) -> None:
        self._memory_bytes = memory_bytes
        self._prints = prints
        self._starting = Lock()
        self._process: _Process | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process, whatever it does; no other begins."""
        with self._starting:
            process, self._process, self._is_closed = self._process, None, True
        if process:
            process.kill()

    def call(
        self,
        function: Callable[..., _T],
        *args: object,
        observe: Observe | None = None,
        stop: Stop | None = None,
        seconds: float | None = None,
    ) -> _T:
        """Return what a function that can be imported returns, or raise its error. It all must be picklable.

        It is called with `observe` if that is given: what it tells there is told here, in this thread. An error of
        `observe` cancels the call, and so does `stop`: the work ends when it tells something or checks its stops, or
        else the process is killed. Raises WorkerEndedError if the process ends, or has no answer after `seconds`;
        WorkerKilledError if the system killed it; ShortageError if it cannot be started; UsageError after `close`.
        After an error that nobody foresaw, or a shortage, the process is killed too: what failed there may be half
        made.
        """
        folder = ""
        with contextlib.suppress(OSError):  # it may have been deleted
            folder = str(Path.cwd())
        request = pickle.dumps(_Request(function, args, observe is not None, folder))
        return self._running().ask(request, observe or ignore, stop or Stop(), seconds)

    def _running(self) -> _Process:
        with self._starting:
            if self._is_closed:
                raise UsageError(CLOSED)
            if self._process is None or self._process.end:
                self._process = _Process(self._memory_bytes, prints=self._prints)
            return self._process


class _Process:
    """One child process, from its start to its end; `end` makes the error of its calls when it has ended."""

    def __init__(self, memory_bytes: int | None, *, prints: bool) -> None:
        self.end: Callable[[], VrtError] | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[bytes | None]] = {}
        self._sending = Lock()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        # -P: a file numpy.py in this folder is not imported. The path is the parent's, which may have changed it.
        command = [sys.executable, "-P", "-c", _START, _VERSION, str(memory_bytes or 0), *sys.path]
        try:
            with _interrupts_blocked() as flags:
                self._popen = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None if prints else self._output,
                    creationflags=flags,
                    bufsize=0,
                )
        except OSError as error:
            self._output.close()
            raise explain_shortage(error) or error from error
        self._listener = Thread(target=self._listen, name="vrt-lite worker", daemon=True)
        try:
            self._listener.start()
        except RuntimeError as error:
            self._popen.kill()
            with self._popen, self._output:
                raise ShortageError("threads") from error

    def ask(self, request: bytes, observe: Observe, stop: Stop, seconds: float | None) -> Any:
        """Send a request, tell what is told, and return the answer."""
        number, until = next(self._numbers), seconds and time.monotonic() + seconds
        answers = self._answers[number] = SimpleQueue[bytes | None]()
        if self.end:
            answers.put(None)
        forget = stop.wake_with(lambda: answers.put(b""))
        try:
            self._send(number, request)
            while isinstance(message := self._next(number, answers, stop, until), _Told):
                observe(message.event)
        except BaseException as error:  # of an interrupt, of the stop, or of `observe`
            if not self.end:
                self._cancel(number, answers, _GRACE_SECONDS if isinstance(error, Exception) else _INTERRUPT_SECONDS)
            raise
        finally:
            forget()
            del self._answers[number]
        if isinstance(message, _Failed):
            if isinstance(message.error, ShortageError) or not isinstance(message.error, VrtError):
                self.kill()  # a module that was imported in half would fail all that follows
            raise message.error
        return message.value

    def kill(self) -> None:
        """End the process at once, and wait for its end."""
        self._popen.kill()
        self._listener.join(_GRACE_SECONDS)

    def _send(self, number: int, request: bytes) -> None:
        assert self._popen.stdin
        try:
            with self._sending, contextlib.suppress(OSError, ValueError):  # it has ended, which answers all calls
                _write_message(self._popen.stdin.write, number, request)
        except BaseException:  # half a request
            self._popen.kill()
            raise

    def _next(
        self, number: int, answers: SimpleQueue[bytes | None], stop: Stop, until: float | None
    ) -> _Told | _Done | _Failed:
        """Wait for the next message of a call. Raises the error of `stop`, or that of the process's end."""
        ticks = 0
        while True:
            if until and time.monotonic() >= until:
                raise WorkerEndedError(f"The judge's process gave no answer in time.{ASK_DOCTOR}")
            try:
                said = answers.get(timeout=_TICK_SECONDS)
            except Empty:
                ticks += 1
                if ticks == _PING_AT_TICK:
                    self._send(number, _PING)
                if ticks == _LOST_AT_TICK:
                    self.kill()
                    raise WorkerEndedError(f"The judge's process does not answer any more.{ASK_DOCTOR}") from None
                continue
            ticks = 0
            stop.check()
            if said is None:
                assert self.end
                raise self.end()
            if said:
                return pickle.loads(said)

    def _cancel(self, number: int, answers: SimpleQueue[bytes | None], grace_seconds: float) -> None:
        """End a call; the process, with all its calls, if that takes too long."""
        self._send(number, _CANCEL)
        until = time.monotonic() + grace_seconds
        with contextlib.suppress(Empty):
            while (said := answers.get(timeout=max(until - time.monotonic(), 0.0))) is not None:
                if said and not isinstance(pickle.loads(said), _Told):
                    return
        self.kill()

    def _listen(self) -> None:
        """In a thread: pass messages on until the process ends, which answers all calls that are left."""
        assert self._popen.stdout
        with self._popen, self._output, _open_to_read(self._popen.stdout.fileno()) as pipe:
            while (line := pipe.readline()) and not line.endswith(_HELLO):
                pass
            for number, message in _read_messages(pipe):
                if answers := self._answers.get(number):
                    answers.put(message)
            self.end = self._explain_end()
        for answers in list(self._answers.values()):
            answers.put(None)

    def _explain_end(self) -> Callable[[], VrtError]:
        """Wait for the end, and explain it. Statuses of Windows are in hexadecimal, as they are documented."""
        status = self._popen.wait()
        if status == _STARVED or -status == getattr(signal, "SIGKILL", None):
            return WorkerKilledError
        ending = f"with status {status if status < 256 else hex(status)}" if status >= 0 else f"by signal {-status}"
        with contextlib.suppress(ValueError):
            ending = f"by signal {signal.Signals(-status).name}"
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - _MOST_OUTPUT, 0))
        lines = self._output.read().decode(errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        text = f"The judge's process ended {ending}{last and ': '}{last:.{_MOST_REASON}}.{ASK_DOCTOR}"
        return functools.partial(WorkerEndedError, text)


def _write_message(write: Callable[[memoryview], int], number: int, data: bytes) -> None:
    """Write a message of a call. `write` may write a part, and returns its length."""
    left = memoryview(_HEAD.pack(number, len(data)) + data)
    while left:
        left = left[write(left) :]


def _read_messages(pipe: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the call and the data of each message, until the pipe ends."""
    while len(head := pipe.read(_HEAD.size)) == _HEAD.size:
        number, size = _HEAD.unpack(head)
        if len(data := pipe.read(size)) == size:
            yield number, data


def _open_to_read(descriptor: int) -> BinaryIO:
    """A buffered file of a pipe, which leaves it open."""
    return open(descriptor, "rb", closefd=False)


@contextlib.contextmanager
def _interrupts_blocked() -> Generator[int]:
    """A process that is started in the block never gets Ctrl-C. Yields its flags for Windows."""
    if sys.platform == "win32":
        yield subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Sender:
    """Sends messages to the parent, in a thread. Any thread may put them."""

    def __init__(self, pipe: int) -> None:
        self._write = functools.partial(os.write, pipe)
        self._messages: SimpleQueue[tuple[int, Wrote | bytes]] = SimpleQueue()
        self._words: dict[tuple[int, int], list[str]] = {}
        _start_thread(self._send_all)

    def put(self, number: int, message: _Told | _Done | _Failed) -> None:
        """Send a message of a call; words a little later."""
        words = message.event if isinstance(message, _Told) and isinstance(message.event, Wrote) else None
        self._messages.put((number, words or pickle.dumps(message)))

    def answer_ping(self, number: int) -> None:
        """Answer a ping."""
        self._messages.put((number, _PONG))

    def _send_all(self) -> None:
        due = 0.0
        with contextlib.suppress(BrokenPipeError):  # the parent has ended, which ends this process
            while True:
                number, message = 0, None
                with contextlib.suppress(Empty):
                    wait = max(due - time.monotonic(), 0.0) if self._words else None
                    number, message = self._messages.get(timeout=wait)
                if isinstance(message, Wrote):
                    due = due if self._words else time.monotonic() + _JOIN_SECONDS
                    self._words.setdefault((number, message.order), []).append(message.text)
                    if time.monotonic() < due:
                        continue
                    message = None
                for (writer, order), texts in self._words.items():
                    _write_message(self._write, writer, pickle.dumps(_Told(Wrote("".join(texts), order))))
                self._words.clear()
                if message is not None:
                    _write_message(self._write, number, message)


def serve_calls() -> None:
    """In the child: answer the parent's calls, each in a thread, until it closes the pipe, or ends."""
    requests, answers = os.dup(0), os.dup(1)
    # Now, before anything is imported that may read or print.
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if sys.argv[1] != _VERSION:
        sys.exit(f"vrt-lite {sys.argv[1]} was replaced by {_VERSION} while it ran: start it again")
    _crash_quietly()
    _end_when_lost()
    if memory_bytes := int(sys.argv[2]):
        _limit_memory(memory_bytes)
    limit_heaps()
    multiply_in_one_thread()
    os.write(answers, _HELLO)
    sender, stops = _Sender(answers), dict[int, Stop]()
    try:
        for number, request in _read_messages(_open_to_read(requests)):
            if request == _PING:
                sender.answer_ping(number)
            elif request:
                stops[number] = Stop()
                try:
                    _start_thread(functools.partial(_answer, number, request, stops, sender))
                except ShortageError as error:
                    del stops[number]
                    sender.put(number, _Failed(error))
            elif stop := stops.get(number):
                stop.set(KeyboardInterrupt())
    except MemoryError:
        os._exit(_STARVED)
    os._exit(0)


def _end_when_lost() -> None:
    """End this process with an error that nobody gets, as with no memory left: its call would be waited for for ever.

    A thread may end so, or not begin; a pool writes what a callback raised to its log.
    """

    def end(error: BaseException | None) -> NoReturn:
        starved = error is None or isinstance(error, MemoryError)
        try:
            if not starved:
                traceback.print_exception(error)
        finally:
            os._exit(_STARVED if starved else 1)

    def end_if_starved(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is MemoryError:
            os._exit(_STARVED)
        sys.__unraisablehook__(lost)

    threading.excepthook = lambda lost: end(lost.exc_value)
    sys.unraisablehook = end_if_starved
    logging.getLogger("concurrent.futures").addFilter(lambda _: end(sys.exception()))


def _start_thread(function: Callable[[], None]) -> None:
    """Run a function in a thread. Raises ShortageError."""
    # Python waits for ever for a thread that has no memory to begin with.
    if not has_memory(_THREAD_BYTES):
        raise ShortageError("memory")
    try:
        Thread(target=function, daemon=True).start()
    except RuntimeError as error:
        raise ShortageError("threads") from error


def _answer(number: int, data: bytes, stops: dict[int, Stop], sender: _Sender) -> None:
    """In a thread of the child: make a call, and send its result. `stops` end the calls by their numbers."""

    def tell(event: Event) -> None:
        check_stops()
        sender.put(number, _Told(event))

    try:
        request: _Request = pickle.loads(data)
        with contextlib.suppress(OSError):
            os.chdir(request.folder)
        with stops_in_force(stops[number]):
            observed = {"observe": tell} if request.observed else {}
            sender.put(number, _Done(request.function(*request.args, **observed)))
    except BaseException as error:
        sender.put(number, _Failed(_portable(error)))
    finally:
        del stops[number]


def _portable(error: BaseException) -> BaseException:
    """Return the error if the parent can be sent it, with where it arose; else one that says the same."""
    if isinstance(error, VrtError):
        return error
    if isinstance(error, Exception) and (short := explain_shortage(error)):
        return short
    is_known = type(error).__module__ == "builtins" and isinstance(error, Exception)
    told = error if is_known else RuntimeError(f"{type(error).__name__}: {error}")
    told.add_note("".join(traceback.format_exception(error)))
    return told


def _crash_quietly() -> None:
    """Let a crash write no copy of the memory, start no debugger and open no window: each may take minutes."""
    os.environ["GGML_NO_BACKTRACE"] = "1"
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - Windows only

        msvcrt.SetErrorMode(msvcrt.SEM_NOGPFAULTERRORBOX)
    else:
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_memory(size: int) -> None:
    """Let this process allocate at most so many bytes. macOS takes such a limit, and does not keep it."""
    if sys.platform == "win32":
        _limit_job_memory(size)
    else:
        import resource  # noqa: PLC0415 - not on Windows

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        with contextlib.suppress(ValueError, OSError):  # a lower limit is in force
            resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def _limit_job_memory(size: int) -> None:
    """On Windows: put this process into a job whose processes may have so much memory each.

    Where the system refuses that (a job that allows no other within it), there is no limit, as on macOS.
    """
    import ctypes  # noqa: PLC0415

    kernel: Any = ctypes.__dict__["WinDLL"]("kernel32")
    for function in (kernel.CreateJobObjectW, kernel.GetCurrentProcess):
        function.restype = ctypes.c_void_p
    job, limits = ctypes.c_void_p(kernel.CreateJobObjectW(None, None)), make_job_limits(size)
    kernel.SetInformationJobObject(job, _JOB_EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits))
    kernel.AssignProcessToJobObject(job, ctypes.c_void_p(kernel.GetCurrentProcess()))


def make_job_limits(process_bytes: int) -> Any:
    """Make a JOBOBJECT_EXTENDED_LIMIT_INFORMATION of winnt.h that limits the memory of each process of a job."""
    import ctypes  # noqa: PLC0415

    class JobLimits(ctypes.Structure):
        """Sizes are those of Windows, on whatever system: a DWORD has 32 bits."""

        _fields_ = (
            ("times", ctypes.c_int64 * 2),
            ("flags", ctypes.c_uint32),
            ("working_set", ctypes.c_size_t * 2),
            ("processes", ctypes.c_uint32),
            ("affinity", ctypes.c_size_t),
            ("priority", ctypes.c_uint32 * 2),
            ("transfers", ctypes.c_uint64 * 6),
            ("process_memory", ctypes.c_size_t),
            ("others", ctypes.c_size_t * 3),
        )

    return JobLimits(flags=_JOB_LIMIT_PROCESS_MEMORY, process_memory=process_bytes)
