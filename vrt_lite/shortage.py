"""Tells what this machine has run out of: a shortage says nothing about a clip, and passes."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from vrt_lite.errors import ShortageError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_OPEN_FILES: Final = (errno.EMFILE, errno.ENFILE)
_PLENTY_BYTES: Final = 2**30


def shortage_of(error: BaseException) -> ShortageError | None:
    """The shortage behind an error of Python, the system or FFmpeg; None if it has another cause.

    A damaged file may ask for more memory than any machine has: what is there now is tried.
    """
    if isinstance(error, ShortageError):
        return error
    number = getattr(error, "errno", None)
    if number in _OPEN_FILES:
        return ShortageError("open files")
    if (isinstance(error, MemoryError) or number == errno.ENOMEM) and not _has_memory():
        return ShortageError("memory")
    if number == errno.EAGAIN:  # what a decoder reports that can start none
        return ShortageError("threads")
    return None


def _has_memory() -> bool:
    """Whether this process can reserve plenty of memory now; it is not used."""
    try:
        mmap.mmap(-1, _PLENTY_BYTES).close()
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
