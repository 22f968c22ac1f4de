"""Compares clips in a worker: a clip or a model that ends that process costs no other judgement.

What several pairs did when the process died is not known, so each of them is tried once more, alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil

from vrt_lite.backends import describe_machine
from vrt_lite.comparing import Comparer, PairToCompare
from vrt_lite.errors import ModelError, OutOfMemoryError, ShortageError, VideoError, WorkerEndedError, WorkerKilledError
from vrt_lite.interfaces import Observe, Stop, TimeRange, stop_in_force
from vrt_lite.machine import Machine
from vrt_lite.modes import WantedJudge, choose_mode
from vrt_lite.profile import Profile
from vrt_lite.records.judgement import Judgement
from vrt_lite.shortage import check_memory, explain_shortage, memory_limit
from vrt_lite.worker import Worker

if TYPE_CHECKING:
    from vrt_lite.pair_frames import ClipLook

_T = TypeVar("_T")
MOST_DEATHS: Final = 25
"""After so many pairs in a row at which the process died, it is not the pairs that are at fault."""
_TICK_SECONDS: Final = 0.2


class WorkerComparer:
    """Compares clips as a `Comparer` does, in a worker that begins when it is needed, and anew if it died."""

    def __init__(self, wanted: WantedJudge) -> None:
        self._wanted = wanted
        self._worker = Worker(_total_memory_bytes(), prints=wanted.verbose)
        self._gate = _Gate()
        self._deaths = 0
        self._has_judged = False

    def close(self) -> None:
        """End the process, whatever it does; no other begins."""
        self._worker.close()

    def describe_machine(self) -> Machine:
        """This machine, as the engine sees it there."""
        return self._worker.call(describe_machine)

    def plan(self) -> Profile:
        """As `Comparer.plan`. ModelError if the process dies of it."""
        try:
            return self._ask(Comparer.plan)
        except WorkerEndedError as error:
            raise ModelError(str(error)) from error

    def predict(self, clip: Path) -> TimeRange | None:
        """As `Judge.predict`; None if the process dies of it."""
        with contextlib.suppress(WorkerEndedError):
            return self._ask(Comparer.predict, clip)

    def look_at(self, clip: Path) -> ClipLook:
        """As `Judge.look_at`."""
        return self._ask_about(clip, Comparer.look_at)

    def measure(self, clip: Path) -> Mapping[str, float]:
        """As `Judge.measure`."""
        return self._ask_about(clip, Comparer.measure)

    def compare(self, wanted: PairToCompare, *, observe: Observe, stop: Stop) -> Judgement:
        """As `Judge.compare`. WorkerEndedError if the process died of this pair alone, ModelError if of every pair."""
        try:
            judgement = self._try_twice(_compare, self._wanted, wanted, observe=observe, stop=stop)
        except WorkerEndedError as error:
            self._deaths += 1
            if self._deaths < MOST_DEATHS:
                if self._has_judged or self._wanted.model is None:
                    raise
                raise WorkerEndedError(
                    f"{error} Nothing was judged with {self._wanted.model} yet: if its files are damaged, pull or copy "
                    "them again."
                ) from error
            raise ModelError(f"The judge's process ended at {self._deaths} pairs in a row, lastly: {error}") from error
        self._deaths, self._has_judged = 0, True
        return judgement

    def _ask(self, method: Callable[..., _T], *args: object) -> _T:
        """Call a method of the `Comparer` there."""
        return self._try_twice(_call, self._wanted, method, args)

    def _ask_about(self, clip: Path, method: Callable[[Comparer, Path], _T]) -> _T:
        """Call a method about a clip. VideoError for one that the process dies of."""
        try:
            return self._ask(method, clip)
        except WorkerEndedError as error:
            raise VideoError(clip, f"cannot be decoded: {error}") from error

    def _try_twice(self, function: Callable[..., _T], *args: object, stop: Stop | None = None, **options: Any) -> _T:
        """Call a function there, once more and alone if the process dies.

        OutOfMemoryError or ShortageError if it may have died for want of memory.
        """
        stop = stop or Stop()
        with contextlib.suppress(WorkerEndedError), self._gate.enter(stop, alone=False):
            return self._worker.call(function, *args, stop=stop, **options)
        with self._gate.enter(stop, alone=True):
            try:
                return self._worker.call(function, *args, stop=stop, **options)
            except WorkerKilledError as error:
                raise OutOfMemoryError(str(error)) from error
            except WorkerEndedError as error:
                # With a limit of address space an engine that cannot allocate ends its process.
                if short := ShortageError("memory") if memory_limit() else explain_shortage(error):
                    raise short from error
                raise


def _total_memory_bytes() -> int:
    """What this machine has: what asks for more is refused, before the system ends processes to make room."""
    return psutil.virtual_memory().total + psutil.swap_memory().total


class _Gate:
    """Many are inside at once, or one alone, whom newcomers let go first."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside = self._to_be_alone = 0
        self._closed = False

    @contextlib.contextmanager
    def enter(self, stop: Stop, *, alone: bool) -> Generator[None]:
        """Wait for a place, and have it during the block."""
        with self._changed:
            self._to_be_alone += alone
            try:
                while self._closed or (self._inside if alone else self._to_be_alone):
                    self._changed.wait(_TICK_SECONDS)
                    stop.check()
            finally:
                self._to_be_alone -= alone
            self._inside += 1
            self._closed = alone
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._closed = False
                self._changed.notify_all()


_opening = Lock()
_opened: list[Comparer] = []
"""In the worker: the judge, once it is opened."""


def _open(wanted: WantedJudge) -> Comparer:
    with _opening:
        if not _opened:
            check_memory()
            _opened.append(Comparer(choose_mode(wanted), wanted.settings, measures=wanted.measures))
        return _opened[0]


def _call(wanted: WantedJudge, method: Callable[..., _T], args: tuple[object, ...]) -> _T:
    return method(_open(wanted), *args)


def _compare(wanted: WantedJudge, pair: PairToCompare, *, observe: Observe) -> Judgement:
    return _open(wanted).compare(pair, observe=observe, stop=stop_in_force())
