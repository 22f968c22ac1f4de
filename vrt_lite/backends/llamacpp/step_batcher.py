"""Lets several replies share the engine: each reads alone, and what all write next is evaluated as one batch.

A batch of four tokens takes about as long as two single ones, because the weights are read once. So steps wait until
every reply in progress waits for one. Reading comes first: the more replies have read, the more share a step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from threading import Condition, Lock
from typing import Generic, TypeVar

_Step = TypeVar("_Step")
_Result = TypeVar("_Result")


class StepBatcher(Generic[_Step, _Result]):
    """The order in which threads use the engine. `evaluate` gets the steps of several replies, each with its result.

    While a thread is in `alone`, or steps are evaluated, no other thread uses the engine.
    """

    def __init__(self, evaluate: Callable[[Sequence[_Step]], Sequence[_Result]]) -> None:
        self._evaluate = evaluate
        self._engine = Condition()
        self._counting = Lock()
        self._replies = 0
        self._waiting: list[_Request[_Step, _Result]] = []

    @contextlib.contextmanager
    def reply(self) -> Generator[None]:
        """Take part in steps: the steps of others wait for this thread."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            with self._engine:
                self._engine.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Use the engine alone."""
        with self._engine:
            yield

    def take(self, step: _Step) -> _Result:
        """Evaluate a step with those of all other replies; returns its result. Raises what the evaluation raised."""
        request = _Request[_Step, _Result](step)
        with self._engine:
            self._waiting.append(request)
            while not request.done:
                if len(self._waiting) < self._replies:
                    self._engine.wait()
                else:
                    self._evaluate_all()
        return request.result()

    def _evaluate_all(self) -> None:
        requests, self._waiting = self._waiting, []
        try:
            results = self._evaluate([request.step for request in requests])
            for request, result in zip(requests, results, strict=True):
                request.results.append(result)
        except BaseException as error:  # each thread must end its own reply
            for request in requests:
                request.error = error
        self._engine.notify_all()

    def _count(self, change: int) -> None:
        # Not under the engine's lock, which is held for seconds: steps must wait for a reply that waits for the lock.
        with self._counting:
            self._replies += change


class _Request(Generic[_Step, _Result]):
    def __init__(self, step: _Step) -> None:
        self.step = step
        self.results: list[_Result] = []
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return bool(self.results) or self.error is not None

    def result(self) -> _Result:
        if self.error is not None:
            raise self.error
        return self.results[0]
