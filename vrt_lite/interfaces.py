"""What the loop needs from a back end and from a store of frames, and the events that an observer gets.

Also stopping work, waiting for it, and timing it. No engine, no decoder.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from vrt_lite.protocol.messages import Conversation, FrameRef, Reply, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Result = TypeVar("_Result")
_TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Working:
    """Something is done beside the judge's own work: `what` says it in words, such as "decoding frames"."""

    what: str


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Between how many seconds work will take."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        """The seconds that are as many times the least as the most is of them."""
        return (self.least * self.most) ** 0.5

    def times(self, count: float) -> TimeRange:
        """The range of so many times this work."""
        return TimeRange(self.least * count, self.most * count)


@dataclass(frozen=True, slots=True)
class Predicted:
    """How long what begins now will take; `longer` with a second order, if that is judged only after a doubt."""

    time: TimeRange
    longer: TimeRange | None = None


@dataclass(frozen=True, slots=True)
class Loading:
    """Something large is being loaded."""

    what: str


@dataclass(frozen=True, slots=True)
class Encoding:
    """The vision tower has done `done` of `total` frame pairs of this round of an order."""

    done: int
    total: int
    order: int = 0


@dataclass(frozen=True, slots=True)
class Prefill:
    """The text model has read `done` of `total` new tokens of this round of an order."""

    done: int
    total: int
    order: int = 0


@dataclass(frozen=True, slots=True)
class Wrote:
    """The judge wrote some more text in an order."""

    text: str
    order: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request is repeated after a pause: `what` is the server and the reason, `attempt` counts from 1."""

    what: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """A round begins; `frames` are the ones newly shown in it. `order` is 0, or 1 for the swapped pair."""

    order: int
    number: int
    frames: tuple[FrameRef, ...]


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round ended with this outcome: "final", "tool", or "correction"."""

    order: int
    number: int
    outcome: str


@dataclass(frozen=True, slots=True)
class OrderEnded:
    """An order was judged: nothing more is told of it."""

    order: int


Event = Working | Predicted | Loading | Encoding | Prefill | Wrote | Waiting | RoundBegan | RoundEnded | OrderEnded
Observe = Callable[[Event], None]
"""Is told of events. Of two orders that are judged at once it gets both as they happen, each event with its order.
What it raises ends the work."""


def ignore(event: Event) -> None:
    """An observer that does nothing."""


def never(text: str) -> bool:
    """Whether a text is concluded: never before its writer ends it."""
    return False


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn. Temperature 0 is greedy; the same seed gives the same reply.

    `concluded` tells whether nothing that follows a text will be read. A back end may stop there, or any time later:
    the loop cuts the reply where its text alone says that it is over.

    `openings` are the words with which a winner and a tie begin; the reply has the odds at each (tie, then the rest in
    halves). With `heads` nothing is written: the reply has the score of each, read at the token that it names.
    """

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    concluded: Callable[[str], bool] = never
    openings: tuple[str, str] | None = None
    heads: Mapping[str, str] = field(default_factory=dict[str, str])


class FrameStore(Protocol):
    """Pixels of workspace frames."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """RGB arrays (height, width, 3), one for each frame in the order given, resized for the model."""
        ...


class Backend(Protocol):
    """A judge that can answer a conversation."""

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn. It may see `conversation` alone; what it saw before serves only as a cache."""
        ...


class Stopwatch:
    """Seconds by stage since it was made. Stages may run side by side, each in one thread at a time."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def measure(self, stage: str) -> Generator[None]:
        """Add the time of the block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - started

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    def divide(self, total: float, orders: Sequence[Sequence[Usage]]) -> dict[str, float]:
        """Divide a total into stages of the engine, from what the replies of each order used, and "other".

        "other" is spent neither in the engine nor waiting for it.
        """
        engine = {
            stage: [sum(getattr(usage, f"{stage}_seconds") for usage in usages) for usages in orders]
            for stage in ("vision", "prefill", "generate")
        }
        waited = [sum(usage.waited_seconds for usage in usages) for usages in orders]
        spent = [sum(stages) for stages in zip(*engine.values(), waited, strict=True)]
        left = total - self.seconds["wait"]
        # Orders that took more time together than there was were judged at once.
        busy = sum(spent) if sum(spent) <= left else max(spent)
        return {stage: sum(seconds) for stage, seconds in engine.items()} | {"other": max(left - busy, 0.0)}


class Stop:
    """Ends work from another thread. Whatever checks it raises the error that it, or one `within` it, was set with."""

    def __init__(self, *within: Stop) -> None:
        self._within = within
        self._error: BaseException | None = None
        self._wakes: list[Callable[[], None]] = []

    @property
    def error(self) -> BaseException | None:
        """What the work ends with; None if it goes on."""
        return self._error or next((error for stop in self._within if (error := stop.error)), None)

    def set(self, error: BaseException) -> None:
        """End the work with this error, at its next check. Only the first error counts."""
        self._error = self._error or error
        for wake in tuple(self._wakes):
            wake()

    def check(self) -> None:
        """Raise the error if the work is to end."""
        if error := self.error:
            raise error

    def wake_with(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, in any thread, when the work is to end: it may be waiting. Returns what undoes this."""
        undo = [stop.wake_with(wake) for stop in self._within]
        self._wakes.append(wake)
        if self._error:  # set meanwhile
            wake()

        def end() -> None:
            self._wakes.remove(wake)
            for each in undo:
                each()

        return end


_in_force: ContextVar[tuple[Stop, ...]] = ContextVar("stops in force", default=())


@contextlib.contextmanager
def stops_in_force(*stops: Stop) -> Generator[None]:
    """What the block does can be ended by these: `check_stops` checks them, in this thread."""
    before = _in_force.set(stops)
    try:
        yield
    finally:
        _in_force.reset(before)


def check_stops() -> None:
    """Raise the error of a stop in force that was set. Work that takes long calls it a few times a second."""
    for stop in _in_force.get():
        stop.check()


def stop_in_force() -> Stop:
    """A stop that ends with those in force here, for work in another thread."""
    return Stop(*_in_force.get())


def wait_until_done(work: Future[_Result]) -> _Result:
    """Wait for `work`, and return its result. KeyboardInterrupt comes within 0.2 s.

    The waits are short because on Windows an interrupt cannot break one.
    """
    while not wait([work], timeout=_TICK_SECONDS).done:
        pass
    return work.result()
