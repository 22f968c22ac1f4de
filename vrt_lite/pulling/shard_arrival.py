"""Brings the shards of a checkpoint one after the other: while one is used, the next arrives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread

from vrt_lite.interfaces import wait_until_done
from vrt_lite.models.hub import Advance, HubFile

_SECONDS_TO_END = 2.0


class _EndedError(Exception):
    """Nobody waits for this shard any more."""


@contextlib.contextmanager
def arriving(
    shards: Sequence[HubFile], fetch: Callable[[HubFile, Advance], Path], advance: Advance
) -> Generator[Iterator[Path]]:
    """Yield an iterator over the paths of the shards, in their order.

    `fetch` brings one shard, in a thread; what it raises is raised by the iterator. Whoever takes the next path must
    have deleted the file before: at most two are on the disk. When the block ends, so does the download.
    """
    ended = Event()
    threads: list[Thread] = []

    def advance_unless_ended(count: int) -> None:
        if ended.is_set():
            raise _EndedError
        advance(count)

    def start(shard: HubFile) -> Future[Path]:
        arrival: Future[Path] = Future()

        def bring() -> None:
            try:
                arrival.set_result(fetch(shard, advance_unless_ended))
            except BaseException as error:
                arrival.set_exception(error)

        # A daemon: an interrupt does not wait for a server that sends nothing.
        threads.append(Thread(target=bring, daemon=True))
        threads[-1].start()
        return arrival

    def paths() -> Iterator[Path]:
        arrival = start(shards[0]) if shards else None
        for following in [*shards[1:], None]:
            if arrival:
                wait_until_done(arrival)
                path = arrival.result()
                arrival = start(following) if following else None
                yield path

    try:
        yield paths()
    finally:
        ended.set()
        for thread in threads:
            thread.join(_SECONDS_TO_END)
