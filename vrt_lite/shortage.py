"""Tells what this machine has run out of: a shortage says nothing about a clip, and passes."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from vrt_lite.errors import ShortageError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_OPEN_FILES: Final = (errno.EMFILE, errno.ENFILE)
_NO_MEMORY: Final = (errno.ENOMEM, errno.EAGAIN)
_PLENTY_BYTES: Final = 2**30
_PRIVATE: Final[dict[str, int]] = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
"""A limit of a process's data counts no shared memory."""
_MOST_HEAPS: Final = -8
"""M_ARENA_MAX of glibc's malloc.h."""


def shortage_of(error: BaseException) -> ShortageError | None:
    """The shortage behind an error of Python, the system or FFmpeg; None if it has another cause.

    A damaged file may ask for more memory than any machine has: what is there now is tried.
    """
    if isinstance(error, ShortageError):
        return error
    number = getattr(error, "errno", None)
    if number in _OPEN_FILES:
        return ShortageError("open files")
    # A library that finds no room is an ImportError without a number. A decoder without room for a thread: EAGAIN.
    if (isinstance(error, MemoryError | ImportError) or number in _NO_MEMORY) and not has_memory():
        return ShortageError("memory")
    return None


def explain_shortage(error: BaseException) -> ShortageError | None:
    """The shortage behind an error that nothing else explains: any, if there is no memory now."""
    from importlib.metadata import PackageNotFoundError, distributions  # noqa: PLC0415 - 30 ms

    if short := shortage_of(error):
        return short
    # A folder that cannot be opened counts as empty there. The package is here if it is found now.
    was_unopened = isinstance(error, PackageNotFoundError) and any(distributions(name=error.name))
    # The system's loader of libraries gives no number.
    if was_unopened or os.strerror(errno.EMFILE) in str(error):
        return ShortageError("open files")
    return None if has_memory() else ShortageError("memory")


def limit_heaps() -> None:
    """Let all threads of this process allocate from two heaps of glibc; elsewhere it does nothing.

    By default there are up to eight for each processor, and each keeps what was freed in it: in 240 comparisons by the
    bundled judge a process grew from 150 to 388 MB, with two heaps to 234 MB, and one comparison of two clips of 720p
    takes 171 MB instead of 218. With one heap comparisons took 3 % longer.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - 3 ms that short commands save

        with contextlib.suppress(AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MOST_HEAPS, 2)


def multiply_in_one_thread() -> None:
    """Let numpy, if it is not imported yet, multiply matrices in the thread that asks for it. A user's choice stays.

    The products of measures are small: its own threads wait for work, busily, for far longer than they have any.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def memory_limit() -> int | None:
    """The most bytes of address space that this process and each of its children may have; None without a limit."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - not on Windows

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def check_memory() -> None:
    """Raise ShortageError if this process can reserve little memory now."""
    if not has_memory():
        raise ShortageError("memory")


def has_memory(size: int = _PLENTY_BYTES) -> bool:
    """Whether this process can reserve so much memory now; it is not used."""
    try:
        mmap.mmap(-1, size, **_PRIVATE).close()
    except (OSError, MemoryError, ValueError):
        return False
    return True


class ThreadPool(ThreadPoolExecutor):
    """Threads for tasks; `submit` and `map` raise ShortageError if no thread can be started."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run `fn` in a thread of the pool. Raises ShortageError."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:  # a pool in a block that is not over raises it for nothing else
            raise ShortageError("threads") from error
