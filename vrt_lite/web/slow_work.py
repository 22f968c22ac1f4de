"""Threads for slow work of one kind, so that it neither stops the event loop nor fills the threads that all share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from vrt_lite.shortage import ThreadPool
from vrt_lite.web.refusals import RefusedRequestError

_T = TypeVar("_T")
_MOST_WAITING: Final = 64


class SlowWork:
    """A few threads, and a line before them. Used on the event loop only."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPool(threads)
        self._futures: dict[Hashable, asyncio.Future[Any]] = {}

    async def do(self, function: Callable[..., _T], /, *arguments: Hashable) -> _T:
        """Return what the function returns; requests for the same at the same time share it.

        RefusedRequestError if too much waits already.
        """
        key = (function, *arguments)
        if key not in self._futures:
            if len(self._futures) >= _MOST_WAITING:
                raise RefusedRequestError(429, "busy", "Too much is asked for at once. Try again.", retry_seconds=5)
            self._futures[key] = asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
            self._futures[key].add_done_callback(lambda _: self._futures.pop(key))
        return await asyncio.shield(self._futures[key])

    def close(self) -> None:
        """Drop what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)
