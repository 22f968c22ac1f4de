"""Functions that tests call in a worker: they answer, tell, wait, crash, print, and ask for memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from vrt_lite.errors import ShortageError, VideoError
from vrt_lite.interfaces import Encoding, Observe, Working, Wrote, check_stops


def process_id() -> int:
    return os.getpid()


def add(a: int, b: int) -> int:
    return a + b


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


def write_last_line_and_abort(line: str) -> None:
    os.write(2, f"first\n{line}\n\n".encode())
    os.abort()


def read_null() -> None:
    ctypes.string_at(0)


def leave(status: int) -> None:
    os._exit(status)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_video_error() -> None:
    raise VideoError("a.mp4", "is no video")


def raise_shortage() -> None:
    raise ShortageError("open files")


def raise_file_error() -> None:
    Path("/nowhere/at/all").read_bytes()


class StrangeError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, *, number: int) -> None:
        super().__init__(f"strange {number}")


def raise_strange() -> None:
    raise StrangeError(number=7)


def return_lock() -> object:
    return threading.Lock()


def allocate(size: int) -> int:
    """Allocate and use memory; returns how much."""
    with contextlib.suppress(ValueError):
        return len(bytearray(size))
    return 0


def wait_for_all(folder: Path, number: int, count: int) -> int:
    """Return only when `count` such calls run at the same time."""
    (folder / str(number)).touch()
    until = time.monotonic() + 20
    while len(list(folder.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.005)
    return len(list(folder.iterdir()))


def lose_an_error(how: str) -> None:
    """Wait for what another thread was to do, which it cannot."""

    def fail() -> None:
        raise MemoryError

    if how == "thread":
        threading.Thread(target=fail).start()
    else:
        done = Future[None]()
        done.add_done_callback(lambda _: fail())
        threading.Thread(target=done.set_result, args=(None,)).start()
    time.sleep(600)


def hold_the_interpreter() -> None:
    """Let no other thread run."""
    pattern = re.compile("(a|aa)+$")
    pattern.match("a" * 60 + "b")
