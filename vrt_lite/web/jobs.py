"""One piece of work that a client has asked for: its state, and the events that pages and clients follow.

The thread that does the job writes, any number of readers follow. What a judge writes arrives in small pieces; they are
joined, and events of earlier pairs are dropped, so that a job of hours stays small.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from threading import RLock
from typing import Any, Literal, NamedTuple

import msgspec

from vrt_lite.errors import VrtError
from vrt_lite.interfaces import Stop
from vrt_lite.records.progress import Progress
from vrt_lite.web.refusals import describe_error
from vrt_lite.web.request_bodies import JobKind

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
_JOIN_SECONDS = 0.1
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
    data: Mapping[str, Any]


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
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._events: list[JobEvent] = []
        self._number = 0
        self._text = ""
        self._parts: list[tuple[str, str]] = []
        self._told = 0.0
        self.set_state(self.state)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def summarize(self) -> dict[str, Any]:
        """Return the state, which is always small: of the request the beginning of its prompt."""
        request = {"prompt": self.request.prompt[:_SHORT_PROMPT]} if self.request.prompt else {}
        return msgspec.structs.asdict(self) | {"request": request, "result": None}

    def add(self, kind: str, /, **data: Any) -> None:
        """Add an event."""
        with self._lock:
            self._tell_text()
            dropped = _OF_ONE_PAIR if kind == "pair" else _NEWEST_ONLY & {kind}
            self._events = [event for event in self._events if event.kind not in dropped]
            self._append(kind, data)

    def tell(self, progress: Progress) -> None:
        """Add how far the work has come."""
        self.progress = progress
        self.add("progress", **msgspec.structs.asdict(progress))

    def add_text(self, text: str, parts: Iterable[tuple[str, str]]) -> None:
        """Add what the judge wrote, and its parts. What comes within a tenth of a second is one event."""
        with self._lock:
            self._text += text
            self._parts += parts
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

    def set_state(self, state: JobState) -> None:
        """Go into a state."""
        with self._lock:
            self.state = state
            if state == "queued":
                self.stop = Stop()
                """Ends what is done for the job at once, with StoppedError."""
            self.add("state", state=state)

    def end(self, result: dict[str, Any] | BaseException) -> None:
        """End with a result or an error."""
        if isinstance(result, BaseException):
            self.error = describe_error(result)
        else:
            self.result = result
        self.set_state("failed" if self.error else "done")

    def _tell_text(self) -> None:
        if self._text:
            self._append("wrote", {"text": self._text, "parts": self._parts})
            self._text, self._parts, self._told = "", [], time.monotonic()

    def _append(self, kind: str, data: Mapping[str, Any]) -> None:
        self._number += 1
        self._events.append(JobEvent(self._number, kind, data))
