"""Does the work of all comparisons in one thread: who waits, who reads a conversation, and what all write next.

Work is a generator. It yields only to wait, and is sent what it waited for:

    Future      its result
    InThread    what a call returned that was made in another thread
    Together    the results of several works, done side by side
    Batched     the result of its part, computed with the parts of all other work at once

Between two yields it has the engine for itself. So a conversation is read as a whole: if work could also yield there,
other work could change what is about to be copied. Events are told by a plain call, which may raise.
"""

from __future__ import annotations

import functools
import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeAlias, TypeVar

from vrt_lite.errors import CLOSED, ShortageError, UsageError
from vrt_lite.interfaces import Event, Observe, Stop, check_stops, ignore, stops_in_force
from vrt_lite.shortage import ThreadPool

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InThread:
    """Waits for a call that is made in another thread: `call` gets an observer, whose events go to `observe`.

    Work that is ended meanwhile ends when the call does, which finds its stop in force.
    """

    call: Callable[[Observe], Any]
    observe: Observe = ignore


@dataclass(frozen=True, slots=True)
class Together:
    """Waits for the results of these. An error of one ends the others too, and is raised when all have ended."""

    works: Sequence[Work[Any]]


@dataclass(frozen=True, slots=True)
class Batched:
    """Waits for the result of `part`: `evaluate` gets the parts of all that wait, and returns a result for each.

    If some of them were ended in the middle, it gets the parts of the others again.
    """

    evaluate: Callable[[Sequence[Any]], Sequence[Any]]
    part: Any


Wait: TypeAlias = Future[Any] | InThread | Together | Batched
Work: TypeAlias = Generator[Wait, Any, _T]


