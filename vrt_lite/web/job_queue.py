"""One queue before one judge: jobs wait in it, and as many threads as judgements can run at once do them in order.

A ranking gives way between two judgements to a job that is short, and goes on after it: what it has judged is in the
store. What the queue has no room for is refused, with a time after which to try again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Any, Final

from vrt_lite.web.job_files import JobFiles
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.served_job import JobState, ServedJob, StoppedError

MOST_WAITING: Final = 32
_MOST_ENDED = 64
"""How many jobs that have ended are remembered."""
_MOST_FOLLOWED: Final = 16
"""How many of these keep the events of their work: a client may still read them."""
_FIRST_GUESS_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 3600
_POLL_SECONDS = 0.2


class JobQueue:
    """The jobs, and the threads that do them. `perform` does one in such a thread, and returns its result.

    `admits` says whether a job may begin while others run: it may need another judge.
    """

    def __init__(
        self,
        perform: Callable[[ServedJob], dict[str, Any]],
        files: JobFiles,
        *,
        admits: Callable[[ServedJob, int], bool] = lambda job, running: True,
        threads: int = 1,
    ) -> None:
        self._perform = perform
        self._files = files
        self._admits = admits
        self._changed = Condition()
        self._jobs: dict[str, ServedJob] = {}
        self._waiting: deque[ServedJob] = deque()
        self._running: set[ServedJob] = set()
        self._closing = False
        self._mean_seconds = _FIRST_GUESS_SECONDS
        self.adopt_jobs()
        self._threads = [Thread(target=self._work, name=f"job {n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def adopt_jobs(self) -> None:
        """Take over what servers have left that do not run any more. To be called again: one may end at any time."""
        found = self._files.take_over()
        with self._changed:
            self._jobs |= {job.id: job for job in found}

    def close(self) -> None:
        """Stop the jobs in progress at their next event, and end the threads. What waits stays in its files."""
        with self._changed:
            self._closing = True
            for job in self._running:
                job.ask_to_stop("paused", at_once=True)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def add(self, job: ServedJob, *, keep: bool) -> None:
        """Put a job in the queue; with `keep` a server that starts after a crash finds it.

        RefusedRequestError, with a time, if the queue is full; OSError if the disk is.
        """
        with self._changed:
            self._check_room()
            self._jobs[job.id] = job  # it counts from here on
        try:
            if keep:
                self._files.keep(job)  # without the lock: a disk may take its time
        except OSError:
            with self._changed:
                del self._jobs[job.id]
            raise
        with self._changed:
            if job.ended:  # it was cancelled meanwhile
                self._files.forget(job)
            elif job.state == "queued" and job not in self._waiting:
                self._waiting.append(job)
            self._forget_old()
            self._changed.notify_all()

    def run_apart(self, job: ServedJob) -> None:
        """Do a job in a thread of its own: a pull, which needs no engine. RefusedRequestError if one runs already."""
        with self._changed:
            if any(other.kind == job.kind and not other.ended for other in self._jobs.values()):
                raise RefusedRequestError(429, "busy", "One model is being pulled already.", retry_seconds=60)
            self._jobs[job.id] = job
            self._running.add(job)
            self._forget_old()
        Thread(target=self._do, args=(job,), name=job.kind, daemon=True).start()

    def find(self, id: str) -> ServedJob:  # noqa: A002
        """Find a job. RefusedRequestError if there is none, or it ended long ago."""
        with self._changed:
            if job := self._jobs.get(id):
                return job
        raise RefusedRequestError(404, "missing_job", f"There is no job {id[:40]!r}. What it judged is in the runs.")

    def jobs(self) -> Sequence[ServedJob]:
        """Return all jobs that are remembered, the newest first."""
        with self._changed:
            return sorted(self._jobs.values(), key=lambda job: -job.created)

    def stop(self, job: ServedJob, state: JobState) -> dict[str, Any]:
        """Cancel a job, or pause it: at once if it waits, else at its next event or after its present judgement.

        Returns what it is then.
        """
        with self._changed:
            if job in self._running:
                job.ask_to_stop(state)
            elif not job.ended:
                if job in self._waiting:
                    self._waiting.remove(job)
                self._put(job, state)
        return job.describe()

    def resume(self, job: ServedJob) -> dict[str, Any]:
        """Put a paused job in the queue again; return what it is then."""
        with self._changed:
            if job.state == "paused":  # it was counted all the time
                self._put(job, "queued")
        return job.describe()

    def is_short_job_queued(self) -> bool:
        """Return whether a job that is shorter than a ranking waits."""
        with self._changed:
            return any(job.kind != "rank" for job in self._waiting)

    def _check_room(self) -> None:
        if self._closing:
            raise RefusedRequestError(503, "ending", "The server is ending.", retry_seconds=10)
        states = [job.state for job in self._jobs.values()]
        waiting, paused = states.count("queued"), states.count("paused")
        if waiting + paused >= MOST_WAITING:
            seconds = min(math.ceil(self._mean_seconds * waiting / len(self._threads)), _LONGEST_WAIT_SECONDS)
            rest = f", and {paused} are paused: resume or cancel them" if paused else ""
            text = f"{waiting} jobs wait already{rest}. Try again in about {seconds} s."
            raise RefusedRequestError(429, "busy", text, retry_seconds=max(seconds, 1))

    def _work(self) -> None:
        while job := self._take():
            began = time.monotonic()
            self._do(job)
            if job.kind != "rank":
                self._mean_seconds += 0.2 * (time.monotonic() - began - self._mean_seconds)

    def _take(self) -> ServedJob | None:
        """Wait for the first job until it may begin; None when the queue is closed."""
        with self._changed:
            while not self._closing:
                judging = sum(job.kind != "pull" for job in self._running)
                if self._waiting and self._admits(self._waiting[0], judging):
                    job = self._waiting.popleft()
                    self._running.add(job)
                    return job
                self._changed.wait(_POLL_SECONDS if self._waiting else None)
        return None

    def _do(self, job: ServedJob) -> None:
        """Do a job to its end, or until it is stopped. Whatever it does, the next one is served."""
        state, result = None, None
        try:
            job.set_state("running")
            result = self._perform(job)
        except StoppedError as stopped:
            state = stopped.state
        except BaseException as error:
            result = error
        with self._changed:
            self._running.discard(job)
            if state:
                self._put(job, state)
            else:
                self._forget(job)
                job.end(result or {})
            self._changed.notify_all()

    def _put(self, job: ServedJob, state: JobState) -> None:
        """Put a job into a state, and in the queue if that is its state."""
        if state == "cancelled":
            self._forget(job)
        job.set_state(state)
        if state == "queued":
            self._waiting.append(job)
            self._changed.notify_all()

    def _forget(self, job: ServedJob) -> None:
        self._files.forget(job)
        job.clean_up()

    def _forget_old(self) -> None:
        """Forget the oldest jobs that have ended, beyond a number: their judgements are in the store."""
        ended = [job for job in self._jobs.values() if job.ended]
        for job in ended[: max(len(ended) - _MOST_ENDED, 0)]:
            del self._jobs[job.id]
        for job in ended[:-_MOST_FOLLOWED]:
            job.drop_events()
