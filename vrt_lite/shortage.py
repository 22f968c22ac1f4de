"""Tells what this machine has run out of: a shortage says nothing about a clip, and passes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from vrt_lite.errors import ShortageError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_BY_NUMBER: Final = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
    errno.EAGAIN: "threads",  # what a decoder reports that can start none
}


def shortage_of(error: BaseException) -> ShortageError | None:
    """The shortage behind an error of Python, the system or FFmpeg; None if it has another cause."""
    if isinstance(error, ShortageError):
        return error
    what = "memory" if isinstance(error, MemoryError) else _BY_NUMBER.get(getattr(error, "errno", None) or 0)
    return ShortageError(what) if what else None


class ThreadPool(ThreadPoolExecutor):
    """Threads for tasks; `submit` and `map` raise ShortageError if no thread can be started."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run `fn` in a thread of the pool. Raises ShortageError."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:  # a pool in a block that is not over raises it for nothing else
            raise ShortageError("threads") from error
