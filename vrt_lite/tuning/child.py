"""Runs a function in a child process. An engine that was built badly may crash or hang; that ends only the child."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from vrt_lite.errors import ModelError, OutOfMemoryError, VrtError

_Result = TypeVar("_Result")
_MAX_REASON = 200
"""Characters of the last line that a child printed."""


class EngineEndedError(ModelError):
    """The engine crashed, or gave no result in time."""


def run_in_child(function: Callable[..., _Result], *arguments: object, seconds: float) -> _Result:
    """The function's result, computed in a new process, or its VrtError.

    EngineEndedError if the process ends without a result, or has none after `seconds`.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        output.touch()
        child = multiprocessing.get_context("spawn").Process(
            target=_run, args=(theirs, output, function, arguments), daemon=True
        )
        until = time.monotonic() + seconds
        try:
            child.start()
            theirs.close()
            # The short waits are for Windows, where a wait cannot be interrupted.
            while not ours.poll(0.2):
                if time.monotonic() > until:
                    raise EngineEndedError(f"no answer in {seconds:.0f} s")
            result = ours.recv()
        except EOFError:
            child.join()
            raise _explain_end(child.exitcode or 0, output) from None
        finally:
            if child.pid is not None:  # an interrupt may come before it runs
                child.kill()
                child.join()
            ours.close()
    if isinstance(result, VrtError):
        raise result
    return result


def _explain_end(status: int, output: Path) -> EngineEndedError | OutOfMemoryError:
    """The error for a child that ended. Exit statuses of Windows are shown in hexadecimal, as they are documented."""
    if -status == getattr(signal, "SIGKILL", None):
        return OutOfMemoryError("The engine was killed by the system, probably for lack of memory.")
    ending = f"with status {status if status < 256 else hex(status)}" if status >= 0 else f"by signal {-status}"
    with contextlib.suppress(ValueError):
        ending = f"by signal {signal.Signals(-status).name}"
    lines = [line for line in output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    reason = f": {lines[-1].strip():.{_MAX_REASON}}" if lines else ""
    return EngineEndedError(f"the engine ended {ending}{reason}")


def _run(
    connection: Connection[Any, Any], output: Path, function: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    """In the child: send the function's result, or its error. What it prints goes to `output`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    Thread(target=_end_with_parent, daemon=True).start()
    _crash_quietly()
    printed = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    try:
        result = function(*arguments)
    except VrtError as error:
        result = error
    except MemoryError:
        result = OutOfMemoryError("Not enough memory to measure with these settings.")
    connection.send(result)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
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
