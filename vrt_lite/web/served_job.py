"""One piece of work that a client has asked for: its state, and the events that pages and clients follow.

The thread that does the job writes, any number of readers follow. What a judge writes arrives in small pieces; they are
joined, and events of earlier pairs are dropped, so that a job of hours stays small.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, Literal

import msgspec

from vrt_lite.errors import VrtError
from vrt_lite.interfaces import Stop
from vrt_lite.web.refusals import describe_error

JobKind = Literal["compare", "rank", "rewards", "pull"]
JobState = Literal["queued", "running", "paused", "done", "failed", "cancelled"]
ENDED: Final = ("done", "failed", "cancelled")
_JOIN_SECONDS = 0.1
_SHORT_PROMPT = 200
_NEWEST_ONLY = frozenset(("state", "stage", "left", "progress", "ladder", "log"))
"""Of these kinds only the newest event is kept."""
_OF_ONE_PAIR = frozenset(("pair", "stage", "round", "wrote", "outcome"))
"""These events are about the pair being judged, and are dropped when the next one begins."""


class StoppedError(VrtError):
    """A job was told to stop; `state` is what it is then."""

    def __init__(self, state: JobState) -> None:
        super().__init__(f"The job is {state}.")
        self.state: JobState = state


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened. Numbers grow, and some are missing: what is out of date is dropped."""

    number: int
    kind: str
    data: Mapping[str, Any]


class ToldJob(msgspec.Struct):
    """A job as clients get it. `created` is Unix seconds; what each kind's `result` is, its request tells."""

    id: str
    kind: JobKind
    state: JobState
    created: float
    request: Mapping[str, Any]
    progress: Mapping[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None


class ServedJob:
    """One job. `request` is plain JSON from which the job can be begun again."""

    def __init__(self, kind: JobKind, request: Mapping[str, Any], *, id: str = "") -> None:  # noqa: A002
        self.id = id or secrets.token_hex(8)
        self.kind: JobKind = kind
        self.request = request
        self.state: JobState = "queued"
        self.created = time.time()
        self.result: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self._lock = RLock()
        self._events: list[JobEvent] = []
        self._number = 0
        self._listeners: set[Callable[[], None]] = set()
        self._wanted: JobState | None = None
        self.stop = Stop()
        """Ends what is done for the job at once."""
        self._written: list[tuple[str, str]] = []
        self._texts: list[str] = []
        self._told = 0.0
        self.set_state("queued")

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ENDED

    def describe(self) -> dict[str, Any]:
        """Return the state as plain data; with the result or the error once it has ended."""
        with self._lock:
            progress = next((e.data for e in self._events if e.kind == "progress"), None)
            told = ToldJob(
                self.id, self.kind, self.state, self.created, self.request, progress, self.result, self.error
            )
            return msgspec.structs.asdict(told)

    def summarize(self) -> dict[str, Any]:
        """Return the state as plain data that is always small: of the request the beginning of its prompt."""
        prompt = str(self.request.get("prompt", ""))[:_SHORT_PROMPT]
        return self.describe() | {"request": {"prompt": prompt} if prompt else {}, "result": None}

    def add(self, kind: str, /, **data: Any) -> None:
        """Add an event, and wake those who follow the job."""
        with self._lock:
            self._tell_text()
            if kind == "pair":
                self._events = [event for event in self._events if event.kind not in _OF_ONE_PAIR]
            elif kind in _NEWEST_ONLY:
                self._events = [event for event in self._events if event.kind != kind]
            self._append(kind, data)

    def add_text(self, text: str, parts: Iterable[tuple[str, str]]) -> None:
        """Add what the judge wrote, and its parts. What comes within a tenth of a second is one event."""
        with self._lock:
            self._texts.append(text)
            self._written += parts
            if time.monotonic() - self._told > _JOIN_SECONDS:
                self._tell_text()

    def events_after(self, number: int) -> list[JobEvent]:
        """Return the events that are newer than this one."""
        with self._lock:
            return [event for event in self._events if event.number > number]

    def drop_events(self) -> None:
        """Drop the events of the work, once the job has ended and its followers have had time to read them."""
        with self._lock:
            self._events = [event for event in self._events if event.kind in _NEWEST_ONLY]

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, in any thread, after every event. Returns the function that ends this."""
        with self._lock:
            self._listeners.add(wake)
        return lambda: self._listeners.discard(wake)

    def set_state(self, state: JobState) -> None:
        """Go into a state."""
        with self._lock:
            self.state = state
            if state == "queued":
                self._wanted = None
                self.stop = Stop()
            self.add("state", state=state)

    def finish(self, result: dict[str, Any]) -> None:
        """End with a result."""
        with self._lock:
            self.result = result
            self.set_state("done")

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        with self._lock:
            self.error = describe_error(error)
            self.set_state("failed")

    def ask_to_stop(self, state: JobState) -> None:
        """Ask a running job to stop, and to be in this state then. Only cancelling is at once."""
        with self._lock:
            if self._wanted != "cancelled":
                self._wanted = state
            if state == "cancelled":
                self.stop.set(StoppedError("cancelled"))

    def _tell_text(self) -> None:
        if self._texts:
            texts, parts = self._texts, self._written
            self._texts, self._written, self._told = [], [], time.monotonic()
            self._append("wrote", {"text": "".join(texts), "parts": parts})

    def _append(self, kind: str, data: Mapping[str, Any]) -> None:
        self._number += 1
        self._events.append(JobEvent(self._number, kind, data))
        for wake in list(self._listeners):
            wake()

    def check_cancelled(self) -> None:
        """Raise StoppedError if the job has to stop at once. It is called at every event."""
        self.stop.check()

    def check_stopped(self) -> None:
        """Raise StoppedError if the job was asked to stop. It is called between two pairs."""
        if self._wanted:
            raise StoppedError(self._wanted)

    def stop_at_once(self) -> None:
        """Stop a running job at its next event, to go on with it later: the server ends."""
        with self._lock:
            if self._wanted is None:
                self._wanted = "paused"
            self.stop.set(StoppedError(self._wanted))
