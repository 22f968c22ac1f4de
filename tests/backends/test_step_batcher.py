"""Replies share the engine: each reads alone, and the steps of all that write are one evaluation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from vrt_lite.backends.llamacpp.decoding import StepBatcher


class Recorder:
    """Doubles numbers, and keeps which came together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, steps: Sequence[int]) -> list[int]:
        self.batches.append(sorted(steps))
        return [2 * step for step in steps]


def test_steps_of_all_replies_are_one_evaluation_and_a_reply_that_ends_frees_the_others() -> None:
    recorder, begun = Recorder(), Barrier(3)
    batcher = StepBatcher[int, int](recorder)

    def reply(first: int, count: int) -> list[int]:
        with batcher.reply():
            begun.wait()
            return [batcher.take(first + i) for i in range(count)]

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(reply, (0, 10, 20), (1, 2, 4)))
    assert results == [[0], [20, 22], [40, 42, 44, 46]]
    assert recorder.batches == [[0, 10, 20], [11, 21], [22], [23]]


def test_steps_wait_for_a_reply_that_reads() -> None:
    recorder, reading = Recorder(), Event()
    batcher = StepBatcher[int, int](recorder)

    def read_then_write() -> int:
        with batcher.reply():
            with batcher.alone():
                reading.set()
                time.sleep(0.2)
            return batcher.take(1)

    def write() -> int:
        reading.wait()
        with batcher.reply():
            return batcher.take(2)

    with ThreadPoolExecutor(2) as pool:
        assert [task.result() for task in (pool.submit(read_then_write), pool.submit(write))] == [2, 4]
    assert recorder.batches == [[1, 2]]


def test_a_failed_evaluation_ends_each_reply_in_it_and_no_later_one() -> None:
    begun = Barrier(2)

    def evaluate(steps: Sequence[int]) -> list[int]:
        if len(steps) > 1:
            raise MemoryError("too much at once")
        return list(steps)

    batcher = StepBatcher[int, int](evaluate)

    def reply(step: int) -> int:
        with batcher.reply():
            begun.wait()
            return batcher.take(step)

    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(reply, step) for step in (1, 2)]:
            with pytest.raises(MemoryError, match="too much at once"):
                task.result()
    with batcher.reply():
        assert batcher.take(3) == 3


def test_a_reply_waits_while_others_read_and_for_their_parts_of_a_batch() -> None:
    reading, begun = Event(), Barrier(2)

    def evaluate(steps: Sequence[int]) -> list[int]:
        time.sleep(0.1 * len(steps))
        return list(steps)

    batcher = StepBatcher[int, int](evaluate)

    def read_then_write() -> float:
        with batcher.reply():
            with batcher.alone():
                reading.set()
                time.sleep(0.2)
            begun.wait()
            batcher.take(1)
            return batcher.waited_seconds

    def wait_then_write() -> float:
        reading.wait()
        with batcher.reply():
            with batcher.alone():
                pass
            begun.wait()
            batcher.take(2)
            return batcher.waited_seconds

    with ThreadPoolExecutor(2) as pool:
        reader, writer = (task.result() for task in (pool.submit(read_then_write), pool.submit(wait_then_write)))
    assert reader > 0.09
    assert writer > 0.25
