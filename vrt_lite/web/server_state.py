"""Everything that the server holds while it runs: the clips, the store, the queue, and the one judge that is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any, Final, Literal, TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread

from vrt_lite.api import Judge
from vrt_lite.disk import data_home
from vrt_lite.errors import ModelError
from vrt_lite.models import bundled_names
from vrt_lite.models.library import find_stored
from vrt_lite.modes import WantedJudge
from vrt_lite.records.judgement import PlainData
from vrt_lite.runs.store import Store
from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.job_queue import JobFiles, JobQueue, ServedJob
from vrt_lite.web.requests import JudgeOptions, RefusedRequestError
from vrt_lite.web.uploading import BodyReader
from vrt_lite.web.votes import VoteBox

Lane = Literal["reading", "clips", "pictures", "copies"]
"""What slow work is about: the store and models, the files of clips, their frames, or copies that browsers play."""
_THREADS: Final[dict[Lane, int]] = {"reading": 4, "clips": 2, "pictures": 2, "copies": 1}
_MOST_WAITING: Final = 64
_POLL_SECONDS: Final = 0.2
_T = TypeVar("_T")


class ServerState:
    """What requests and jobs share. `store` is opened here, and closed with the rest. `perform` does a job.

    A client that names no judge gets that of `choice`; as many judgements as that says run at once.
    """

    def __init__(
        self,
        perform: Callable[[ServedJob, ServerState], PlainData],
        *,
        store: Path | None,
        folders: Sequence[Path],
        choice: WantedJudge,
    ) -> None:
        home = data_home()
        self.choice = choice
        self._judge: Judge | None = None
        self._wanted: object = None
        """What those have asked for to whom the judge that is loaded may be lent."""
        self._lent_to: set[str] = set()
        self._turn = Lock()
        self._lanes = {lane: CapacityLimiter(count) for lane, count in _THREADS.items()}
        with contextlib.ExitStack() as stack:
            self.store = stack.enter_context(Store(store))
            self.clip_store = ClipStore(folders, home)
            stack.callback(self.clip_store.decoder.close)
            self.body_reader = BodyReader(self.clip_store.uploads)
            self.ballots = VoteBox(self.store)
            stack.callback(self._close_judge)
            files = JobFiles(home / "jobs")
            self.queue = JobQueue(lambda job: perform(job, self), files, threads=choice.jobs)
            stack.callback(self.queue.close)
            self.queue.adopt_jobs()  # before the first request: a client of the ended server may ask for its job
            self._held = stack.pop_all()

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
        self._held.close()

    def check_model(self, model: str | None) -> None:
        """Raise ModelError unless a model may be named: the server's own, a bundled or a pulled one. Never a path."""
        known = (None, self.choice.model, *bundled_names())
        if model not in known and not find_stored(str(model)):
            raise ModelError(f"Model {str(model)[:80]!r} is not here. See /v1/models, or: vrt-lite models")

    @contextlib.contextmanager
    def lend_judge(self, job: ServedJob) -> Generator[tuple[Judge, Store]]:
        """Wait until it is a job's turn, and lend it the judge that it asks for, and a store of its own.

        Jobs use one judge at the same time. It stays loaded until a job asks for another one. Two open stores never
        judge the same question at the same time. StoppedError if the job is to end.
        """
        wanted = job.request.model, job.request.options
        while not self._turn.acquire(timeout=_POLL_SECONDS):
            job.stop.check()
        try:  # those before had it, so that a judge that is always in use is exchanged at last
            while self._lent_to and self._wanted != wanted:
                job.stop.check()
                sleep(_POLL_SECONDS)
            job.begin()
            if self._judge is None or self._wanted != wanted:
                self._close_judge()
                self._judge = self.open_judge(*wanted)
                self._wanted = wanted
            judge = self._judge
            self._lent_to.add(job.id)
        finally:
            self._turn.release()
        try:
            judge.connect(stop=job.stop)
            with Store(self.store.path) as store:
                yield judge, store
        except MemoryError:
            self._wanted = None  # the next job loads it again
            raise
        finally:
            self._lent_to.discard(job.id)

    def open_judge(self, model: str | None, options: JudgeOptions) -> Judge:
        """Find the files of a model that may be named, or of the server's own. ModelError if they cannot be used."""
        choice = self.choice
        return Judge(
            model or choice.model,
            projector=choice.projector if model in (None, choice.model) else None,
            # Both orders are two questions to the store.
            settings=replace(choice.settings, **msgspec.to_builtins(options), both_orders=False),
            backend=choice.backend,
            digest=self.store.digest,
            jobs=choice.jobs,
            process=True,
        )

    def _close_judge(self) -> None:
        """Free the judge that is loaded, when no job uses it any more."""
        if self._judge:
            self._judge.close()
        self._judge = self._wanted = None
