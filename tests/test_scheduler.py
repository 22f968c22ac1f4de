"""The scheduler: work in one thread that waits for calls, for each other, and for what is computed as one batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing

import pytest

from vrt_lite.interfaces import Event, Observe, Stop, Wrote, check_stops
from vrt_lite.scheduler import Batched, InThread, Scheduler, Seats, Together, Work, run_alone

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


def write(evaluate: Doubling, first: int, count: int, began: Future[None] | None = None) -> Work[list[int]]:
    if began:
        yield began
    written = list[int]()
    for number in range(first, first + count):
        written.append((yield Batched(evaluate, number)))
    return written


def test_parts_of_all_that_write_are_one_batch_and_who_ends_frees_the_others(scheduler: Scheduler) -> None:
    evaluate, began = Doubling(), Future[None]()
    works = [write(evaluate, first, count, began) for first, count in ((0, 1), (10, 2), (20, 4))]
    whole = scheduler.submit(together(works))
    began.set_result(None)
    assert whole.result(MOST_SECONDS) == [[0], [20, 22], [40, 42, 44, 46]]
    assert evaluate.batches == [[0, 10, 20], [11, 21], [22], [23]]


def together(works: Sequence[Work[list[int]]]) -> Work[list[list[int]]]:
    return (yield Together(works))


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
    threads = set[int]()
    told: list[Event] = []

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
    evaluate, ended = Doubling(), list[str]()
    seats = Seats(["the only one"])

    def hold() -> Work[None]:
        yield from seats.take()
        yield Future[None]()

    def wait_for_seat() -> Work[object]:
        return (yield from seats.take())

    def wait_for_call() -> Work[None]:
        def call(_: Observe) -> None:
            try:
                while True:
                    time.sleep(0.01)
                    check_stops()
            finally:
                ended.append("call")

        try:
            yield InThread(call)
        finally:
            ended.append("work")

    for work in (hold, wait_for_seat, wait_for_call, lambda: together([write(evaluate, 0, 9, Future())])):
        stop = Stop()
        begun = scheduler.submit(work(), Stop(stop))
        time.sleep(0.05)
        assert not begun.done()
        stop.set(KeyboardInterrupt())
        if work is not hold:
            with pytest.raises(KeyboardInterrupt):
                begun.result(MOST_SECONDS)
    assert ended == ["call", "work"], "work ends after what it began in another thread"
    assert scheduler.submit(write(evaluate, 0, 1)).result(MOST_SECONDS) == [0]


def test_a_stop_that_was_set_before_ends_at_once(scheduler: Scheduler) -> None:
    stop = Stop()
    stop.set(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        scheduler.submit(write(Doubling(), 0, 1), stop).result(MOST_SECONDS)


def test_who_is_stopped_in_a_batch_ends_and_the_others_are_evaluated_again(scheduler: Scheduler) -> None:
    stop, began = Stop(), Future[None]()
    batches: list[list[int]] = []

    def evaluate(parts: Sequence[int]) -> list[int]:
        batches.append(sorted(parts))
        if len(batches) == 1:
            stop.set(KeyboardInterrupt())
            check_stops()
        return [2 * part for part in parts]

    def one(number: int) -> Work[int]:
        yield began
        return (yield Batched(evaluate, number))

    stopped, other = scheduler.submit(one(1), stop), scheduler.submit(one(2))
    began.set_result(None)
    assert other.result(MOST_SECONDS) == 4
    with pytest.raises(KeyboardInterrupt):
        stopped.result(MOST_SECONDS)
    assert batches == [[1, 2], [2]]


def test_an_evaluation_that_fails_is_an_error_of_each(scheduler: Scheduler) -> None:
    evaluate, began = Doubling(MemoryError()), Future[None]()
    begun = [scheduler.submit(write(evaluate, number, 1, began)) for number in (1, 5)]
    began.set_result(None)
    assert [type(each.exception(MOST_SECONDS)) for each in begun] == [MemoryError] * 2
    assert scheduler.submit(write(evaluate, 1, 1)).result(MOST_SECONDS) == [2]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_ends_what_is_done_beside_it(scheduler: Scheduler, failing: int) -> None:
    ended, began = list[int](), threading.Event()

    def fail() -> Work[list[int]]:
        yield InThread(lambda _: began.wait(MOST_SECONDS))
        raise ValueError("enough")

    def go_on() -> Work[list[int]]:
        def call(_: Observe) -> None:
            began.set()
            while True:
                time.sleep(0.01)
                check_stops()

        try:
            yield InThread(call)
        finally:
            ended.append(1)
        return []

    works = [go_on(), fail()] if failing else [fail(), go_on()]
    with pytest.raises(ValueError, match="enough"):
        scheduler.submit(together(works)).result(MOST_SECONDS)
    assert ended == [1]


def test_an_observer_that_raises_ends_the_call_and_the_work(scheduler: Scheduler) -> None:
    def observe(event: Event) -> None:
        raise ValueError("enough")

    def call(tell: Observe) -> None:
        while True:
            tell(Wrote("."))
            time.sleep(0.01)

    def work() -> Work[None]:
        yield InThread(call, observe)

    with pytest.raises(ValueError, match="enough"):
        scheduler.submit(work()).result(MOST_SECONDS)


def test_seats_go_to_who_came_first_and_none_are_left_when_they_are_closed(scheduler: Scheduler) -> None:
    seats, order = Seats(["seat"]), list[int]()

    def sit(number: int) -> Work[str | None]:
        seat = yield from seats.take()
        if seat:
            yield InThread(lambda _: time.sleep(0.01))
            order.append(number)
            seats.give_back(seat)
        return seat

    def close() -> Work[None]:
        yield InThread(lambda _: None)
        seats.close()

    found = [scheduler.submit(sit(number)) for number in range(5)]
    assert [each.result(MOST_SECONDS) for each in found] == ["seat"] * 5
    assert order == [0, 1, 2, 3, 4]
    scheduler.submit(close()).result(MOST_SECONDS)
    assert scheduler.submit(sit(9)).result(MOST_SECONDS) is None


def test_work_alone_needs_no_scheduler() -> None:
    assert run_alone(together([write(Doubling(), 0, 2), write(Doubling(), 4, 1)])) == [[0, 2], [8]]
    with pytest.raises(MemoryError):
        run_alone(write(Doubling(MemoryError()), 0, 1))


def test_closing_waits_for_work_and_ends_the_threads() -> None:
    before = threading.active_count()
    scheduler = Scheduler(2)
    work = scheduler.submit(write(Doubling(), 0, 200))
    scheduler.close()
    assert len(work.result(0)) == 200
    assert threading.active_count() == before
    Scheduler(2).close()
