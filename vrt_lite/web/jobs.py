"""One piece of work that a client has asked for: its state, and the events that pages and clients follow.

The thread that does the job writes, any number of readers follow. Events of earlier pairs are dropped, so that a job of
hours stays small.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from threading import RLock
from typing import Any, Literal, NamedTuple

import msgspec
from starlette.responses import StreamingResponse

from vrt_lite.errors import VrtError
from vrt_lite.interfaces import Stop
from vrt_lite.records.judgement import PlainData
from vrt_lite.records.progress import Progress
from vrt_lite.web.refusals import describe_error
from vrt_lite.web.request_bodies import JobKind

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
LOOK_SECONDS = 0.05
"""A thread writes events, and these are looked for: that is simpler than to wake those who wait on the event loop."""
_HEARTBEAT_SECONDS = 10.0
_SHORT_PROMPT = 200
_NEWEST_ONLY = frozenset(("state", "stage", "progress", "ladder"))
"""Of these kinds only the newest event is kept."""
_OF_ONE_PAIR = frozenset(("pair", "stage", "round", "wrote", "outcome"))
"""These events are about the pair being judged, and are dropped when the next one begins."""


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
