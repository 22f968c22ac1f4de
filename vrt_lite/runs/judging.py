"""Judges the pairs of a run that are not judged yet: each question once, several at a time. Predicts how long it takes.

Each pair is looked up in the store, claimed so that no other process judges it, judged, and kept.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from vrt_lite.errors import NoVerdictError, StoreError, VideoError, WorkerEndedError
from vrt_lite.interfaces import Observe, Stop, TimeRange, ignore
from vrt_lite.records.pairs import Question, Result, derive_result, result_of
from vrt_lite.runs.store import Run, Store
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.api import Judge

_MOST_CLAIMED_ELSEWHERE = 64
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """A pair to be judged, `first` shown as video 1, or one clip. `label` is the caller's own."""

    first: Path
    second: Path | None
    prompt: str
    label: Any = None


def judge_all(
    tasks: Iterator[Task],
    run: Run,
    *,
    store: Store,
    judge: Judge,
    jobs: int = 1,
    done: Callable[[Task, Result, bool], None],
    observe: Observe = ignore,
    stop: Stop | None = None,
) -> None:
    """Judge every task that is not judged yet, `jobs` of them at once, each in its own thread.

    A task is taken from `tasks` when it can be judged at once, so that a generator can use the earlier results. `done`
    is called in this thread with each result, and whether it was judged now (True) or found (False). What another
    process has claimed is waited for. A question that a process had claimed when it died comes last: if a pair ends the
    process, all others are judged before. Without a task the judge is not used, not even its key. `observe` gets the
    events of one pair's work; with several jobs it gets none. Another thread may end all with `stop`.

    NoVerdictError, VideoError and WorkerEndedError are kept as failures. A clip that cannot even be read is a failure
    that is not kept. Any other VrtError ends the work once the pairs in progress are done, an interrupt at once.
    """
    work = _Work(run, store, judge, observe if jobs == 1 else ignore, stop or Stop())
    judge_key = functools.cache(judge.key_here)
    in_progress, claimed_elsewhere = dict[Future[Result], Task](), list[tuple[Task, Question]]()

    def start_or_find(task: Task, question: Question, *, take_over: bool) -> bool:
        """Return whether the task is done or is being judged; otherwise it must wait."""
        if result := run.result(question):
            done(task, result, False)
            return True
        if len(in_progress) == jobs or not work.claim(task, question, take_over=take_over):
            return False
        with work.starting:
            in_progress[pool.submit(work.judge_task, task, question)] = task
        return True

    def wait_a_little(*, take_over: bool) -> None:
        work.stop.check()
        if not in_progress:
            sleep(_POLL_SECONDS)
        # A short wait, as on Windows an interrupt cannot break one.
        for future in wait(in_progress, _POLL_SECONDS, FIRST_COMPLETED).done:
            done(in_progress.pop(future), future.result(), True)
        claimed_elsewhere[:] = [of for of in claimed_elsewhere if not start_or_find(*of, take_over=take_over)]

    with work.open_pool(jobs) as pool:
        for task in tasks:
            try:
                question = _question(task, store, judge_key())
            except VideoError as error:
                done(task, result_of(Question("", "", task.prompt, ""), error), True)
                continue
            if not start_or_find(task, question, take_over=False):
                claimed_elsewhere.append((task, question))
            while len(in_progress) == jobs or len(claimed_elsewhere) >= _MOST_CLAIMED_ELSEWHERE:
                wait_a_little(take_over=len(claimed_elsewhere) >= _MOST_CLAIMED_ELSEWHERE)
        while in_progress or claimed_elsewhere:
            wait_a_little(take_over=True)


