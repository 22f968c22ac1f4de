"""The jobs that clients have asked for, and one queue of them before one judge.

As many threads as judgements can run at once do the jobs in order. A ranking gives way between two judgements to a job
that is short, and goes on after it: what it has judged is in the store. What the queue has no room for is refused, with
a time after which to try again. Jobs that are not done are kept in files, so that a server that was killed can go on
with them.

The thread that does a job writes its events, any number of readers follow. Events of earlier pairs are dropped, so that
a job of hours stays small.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from threading import RLock, Thread
from typing import Any, Final, Literal, NamedTuple

import msgspec
from starlette.responses import StreamingResponse

from vrt_lite.disk import locked, write_file
from vrt_lite.errors import ShortageError, UsageError, VrtError
from vrt_lite.interfaces import Stop
from vrt_lite.reading import read_json
from vrt_lite.records.judgement import PlainData
from vrt_lite.records.ladders import Progress
from vrt_lite.runs.database import Owner, is_alive, new_owner
from vrt_lite.shortage import ThreadPool
from vrt_lite.web.requests import BODIES, MOST_BODY_BYTES, JobKind, RefusedRequestError, describe_error, read_body

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
LOOK_SECONDS = 0.05
"""A thread writes events, and these are looked for: that is simpler than to wake those who wait on the event loop."""
_HEARTBEAT_SECONDS = 10.0
_SHORT_PROMPT = 200
_NEWEST_ONLY = frozenset(("state", "stage", "progress", "ladder"))
"""Of these kinds only the newest event is kept."""
_OF_ONE_PAIR = frozenset(("pair", "stage", "round", "wrote", "outcome"))
"""These events are about the pair being judged, and are dropped when the next one begins."""
_ID = re.compile(r"[0-9a-f]{16}")
MOST_WAITING: Final = 32
_MOST_ENDED = 64
"""How many jobs that have ended are remembered."""
_RETRY_SECONDS = 5
_ADOPT_SECONDS = 2.0


class StoppedError(VrtError):
    """A job was told to stop; `state` is what it is then."""

    def __init__(self, state: JobState) -> None:
        super().__init__(f"The job is {state}.")
        self.state: JobState = state


class JobEvent(NamedTuple):
    """Something that happened. Numbers grow, and some are missing: what is out of date is dropped."""

    number: int
    kind: str
    data: PlainData


class ServedJob(msgspec.Struct, dict=True, eq=False):
    """A job as clients get it. `created` is Unix seconds; what each kind's `result` is, its request tells.

    `request` is the body that was sent, from which the job can be begun again.
    """

    kind: JobKind
    request: Any
    id: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    state: JobState = "queued"
    created: float = msgspec.field(default_factory=time.time)
    progress: Progress | None = None
    result: PlainData | None = None
    error: PlainData | None = None

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._events: list[JobEvent] = []
        self._number = self._told = 0
        """Of the last event, and of the last one that anyone has read."""
        self.set_state(self.state)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def summarize(self) -> PlainData:
        """Return the state, which is always small: of the request the beginning of its prompt."""
        request = {"prompt": self.request.prompt[:_SHORT_PROMPT]} if self.request.prompt else {}
        return msgspec.structs.asdict(self) | {"request": request, "result": None}

    def add(self, kind: str, /, **data: Any) -> None:
        """Add an event."""
        with self._lock:
            dropped = _OF_ONE_PAIR if kind == "pair" else _NEWEST_ONLY & {kind}
            self._events = [event for event in self._events if event.kind not in dropped]
            self._number += 1
            self._events.append(JobEvent(self._number, kind, data))

    def tell(self, progress: Progress) -> None:
        """Add how far the work has come."""
        self.progress = progress
        self.add("progress", **msgspec.structs.asdict(progress))

    def add_text(self, text: str, parts: Iterable[tuple[str, str]]) -> None:
        """Add what the judge wrote, and its parts: to the last event, if that is such a one and nobody has read it."""
        with self._lock:
            last = self._events[-1]
            if last.kind != "wrote" or last.number <= self._told:
                self.add("wrote", text="", parts=[])
                last = self._events[-1]
            last.data["text"] += text
            last.data["parts"] += parts

    def events_after(self, number: int) -> list[JobEvent]:
        """Return the events that are newer than this one."""
        with self._lock:
            self._told = self._number
            return [event for event in self._events if event.number > number]

    def set_state(self, state: JobState) -> None:
        """Go into a state."""
        with self._lock:
            self.state = state
            if state == "queued":
                self.stop = Stop()
                """Ends what is done for the job at once, with StoppedError."""
            self.add("state", state=state)

    def begin(self) -> None:
        """Go from the queue to work, unless it was told to stop; then StoppedError."""
        with self._lock:
            self.stop.check()
            self.set_state("running")

    def cancel(self) -> None:
        """End at once if it waits, else at its next event."""
        with self._lock:
            self.stop.set(StoppedError("cancelled"))
            if self.state == "queued":
                self.set_state("cancelled")

    def end(self, result: PlainData | BaseException) -> None:
        """End with a result or an error, or go into the state that a StoppedError says."""
        if isinstance(result, StoppedError):
            self.set_state(result.state)
        elif isinstance(result, BaseException):
            self.error = describe_error(result)
            self.set_state("failed")
        else:
            self.result = result
            self.set_state("done")


def stream_events(job: ServedJob, after: int = 0, give_up: Callable[[], object] = lambda: None) -> StreamingResponse:
    """Answer with all events of a job after one, and last how it ended. A client that goes away before gives up."""
    headers = {"x-accel-buffering": "no"}  # lets nginx pass each event on when it comes
    return StreamingResponse(_write_events(job, after, give_up), media_type="text/event-stream", headers=headers)


async def _write_events(job: ServedJob, after: int, give_up: Callable[[], object]) -> AsyncIterator[str]:
    told, ended = time.monotonic(), False
    try:
        while not ended:
            ended = job.ended  # before its events are read: the last one is among them
            for event in job.events_after(after):
                after, told = event.number, time.monotonic()
                yield _format_event(*event)
            if time.monotonic() - told > _HEARTBEAT_SECONDS:
                told = time.monotonic()
                yield ": still there\n\n"
            await asyncio.sleep(LOOK_SECONDS)
        yield _format_event(after, "end", msgspec.to_builtins(job))
    finally:
        if not job.ended:
            give_up()


def _format_event(number: int, kind: str, data: Any) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


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


class JobQueue:
    """The jobs, and the threads that do them.

    `perform` does one in such a thread: it begins the job when its turn has come, and returns its result.
    """

    def __init__(self, perform: Callable[[ServedJob], PlainData], files: JobFiles, *, threads: int = 1) -> None:
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
        with self._lock:  # beyond a number: their judgements are in the store
            for old in [old for old in self._jobs.values() if old.ended][:-_MOST_ENDED]:
                del self._jobs[old.id]

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
        result: PlainData | BaseException
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
