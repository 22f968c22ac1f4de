"""Judges both orders of a pair: one after the other, or at once.

In either way an observer is told of them as if the second came after the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event as Flag
from threading import Lock

from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import Encoding, Event, Observe, Prefill, Waiting, Wrote
from vrt_lite.judge import Trial
from vrt_lite.protocol.verdict import Verdict
from vrt_lite.shortage import ThreadPool

JudgeOrder = Callable[[int, Observe], Trial]
"""Judges order 0 or 1, and tells an observer of it. Raises NoVerdictError."""


def judge_in_turn(
    judge_order: JudgeOrder, observe: Observe, *, skip_second: Callable[[Verdict], object]
) -> dict[int, Trial]:
    """Judge one order after the other; returns the trials of those with a verdict. NoVerdictError if none has one.

    The second is left out if `skip_second` is true of the first one's verdict.
    """
    found = [_try_order(judge_order, 0, observe)]
    if not (isinstance(found[0], Trial) and skip_second(found[0].verdict)):
        found.append(_try_order(judge_order, 1, observe))
    return _select_trials(found)


def judge_at_once(judge_order: JudgeOrder, observe: Observe) -> dict[int, Trial]:
    """Judge order 0 in this thread and order 1 in another; returns the same as `judge_in_turn`.

    The second begins when the first reads its first round, so that both write at the same time. Any other exception
    than NoVerdictError, of an order or of `observe`, ends both, and is raised when both have ended.
    """
    ordered = _OrderedObserver(observe)

    def run(order: int) -> Trial | NoVerdictError:
        try:
            if order:
                ordered.first_reads.wait()
            found = _try_order(judge_order, order, functools.partial(ordered.tell, order))
            ordered.end(order)
        except BaseException:
            ordered.stop()
            raise
        return found

    with ThreadPool(1) as pool:
        second = pool.submit(run, 1)
        try:
            first = run(0)
        except _StoppedError:
            second.result()  # raises what has stopped the first
            raise
        return _select_trials([first, second.result()])


def _try_order(judge_order: JudgeOrder, order: int, observe: Observe) -> Trial | NoVerdictError:
    """The trial of an order, or why it gave no verdict."""
    try:
        return judge_order(order, observe)
    except NoVerdictError as error:
        return error


def _select_trials(found: Sequence[Trial | NoVerdictError]) -> dict[int, Trial]:
    """The trials by order. NoVerdictError if there are none."""
    trials = {order: trial for order, trial in enumerate(found) if isinstance(trial, Trial)}
    for failure in found:
        if not trials and isinstance(failure, NoVerdictError):
            raise failure
    return trials


class _StoppedError(Exception):
    """The other order has failed."""


class _OrderedObserver:
    """Tells an observer of both orders, one event at a time.

    Rounds and words of the second order are told when the first has ended. Its progress is told at once.
    """

    def __init__(self, observe: Observe) -> None:
        self.first_reads = Flag()
        self._observe = observe
        self._lock = Lock()
        self._told = 0
        self._held: list[Event] = []
        self._stopped = False

    def tell(self, order: int, event: Event) -> None:
        """Tell of an event, now or later. Raises _StoppedError if an order has failed."""
        with self._lock:
            if self._stopped:
                raise _StoppedError
            if isinstance(event, Encoding | Prefill | Wrote):
                self.first_reads.set()
            if order == self._told or event == Wrote("") or isinstance(event, Waiting):
                self._pass_on(event)
            elif isinstance(event, Encoding | Prefill):
                self._pass_on(replace(event, order=order))
            else:
                self._held.append(event)

    def end(self, order: int) -> None:
        """Note that an order has ended. After the first, tell what was held."""
        with self._lock:
            if order or self._stopped:
                return
            self._told = 1
            for event in self._held:
                self._pass_on(event)
        self.first_reads.set()

    def _pass_on(self, event: Event) -> None:
        try:
            self._observe(event)
        except BaseException:
            # At once: this order may have to wait for the engine, which the other one uses, until it can end.
            self._stopped = True
            raise

    def stop(self) -> None:
        """Make both orders end at their next event."""
        with self._lock:
            self._stopped = True
        self.first_reads.set()