class RunClock:
    """The time of a run: that of its judgements so far, before the first one what is `predicted` of each, if anything.

    `jobs` are made at once.
    """

    def __init__(self, predicted: TimeRange | None, *, jobs: int = 1) -> None:
        self._predicted, self._jobs = predicted, jobs
        self._seconds: list[float] = []

    def add(self, seconds: float) -> None:
        """Add a judgement that took so long."""
        self._seconds.append(seconds)

    def predict(self, left: int) -> TimeRange | None:
        """Between what the judgements that are left will take; None if that is not known yet."""
        mean = fmean(self._seconds) if self._seconds else None
        each = TimeRange(mean, mean) if mean else self._predicted
        return each and each.times(left / self._jobs)

    def seconds_left(self, left: int) -> float | None:
        """About the seconds until the last judgement is made; None if that is not known yet."""
        predicted = self.predict(left)
        return predicted and predicted.middle


@dataclass(frozen=True, slots=True)
class _Work:
    """What a thread does with a task: it judges, and keeps what came of it.

    `stop` ends it. `starting` is held while a thread is started.
    """

    run: Run
    store: Store
    judge: Judge
    observe: Observe
    stop: Stop
    starting: Lock = field(default_factory=Lock)

    @contextlib.contextmanager
    def open_pool(self, jobs: int) -> Generator[ThreadPool]:
        """Yield the threads, and wait for them; an interrupt ends what they do."""
        pool = ThreadPool(jobs)
        try:
            yield pool
        except KeyboardInterrupt as interrupt:
            self.stop.set(interrupt)
            # At once: the process may end before its threads do, and the pairs they judge are not to blame for it.
            with contextlib.suppress(StoreError):
                self.store.release_claims()
            raise
        finally:
            pool.shutdown()

    def claim(self, task: Task, question: Question, *, take_over: bool) -> bool:
        """Claim a question; of a pair whose clips are judged by themselves, each clip is claimed later."""
        return self._is_of_clips(task) or self.run.claim(question, take_over=take_over)

    def judge_task(self, task: Task, question: Question) -> Result:
        """Judge a task that was claimed, or each clip of its pair that is not judged yet."""
        with self.starting:
            pass  # wait until it is noted that this task is in progress: an interrupt must find it
        if not self._is_of_clips(task):
            return self._judge_claimed(task, question)
        clips = zip((task.first, task.second), question.of_clips, strict=True)
        derived = derive_result(
            *(self._judge_clip(Task(path or task.first, None, task.prompt), of) for path, of in clips)
        )
        return self.run.result(question) or derived

    def _is_of_clips(self, task: Task) -> bool:
        return task.second is not None and self.judge.pointwise

    def _judge_clip(self, clip: Task, question: Question) -> Result:
        """Judge one clip, or wait until another has judged it."""
        while not (result := self.run.result(question)):
            self.stop.check()
            if self.run.claim(question):
                return self._judge_claimed(clip, question)
            sleep(_POLL_SECONDS)
        return result

    def _judge_claimed(self, task: Task, question: Question) -> Result:
        """Judge and keep. A clip that was replaced meanwhile is kept as what it was when it was judged."""
        first, second = task.first, task.second or task.first
        try:
            judgement = self.judge.compare(first, second, prompt=task.prompt, observe=self.observe, stop=self.stop)
        except (NoVerdictError, VideoError, WorkerEndedError) as error:
            keep = self.run.add if self._is_unchanged(task, question) else result_of
            return keep(question, error)
        else:
            one, two = (clip.sha256 for clip in judgement.inputs)
            answered = replace(question, first=one, second=two if task.second else "")
            return self.run.add(question if self._is_unchanged(task, question) else answered, judgement)
        finally:
            with contextlib.suppress(StoreError):
                self.run.release(question)

    def _is_unchanged(self, task: Task, question: Question) -> bool:
        with contextlib.suppress(VideoError):
            return _question(task, self.store, question.judge) == question
        return False


def _question(task: Task, store: Store, judge_key: str) -> Question:
    """Return what a task asks, by content; VideoError if a clip cannot be read."""
    second = store.digest(task.second) if task.second else ""
    return Question(store.digest(task.first), second, task.prompt, judge_key)