def run_alone(work: Work[_T]) -> _T:
    """Do some work by itself, in this thread; returns its result."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            wait = work.throw(error) if error else work.send(value)
        except StopIteration as end:
            return end.value
        value = error = None
        try:
            match wait:
                case InThread(call, observe):
                    value = call(observe)
                case Together(works):
                    value = [run_alone(each) for each in works]
                case Batched(evaluate, part):
                    [value] = evaluate([part])
                case _:
                    value = wait.result()
        except BaseException as failed:  # the work may know what to do
            error = failed


class Seats(Generic[_T]):
    """What only one work may use at a time, such as the sequences of an engine. Who comes first gets the next free one.

    For the works of one scheduler.
    """

    def __init__(self, free: Iterable[_T]) -> None:
        self._free = deque(free)
        self._waiting: deque[Future[_T | None]] = deque()
        self._closed = False

    def take(self) -> Work[_T | None]:
        """Wait for a free one, and take it; None if there will be none any more."""
        place: Future[_T | None] = Future()
        self._waiting.append(place)
        self._serve()
        try:
            return (yield place)
        except BaseException:  # it was ended while it waited
            if not place.done():
                self._waiting.remove(place)
            elif (seat := place.result()) is not None:
                self.give_back(seat)
            raise

    def give_back(self, seat: _T) -> None:
        """Let another work use it."""
        self._free.append(seat)
        self._serve()

    def close(self) -> None:
        """Offer none any more."""
        self._closed = True
        self._serve()

    def _serve(self) -> None:
        while self._waiting and (self._free or self._closed):
            self._waiting.popleft().set_result(None if self._closed else self._free.popleft())


@dataclass(eq=False, slots=True)
class _Task:
    """Work in progress. `wait` is what it waits for, None if it is ready; `end` is told of its end."""

    number: int
    work: Work[Any]
    stop: Stop
    end: Callable[[Any, BaseException | None], None]
    wait: Wait | None = None
    parts: list[_Task] = field(default_factory=list["_Task"])
    over: bool = False


class Scheduler:
    """Does work in a thread of its own, which begins with the first one. To be closed."""

    def __init__(self, threads: int) -> None:
        """`threads` is how many calls of `InThread` are made at once, at most."""
        self._pool = ThreadPool(threads)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = Thread(target=self._run, name="vrt-lite scheduler", daemon=True)
        self._entering = Lock()
        """Held while work is put into the inbox: what is there at the close is done, and nothing follows."""
        self._is_closed = False
        self._ready: list[tuple[int, _Task, Any, BaseException | None]] = []
        self._writing: list[_Task] = []
        self._count = self._live = 0
        self._closing = False

    def submit(self, work: Work[_T], stop: Stop | None = None) -> Future[_T]:
        """Begin some work, which `stop` ends; returns its result. Any thread may call this.

        Raises ShortageError, and UsageError after `close`.
        """
        result: Future[_T] = Future()
        with self._entering:
            if self._is_closed:
                raise UsageError(CLOSED)
            if not self._thread.is_alive():
                try:
                    self._thread.start()
                except RuntimeError as error:
                    raise ShortageError("threads") from error
            self._inbox.put(functools.partial(self._begin, work, stop or Stop(), result))
        return result

    def close(self) -> None:
        """End the threads, when all work has ended; none can begin any more."""
        with self._entering:
            self._is_closed = True
            self._inbox.put(self._close_when_done)
        if self._thread.ident:
            self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        while self._live or not self._closing:
            while not (self._inbox.empty() and (self._ready or self._writing)):
                self._inbox.get()()
                if self._closing and not self._live:
                    return
            if self._ready:
                self._advance(*heapq.heappop(self._ready)[1:])
            else:
                self._write()

    def _begin(self, work: Work[_T], stop: Stop, result: Future[_T]) -> None:
        def end(value: Any, error: BaseException | None) -> None:
            forget()
            self._live -= 1
            if error:
                result.set_exception(error)
            else:
                result.set_result(value)

        result.set_running_or_notify_cancel()  # only the stop ends it
        self._live += 1
        task = self._add(work, stop, end)
        forget = stop.wake_with(lambda: self._inbox.put(functools.partial(self._stop, task)))

    def _close_when_done(self) -> None:
        self._closing = True

    def _add(self, work: Work[Any], stop: Stop, end: Callable[[Any, BaseException | None], None]) -> _Task:
        self._count += 1
        task = _Task(self._count, work, Stop(stop), end)
        self._resume(task)
        return task

    def _resume(self, task: _Task, value: Any = None, error: BaseException | None = None) -> None:
        # The oldest goes on first, until it waits: conversations are read one after the other.
        task.wait = None
        heapq.heappush(self._ready, (task.number, task, value, error))

    def _stop(self, task: _Task) -> None:
        """Let a task that was told to end do so, and its parts. A call in another thread ends by itself."""
        for part in task.parts:
            self._stop(part)
        if isinstance(task.wait, Future | Batched):
            self._writing = [other for other in self._writing if other is not task]
            self._resume(task)

    def _advance(self, task: _Task, value: Any, error: BaseException | None) -> None:
        error = task.stop.error or error
        try:
            with stops_in_force(task.stop):
                wait = task.work.throw(error) if error else task.work.send(value)
        except StopIteration as end:
            self._end(task, end.value, None)
        except BaseException as failed:  # also an interrupt: whoever began the work raises it
            self._end(task, None, failed)
        else:
            self._wait(task, wait)

    def _end(self, task: _Task, value: Any, error: BaseException | None) -> None:
        task.over = True
        task.end(value, error)

    def _wait(self, task: _Task, wait: Wait) -> None:
        task.wait = wait
        match wait:
            case InThread():
                self._call(task, wait)
            case Together(works):
                self._divide(task, works)
            case Batched():
                self._writing.append(task)
            case _:
                wait.add_done_callback(lambda _: self._inbox.put(functools.partial(self._take, task, wait, wait)))

    def _take(self, task: _Task, wait: Wait, result: Future[Any]) -> None:
        """Go on with what was waited for, unless that is something else by now."""
        if task.wait is wait:
            error = result.exception()
            self._resume(task, None if error else result.result(), error)

    def _call(self, task: _Task, wait: InThread) -> None:
        def tell(event: Event) -> None:
            check_stops()
            self._inbox.put(functools.partial(self._tell, task, wait, event))

        def call() -> Any:
            with stops_in_force(task.stop):
                return wait.call(tell)

        try:
            result = self._pool.submit(call)
        except ShortageError as error:
            self._resume(task, None, error)
        else:
            result.add_done_callback(lambda _: self._inbox.put(functools.partial(self._take, task, wait, result)))

    def _tell(self, task: _Task, wait: InThread, event: Event) -> None:
        try:
            with stops_in_force(task.stop):
                check_stops()
                wait.observe(event)
        except BaseException as error:  # the call ends at its next event or check, and the task with this
            task.stop.set(error)

    def _divide(self, task: _Task, works: Sequence[Work[Any]]) -> None:
        results: list[Any] = [None] * len(works)
        errors: list[BaseException] = []

        def end(number: int, value: Any, error: BaseException | None) -> None:
            results[number] = value
            if error:
                errors.append(error)
                for part in task.parts:
                    part.stop.set(error)
                    self._stop(part)
            if all(part.over for part in task.parts):
                task.parts = []
                self._resume(task, results, errors[0] if errors else None)

        task.parts = [self._add(work, task.stop, functools.partial(end, n)) for n, work in enumerate(works)]

    def _write(self) -> None:
        """Evaluate the next part of all that wait for the same engine, as one batch."""
        evaluate = _evaluate_of(self._writing[0])
        writers = [task for task in self._writing if _evaluate_of(task) == evaluate]
        self._writing = [task for task in self._writing if _evaluate_of(task) != evaluate]
        parts = [task.wait.part for task in writers if isinstance(task.wait, Batched)]
        try:
            with stops_in_force(*(task.stop for task in writers)):
                results = evaluate(parts)
        except BaseException as error:  # each must end by itself
            stopped = any(task.stop.error for task in writers)
            for task in writers:
                if stopped and not task.stop.error:
                    self._writing.append(task)
                else:
                    self._resume(task, None, error)
        else:
            for task, result in zip(writers, results, strict=True):
                self._resume(task, result)


def _evaluate_of(task: _Task) -> Callable[[Sequence[Any]], Sequence[Any]]:
    assert isinstance(task.wait, Batched)
    return task.wait.evaluate
