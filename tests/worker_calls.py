"""Functions that tests call in a worker: they tell, wait, crash, print, and ask for memory."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from vrt_lite.interfaces import Encoding, Observe, Working, Wrote, check_stops


def describe_process() -> tuple[list[str], str, bool]:
    """Its path for imports, its folder, and whether it gets Ctrl-C."""
    blocked = sys.platform == "win32" or signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return sys.path, str(Path.cwd()), blocked


def tell_words(words: int, *, observe: Observe) -> None:
    observe(Working("reading"))
    for number in range(words):
        observe(Wrote(f"{number} ", order=number % 2))
    observe(Encoding(1, 2))


def tell_for_ever(*, observe: Observe) -> None:
    while True:
        observe(Working("waiting"))
        time.sleep(0.01)


def check_for_ever(begun: Path) -> None:
    begun.touch()
    while True:
        check_stops()
        time.sleep(0.01)


def hang(begun: Path) -> None:
    begun.touch()
    time.sleep(600)


def print_noise() -> int:
    print("to stdout")
    os.write(1, b"to descriptor 1\n" * 1000)
    ctypes.CDLL(None).puts(b"from C") if sys.platform != "win32" else None
    return len(os.read(0, 1))


def abort(line: str) -> None:
    os.write(2, f"first\n{line}\n\n".encode())
    os.abort()


class StrangeError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, *, number: int) -> None:
        super().__init__(f"strange {number}")


def fail(error: Exception | None = None) -> None:
    raise error or StrangeError(number=7)


def allocate(size: int) -> int:
    """Allocate and use memory; returns how much."""
    return len(bytearray(size))


def wait_for_all(folder: Path, number: int, count: int) -> int:
    """Return only when `count` such calls run at the same time."""
    (folder / str(number)).touch()
    until = time.monotonic() + 20
    while len(list(folder.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.005)
    return len(list(folder.iterdir()))


def lose_an_error(how: str) -> None:
    """Wait for what another thread was to do, which it cannot."""

    def fail_in_thread(_: object = None) -> None:
        raise MemoryError

    work = fail_in_thread
    if how == "callback":
        done = Future[None]()
        done.add_done_callback(fail_in_thread)
        work = done.set_result
    threading.Thread(target=work, args=(None,)).start()
    time.sleep(600)
