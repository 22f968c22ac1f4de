"""Runs a function in a child process. An engine that was built badly may crash or hang; that ends only the child."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from vrt_lite.errors import EngineEndedError, OutOfMemoryError, VrtError

if TYPE_CHECKING:
    Pipe: TypeAlias = Connection[Any, Any]

_Result = TypeVar("_Result")
_MAX_REASON = 200
"""Characters of the last line that a child printed."""


class ChildProcess:
    """A process that runs `function(pipe, *arguments)`; a context manager that kills it at the end.

    What it prints is kept, and its last line explains its end; with `prints` it is printed here instead.
    """

    def __init__(self, function: Callable[..., None], *arguments: object, prints: bool = False) -> None:
        self._free = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            folder = undo.enter_context(tempfile.TemporaryDirectory())
            self._output = Path(folder) / "output"
            self._output.touch()
            self._pipe, theirs = multiprocessing.Pipe()
            undo.callback(self._pipe.close)
            with theirs:
                self._process = multiprocessing.get_context("spawn").Process(
                    target=_run, args=(theirs, None if prints else self._output, function, arguments), daemon=True
                )
                undo.callback(self._kill)
                self._process.start()
            self._free = undo.pop_all()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process; it may be called again."""
        self._free.close()

    def send(self, message: object) -> None:
        """Send something. EngineEndedError if the process has ended."""
        try:
            self._pipe.send(message)
        except OSError:
            raise self._explain_end() from None

    def has_sent(self, *, seconds: float) -> bool:
        """Whether something was sent here, or the process ended; waits up to `seconds` for that."""
        try:
            return self._pipe.poll(seconds)
        except OSError:  # on Windows, of a process that has ended
            return True

    def receive(self) -> Any:
        """Wait for what the process sends. EngineEndedError if it has ended; OutOfMemoryError if it was killed."""
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            raise self._explain_end() from None

    def _explain_end(self) -> EngineEndedError | OutOfMemoryError:
        """Wait for the end, and explain it. Statuses of Windows are in hexadecimal, as they are documented."""
        self._process.join()
        status = self._process.exitcode or 0
        if -status == getattr(signal, "SIGKILL", None):
            return OutOfMemoryError("The engine was killed by the system, probably for lack of memory.")
        ending = f"with status {status if status < 256 else hex(status)}" if status >= 0 else f"by signal {-status}"
        with contextlib.suppress(ValueError):
            ending = f"by signal {signal.Signals(-status).name}"
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return EngineEndedError(f"the engine ended {ending}" + (f": {last:.{_MAX_REASON}}" if last else ""))

    def _kill(self) -> None:
        if self._process.pid is not None:  # an interrupt may come before it runs
            self._process.kill()
            self._process.join()


def run_in_child(function: Callable[..., _Result], *arguments: object, seconds: float) -> _Result:
    """The function's result, computed in a new process, or its VrtError.

    EngineEndedError if the process ends without a result, or has none after `seconds`.
    """
    until = time.monotonic() + seconds
    with ChildProcess(_send_result, function, arguments) as child:
        # The short waits are for Windows, where a wait cannot be interrupted.
        while not child.has_sent(seconds=0.2):
            if time.monotonic() > until:
                raise EngineEndedError(f"no answer in {seconds:.0f} s")
        result = child.receive()
    if isinstance(result, VrtError):
        raise result
    return result


def _send_result(pipe: Pipe, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """In the child: send the function's result, or its error."""
    try:
        result = function(*arguments)
    except VrtError as error:
        result = error
    except MemoryError:
        result = OutOfMemoryError("Not enough memory to measure with these settings.")
    pipe.send(result)


def _run(pipe: Pipe, output: Path | None, function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """In the child: run the function. What it prints goes to `output`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    Thread(target=_end_with_parent, args=(output,), daemon=True).start()
    _crash_quietly()
    if output:
        printed = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
    function(pipe, *arguments)


def _end_with_parent(output: Path | None) -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
    if output:  # the parent, which has ended, cannot delete it
        shutil.rmtree(output.parent, ignore_errors=True)
    os._exit(0)


def _crash_quietly() -> None:
    """Let a crash write no copy of the memory, start no debugger and open no window: each may take minutes."""
    os.environ["GGML_NO_BACKTRACE"] = "1"
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - Windows only

        msvcrt.SetErrorMode(msvcrt.SEM_NOGPFAULTERRORBOX)
    else:
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
