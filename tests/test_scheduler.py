"""The scheduler: work in one thread that waits for calls, for each other, and for what is computed as one batch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from vrt_lite.errors import UsageError
from vrt_lite.interfaces import Event, Observe, Stop, Wrote, check_stops
from vrt_lite.scheduler import Batched, InThread, Scheduler, Seats, Together, Work

MOST_SECONDS = 20.0


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with closing(Scheduler(4)) as opened:
        yield opened


class Doubling:
    """Doubles numbers, and keeps which came together; `errors` are raised by the first evaluations, if any."""

    def __init__(self, *errors: BaseException) -> None:
        self.batches: list[list[int]] = []
        self._errors = list(errors)

    def __call__(self, parts: Sequence[int]) -> list[int]:
        self.batches.append(sorted(parts))
        if self._errors:
            raise self._errors.pop(0)
        return [2 * part for part in parts]


def write(evaluate: Any, first: int, count: int = 1, began: Future[None] | None = None) -> Work[list[int]]:
    if began:
        yield began
    written = list[int]()
    for number in range(first, first + count):
        written.append((yield Batched(evaluate, number)))
    return written


def together(*works: Work[Any]) -> Work[list[Any]]:
    return (yield Together(works))


def tell_for_ever(tell: Observe) -> None:
    while True:
        tell(Wrote("."))
        time.sleep(0.01)


def test_parts_of_all_that_write_are_one_batch_and_who_ends_frees_the_others(scheduler: Scheduler) -> None:
    evaluate, began = Doubling(), Future[None]()
    works = [write(evaluate, first, count, began) for first, count in ((0, 1), (10, 2), (20, 4))]
    whole = scheduler.submit(together(*works))
    began.set_result(None)
    assert whole.result(MOST_SECONDS) == [[0], [20, 22], [40, 42, 44, 46]]
    assert evaluate.batches == [[0, 10, 20], [11, 21], [22], [23]]


def test_a_batch_does_not_wait_for_a_call_in_another_thread(scheduler: Scheduler) -> None:
    """A reply joins the batch when its frames are decoded, not before."""
    evaluate, decoded = Doubling(), threading.Event()

    def decode_and_write() -> Work[int]:
        yield InThread(lambda _: decoded.wait(MOST_SECONDS))
        return (yield Batched(evaluate, 100))

    slow = scheduler.submit(decode_and_write())
    assert scheduler.submit(write(evaluate, 0, 3)).result(MOST_SECONDS) == [0, 2, 4]
    decoded.set()
    assert slow.result(MOST_SECONDS) == 200
    assert evaluate.batches == [[0], [1], [2], [100]]


def test_all_work_is_done_in_one_thread_and_events_are_told_there(scheduler: Scheduler) -> None:
    threads, told = set[int](), list[Event]()

    def observe(event: Event) -> None:
        threads.add(threading.get_ident())
        told.append(event)

    def call(tell: Observe) -> int:
        for text in "abc":
            tell(Wrote(text))
        return threading.get_ident()

    def work() -> Work[int]:
        threads.add(threading.get_ident())
        return (yield InThread(call, observe))

    callers = {each.result(MOST_SECONDS) for each in [scheduler.submit(work()) for _ in range(3)]}
    assert len(threads) == 1
    assert not callers & (threads | {threading.get_ident()})
    assert sorted(event.text for event in told if isinstance(event, Wrote)) == sorted("abc" * 3)


def test_a_stop_ends_work_wherever_it_waits(scheduler: Scheduler) -> None:
    evaluate, ended, seats, calling = Doubling(), list[str](), Seats(["the only one"]), threading.Event()

    def hold() -> Work[None]:
        yield from seats.take()
        yield Future[None]()

    def wait_for_call() -> Work[None]:
        def call(tell: Observe) -> None:
            try:
                calling.set()
                tell_for_ever(tell)
            finally:
                ended.append("call")

        try:
            yield InThread(call)
        finally:
            ended.append("work")

    scheduler.submit(hold(), held := Stop())
    for work in (wait_for_call(), seats.take(), together(write(evaluate, 0, 9, Future()))):
        stop = Stop()
        begun = scheduler.submit(work, Stop(stop))
        assert calling.wait(MOST_SECONDS)
        time.sleep(0.02)
        assert not begun.done()
        stop.set(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            begun.result(MOST_SECONDS)
    with pytest.raises(KeyboardInterrupt):  # set before, it ends at once
        scheduler.submit(write(evaluate, 7), stop).result(MOST_SECONDS)
    held.set(KeyboardInterrupt())
    assert ended == ["call", "work"], "work ends after what it began in another thread"
    assert scheduler.submit(write(evaluate, 0)).result(MOST_SECONDS) == [0]
    assert evaluate.batches == [[0]]


def test_who_is_stopped_in_a_batch_ends_and_the_others_are_evaluated_again(scheduler: Scheduler) -> None:
    stop, began, batches = Stop(), Future[None](), list[list[int]]()

    def evaluate(parts: Sequence[int]) -> list[int]:
        batches.append(sorted(parts))
        if len(batches) == 1:
            stop.set(KeyboardInterrupt())
            check_stops()
        return [2 * part for part in parts]

    stopped = scheduler.submit(write(evaluate, 1, began=began), stop)
    other = scheduler.submit(write(evaluate, 2, began=began))
    began.set_result(None)
    assert other.result(MOST_SECONDS) == [4]
    with pytest.raises(KeyboardInterrupt):
        stopped.result(MOST_SECONDS)
    assert batches == [[1, 2], [2]]


def test_an_evaluation_that_fails_is_an_error_of_each(scheduler: Scheduler) -> None:
    evaluate, began = Doubling(MemoryError()), Future[None]()
    begun = [scheduler.submit(write(evaluate, number, 1, began)) for number in (1, 5)]
    began.set_result(None)
    assert [type(each.exception(MOST_SECONDS)) for each in begun] == [MemoryError] * 2
    assert scheduler.submit(write(evaluate, 1)).result(MOST_SECONDS) == [2]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_ends_what_is_done_beside_it(scheduler: Scheduler, failing: int) -> None:
    ended, began = threading.Event(), threading.Event()

    def fail() -> Work[None]:
        yield InThread(lambda _: began.wait(MOST_SECONDS))
        raise ValueError("enough")

    def go_on() -> Work[None]:
        began.set()
        try:
            yield InThread(tell_for_ever)
        finally:
            ended.set()

    works = [go_on(), fail()] if failing else [fail(), go_on()]
    with pytest.raises(ValueError, match="enough"):
        scheduler.submit(together(*works)).result(MOST_SECONDS)
    assert ended.is_set()


def test_seats_go_to_who_came_first_and_none_are_left_when_they_are_closed(scheduler: Scheduler) -> None:
    seats, order = Seats(["seat"]), list[int]()

    def sit(number: int) -> Work[str | None]:
        seat = yield from seats.take()
        if seat:
            yield InThread(lambda _: time.sleep(0.01))
            order.append(number)
            seats.give_back(seat)
        return seat

    found = [scheduler.submit(sit(number)) for number in range(5)]
    assert [each.result(MOST_SECONDS) for each in found] == ["seat"] * 5
    assert order == [0, 1, 2, 3, 4]
    seats.close()
    assert scheduler.submit(sit(9)).result(MOST_SECONDS) is None


def test_closing_waits_for_work_and_ends_the_threads() -> None:
    before = threading.active_count()
    scheduler = Scheduler(2)
    work = scheduler.submit(write(Doubling(), 0, 200))
    scheduler.close()
    assert len(work.result(0)) == 200
    with pytest.raises(UsageError, match="closed"):
        scheduler.submit(write(Doubling(), 0))
    scheduler.close()
    assert threading.active_count() == before


def test_work_that_comes_while_it_is_closed_is_done_or_refused() -> None:
    """Without a lock some was waited for without end."""

    def submit(scheduler: Scheduler, began: threading.Event) -> list[Future[list[int]]]:
        found = list[Future[list[int]]]()
        with contextlib.suppress(UsageError):
            for _ in range(200):
                found.append(scheduler.submit(write(Doubling(), 0)))
                began.set()
        return found

    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            scheduler, began = Scheduler(1), threading.Event()
            others = [pool.submit(submit, scheduler, began) for _ in range(4)]
            began.wait(MOST_SECONDS)
            scheduler.close()
            assert all(work.done() for other in others for work in other.result())
