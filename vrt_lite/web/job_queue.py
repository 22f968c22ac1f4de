"""One queue before one judge: as many threads as judgements can run at once do the jobs in order.

A ranking gives way between two judgements to a job that is short, and goes on after it: what it has judged is in the
store. What the queue has no room for is refused, with a time after which to try again. Jobs that are not done are kept
in files, so that a server that was killed can go on with them.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock, Thread
from typing import Any, Final

import msgspec

from vrt_lite.disk import locked, write_file
from vrt_lite.errors import ShortageError, UsageError
from vrt_lite.reading import read_json
from vrt_lite.runs.database import Owner, is_alive, new_owner
from vrt_lite.shortage import ThreadPool
from vrt_lite.web.jobs import ServedJob, StoppedError
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.request_bodies import BODIES, MOST_BODY_BYTES, JobKind, read_body

_ID = re.compile(r"[0-9a-f]{16}")


class _KeptJob(msgspec.Struct):
    kind: JobKind
    request: Any
    owner: Owner


class JobFiles:
    """A folder with a small file for each job that is not done. Several servers may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = new_owner()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, job: ServedJob) -> None:
        """Write a job's file: it is on the disk on return. Raises OSError."""
        about = _KeptJob(job.kind, job.request, self._owner)
        write_file(self._path(job), json.dumps(msgspec.to_builtins(about)).encode())

    def forget(self, job: ServedJob) -> None:
        """Remove a job's file, if there is one."""
        with contextlib.suppress(OSError):
            self._path(job).unlink(missing_ok=True)

    def take_over(self) -> list[ServedJob]:
        """Return the jobs that servers have left which do not run any more; they are ours now.

        A damaged file, and one that is no file, is left as it is.
        """
        found: list[ServedJob] = []
        with locked("jobs"):  # of two servers one gets a job
            for path in sorted(self._folder.glob("*.json")):
                with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError, UsageError):
                    if not _ID.fullmatch(path.stem) or not path.is_file() or path.stat().st_size > 2 * MOST_BODY_BYTES:
                        continue
                    about = read_json(path.read_bytes(), _KeptJob)
                    if not is_alive(about.owner):
                        job = ServedJob(about.kind, read_body(about.request, BODIES[about.kind]), id=path.stem)
                        self.keep(job)
                        found.append(job)
        return found

    def _path(self, job: ServedJob) -> Path:
        return self._folder / f"{job.id}.json"


MOST_WAITING: Final = 32
_MOST_ENDED = 64
"""How many jobs that have ended are remembered."""
_RETRY_SECONDS = 5
_ADOPT_SECONDS = 2.0


class JobQueue:
    """The jobs, and the threads that do them.

    `perform` does one in such a thread: it begins the job when its turn has come, and returns its result.
    """

    def __init__(self, perform: Callable[[ServedJob], dict[str, Any]], files: JobFiles, *, threads: int = 1) -> None:
        self._perform = perform
        self._files = files
        self._lock = RLock()
        self._jobs: dict[str, ServedJob] = {}
        self._closing = False
        self._pool = ThreadPool(threads, "job")
        Thread(target=self._adopt, name="adopting", daemon=True).start()

    def adopt_jobs(self) -> None:
        """Go on with what servers have left that do not run any more. This is called at the start, and now and then."""
        with contextlib.suppress(OSError, ShortageError):  # of a full disk, until it has room
            found = self._files.take_over()
            with self._lock:
                self._jobs |= {job.id: job for job in found}
                for job in found:
                    self._enter(job)

    def close(self) -> None:
        """Stop the jobs in progress at their next event, and end the threads. What waits stays in its files."""
        with self._lock:
            self._closing = True
            for job in self._jobs.values():
                job.stop.set(StoppedError("queued"))
        self._pool.shutdown(cancel_futures=True)

    def add(self, job: ServedJob, *, keep: bool) -> None:
        """Put a job in the queue; with `keep` a server that starts after a crash finds it.

        RefusedRequestError, with a time, if the queue is full; OSError if the disk is.
        """
        with self._lock:
            waiting = sum(other.state == "queued" for other in self._jobs.values())
            if waiting >= MOST_WAITING:
                text = f"{waiting} jobs wait already. Try again in {_RETRY_SECONDS} s."
                raise RefusedRequestError(429, "busy", text, retry_seconds=_RETRY_SECONDS)
            self._jobs[job.id] = job  # it counts from here on
        try:
            if keep:
                self._files.keep(job)  # without the lock: a disk may take its time
            self._enter(job)
        except (OSError, ShortageError):
            self.cancel(job)
            with self._lock:
                del self._jobs[job.id]
            raise
        self._forget_old()

    def find(self, id: str) -> ServedJob:  # noqa: A002
        """Find a job. RefusedRequestError if there is none, or it ended long ago."""
        if job := self._jobs.get(id):
            return job
        raise RefusedRequestError(404, "missing_job", f"There is no job {id[:40]!r}. What it judged is in the runs.")

    def jobs(self) -> Sequence[ServedJob]:
        """Return all jobs that are remembered, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def cancel(self, job: ServedJob) -> None:
        """Cancel a job: at once if it waits, else at its next event."""
        job.cancel()
        if job.ended:
            self._files.forget(job)

    def is_short_job_queued(self) -> bool:
        """Return whether a job that is shorter than a ranking waits."""
        return any(job.kind != "rank" and job.state == "queued" for job in self.jobs())

    def _adopt(self) -> None:
        while not self._closing:
            time.sleep(_ADOPT_SECONDS)
            self.adopt_jobs()

    def _enter(self, job: ServedJob) -> None:
        """Let a thread do a job when those before it are done."""
        with self._lock:
            if not self._closing:
                self._pool.submit(self._do, job)

    def _do(self, job: ServedJob) -> None:
        """Do a job to its end, or until it is stopped. Whatever it does, the next one is served."""
        result: dict[str, Any] | BaseException
        try:
            result = self._perform(job)
        except BaseException as error:
            result = job.stop.error or error
        if not job.ended:
            job.end(result)
        if job.ended:
            self._files.forget(job)
        else:
            self._enter(job)

    def _forget_old(self) -> None:
        """Forget the oldest jobs that have ended, beyond a number: their judgements are in the store."""
        with self._lock:
            for job in [job for job in self._jobs.values() if job.ended][:-_MOST_ENDED]:
                del self._jobs[job.id]
