"""Everything that the server holds while it runs: the clips, the store, the engine's context and its queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, TypeVar

from anyio import CapacityLimiter, to_thread

from vrt_lite.disk import data_home
from vrt_lite.runs.store import Store
from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.job_context import JobContext, JudgeChoice
from vrt_lite.web.job_queue import JobFiles, JobQueue
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.served_job import ServedJob
from vrt_lite.web.uploading import BodyReader
from vrt_lite.web.votes import VoteBox

Lane = Literal["reading", "clips", "pictures", "copies"]
"""What slow work is about: the store and models, the files of clips, their frames, or copies that browsers play."""
_THREADS: Final[dict[Lane, int]] = {"reading": 4, "clips": 2, "pictures": 2, "copies": 1}
_MOST_WAITING: Final = 64
_T = TypeVar("_T")


class ServerState:
    """What requests share. `store` is opened here, and closed with the rest."""

    def __init__(self, *, store: Path | None, folders: Sequence[Path], choice: JudgeChoice) -> None:
        self.store = Store(store)
        try:
            home = data_home()
            self.clip_store = ClipStore(folders, home)
            self.body_reader = BodyReader(self.clip_store.uploads)
            self.ballots = VoteBox(self.store)
            self.context = JobContext(self.store, self.clip_store, choice)
            files = JobFiles(home / "jobs")
            self.queue = JobQueue(self._perform, files, admits=self.context.admits, threads=choice.jobs)
            self.context.gives_way = self.queue.is_short_job_queued
        except BaseException:
            self.store.close()
            raise
        self._closing = Lock()
        self._closed = False

    async def do(self, lane: Lane, function: Callable[..., _T], *arguments: Any) -> _T:
        """Do slow work in one of the threads of its lane: it stops neither the event loop nor what is in other lanes.

        RefusedRequestError if too much waits already.
        """
        limiter = self._lanes[lane]
        if limiter.statistics().tasks_waiting >= _MOST_WAITING:
            raise RefusedRequestError(429, "busy", "Too much is asked for at once. Try again.", retry_seconds=5)
        return await to_thread.run_sync(function, *arguments, limiter=limiter)

    def close(self) -> None:
        """Stop the engine at its next event, and close the store. It may be called again."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self.queue.close()
                self.context.close()
                self.clip_store.decoder.close()
                self.store.close()

    @cached_property
    def _lanes(self) -> dict[Lane, CapacityLimiter]:
        return {lane: CapacityLimiter(count) for lane, count in _THREADS.items()}

    def _perform(self, job: ServedJob) -> dict[str, Any]:
        from vrt_lite.web.job_work import perform_job  # noqa: PLC0415 - numpy

        return perform_job(job, self.context)
