"""Judges the pairs of a run that are not judged yet: each question once, several at a time.

Each pair is looked up in the store, claimed so that no other process judges it, judged, and kept.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from vrt_lite.errors import NoVerdictError, StoreError, VideoError, WorkerEndedError
from vrt_lite.interfaces import Observe, Stop, TimeRange, ignore
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Question, Result, derive_result, failure_of
from vrt_lite.runs.store import Run, Store
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.pair_frames import ClipLook

_MOST_CLAIMED_ELSEWHERE = 64
_POLL_SECONDS = 0.2


class PairJudge(Protocol):
    """What judges pairs: a `Judge`, or one that is lent to a job."""

    @property
    def scope(self) -> str:
        """As `Judge.scope`."""
        ...

    @property
    def pointwise(self) -> bool:
        """As `Judge.pointwise`."""
        ...

    def key(self) -> str:
        """As `Judge.key`."""
        ...

    def describe(self) -> dict[str, str]:
        """As `Judge.describe`."""
        ...

    def key_here(self) -> str:
        """As `Judge.key_here`."""
        ...

    def look_at(self, clip: Path) -> ClipLook:
        """As `Judge.look_at`."""
        ...

    def measure(self, clip: Path) -> Mapping[str, float]:
        """As `Judge.measure`."""
        ...

    def predict(self, clip: Path) -> TimeRange | None:
        """As `Judge.predict`."""
        ...

    def compare(self, a: Path, b: Path, *, prompt: str, observe: Observe, stop: Stop) -> Judgement:
        """As `Judge.compare`."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A pair to be judged, `first` shown as video 1, or one clip. `label` is the caller's own."""

    first: Path
    second: Path | None
    prompt: str
    label: Any = None


def judge_all(
    tasks: Iterator[Task | None],
    run: Run,
    *,
    store: Store,
    judge: PairJudge,
    jobs: int = 1,
    done: Callable[[Task, Result, bool], None],
    observe: Observe = ignore,
) -> None:
    """Judge every task that is not judged yet.

    A task is taken from `tasks` when it can be judged at once, so that a generator can use the earlier results. None
    means that there is none now: the next is taken a moment later.
    `done` is called in this thread with each result, and whether it was judged now (True) or found (False). A question
    that another process has claimed is waited for: its result is found once that process has it. A question that a
    process had claimed when it died comes last: if a pair ends the process, all others are judged before.

    The judge compares `jobs` pairs at once, each in its own thread. Without a task the judge is not used, not even its
    key. `observe` gets the events of one pair's work; with several jobs it gets none.

    NoVerdictError, VideoError and WorkerEndedError are kept as failures. A clip that cannot even be read is a failure
    that is not kept, as the clip may be there the next time. Any other VrtError ends the work once the pairs in
    progress are done; an interrupt ends it at once. What was judged is kept, whatever happens.
    """
    with _Workers(run, store, judge, jobs, observe) as workers:
        claimed_elsewhere: list[tuple[Task, Question]] = []
        judge_key = functools.cache(judge.key_here)

        def start_or_find(task: Task, question: Question, *, take_over: bool) -> bool:
            """Return whether the task is done or is being judged; otherwise it must wait."""
            if result := run.result(question):
                done(task, result, False)
                return True
            return workers.start(task, question, take_over=take_over)

        def wait_a_little(*, take_over: bool) -> None:
            for task, result in workers.wait():
                done(task, result, True)
            claimed_elsewhere[:] = [
                waiting for waiting in claimed_elsewhere if not start_or_find(*waiting, take_over=take_over)
            ]

        for task in tasks:
            if task is None:
                wait_a_little(take_over=True)
                continue
            try:
                question = _question(task, store, judge_key())
            except VideoError as error:
                done(task, failure_of(Question("", "", task.prompt, ""), error), True)
                continue
            if not start_or_find(task, question, take_over=False):
                claimed_elsewhere.append((task, question))
            while workers.all_busy or len(claimed_elsewhere) >= _MOST_CLAIMED_ELSEWHERE:
                wait_a_little(take_over=len(claimed_elsewhere) >= _MOST_CLAIMED_ELSEWHERE)
        while workers.any_busy or claimed_elsewhere:
            wait_a_little(take_over=True)


class _Workers:
    """The threads that judge; a context manager that ends when the pairs in progress are done.

    An interrupt ends what they do.
    """

    def __init__(self, run: Run, store: Store, judge: PairJudge, jobs: int, observe: Observe) -> None:
        self._run = run
        self._store = store
        self._judge = judge
        self._jobs = jobs
        self._observe = observe if jobs == 1 else ignore
        self._pool = ThreadPool(jobs)
        self._in_progress: dict[Future[Result], Task] = {}
        self._starting = Lock()
        self._stop = Stop()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._stop.set(error)
            # At once: the process may end before its threads do, and the pairs they judge are not to blame for it.
            with contextlib.suppress(StoreError):
                self._store.release_claims()
        try:
            while self.any_busy:
                self._take_done()
        finally:
            self._pool.shutdown()

    @property
    def any_busy(self) -> bool:
        """Whether a pair is being judged."""
        return bool(self._in_progress)

    @property
    def all_busy(self) -> bool:
        """Whether no more pairs can be judged at the same time."""
        return len(self._in_progress) >= self._jobs

    def start(self, task: Task, question: Question, *, take_over: bool) -> bool:
        """Claim and judge a question; False if all are busy, or someone else is judging it, here or elsewhere."""
        by_clips = task.second is not None and self._judge.pointwise
        if self.all_busy or not (by_clips or self._run.claim(question, take_over=take_over)):
            return False
        work = self._judge_clips if by_clips else self._judge_claimed
        with self._starting:
            self._in_progress[self._pool.submit(self._work, work, task, question)] = task
        return True

    def wait(self) -> list[tuple[Task, Result]]:
        """Wait a moment, and return what was judged by then. Raises what ended a thread's work."""
        if not self._in_progress:
            sleep(_POLL_SECONDS)
        return [(task, future.result()) for future, task in self._take_done()]

    def _take_done(self) -> list[tuple[Future[Result], Task]]:
        # A short wait, as on Windows an interrupt cannot break one.
        done = wait(self._in_progress, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done
        return [(future, self._in_progress.pop(future)) for future in done]

    def _work(self, work: Callable[[Task, Question], Result], task: Task, question: Question) -> Result:
        with self._starting:
            pass  # wait until `start` has noted this pair: an interrupt must find it in progress
        return work(task, question)

    def _judge_clips(self, task: Task, question: Question) -> Result:
        """Judge each clip of a pair by itself, unless it is judged already; return what follows for the pair."""
        found: list[Result] = []
        for path, of_clip in zip((task.first, task.second), question.of_clips, strict=True):
            clip = Task(path or task.first, None, task.prompt)
            while not (result := self._run.result(of_clip)):
                self._stop.check()
                if self._run.claim(of_clip):
                    result = self._judge_claimed(clip, of_clip)
                    break
                sleep(_POLL_SECONDS)  # another is judging it
            if result.key != of_clip.key:
                return failure_of(question, VideoError(clip.first, "was changed while it was judged"))
            found.append(result)
        return self._run.result(question) or derive_result(*found)

    def _judge_claimed(self, task: Task, question: Question) -> Result:
        try:
            return self._judge_question(task, question)
        finally:
            with contextlib.suppress(StoreError):
                self._run.release(question)

    def _judge_question(self, task: Task, question: Question) -> Result:
        """Judge and keep. A clip that was replaced meanwhile is kept as what it was when it was judged."""
        try:
            judgement = self._judge.compare(
                task.first, task.second or task.first, prompt=task.prompt, observe=self._observe, stop=self._stop
            )
        except (NoVerdictError, VideoError, WorkerEndedError) as error:
            is_kept = self._is_unchanged(task, question)
            return self._run.add_failure(question, error) if is_kept else failure_of(question, error)
        if not self._is_unchanged(task, question):
            first, second = (clip.sha256 for clip in judgement.inputs)
            question = replace(question, first=first, second=second if task.second else "")
        return self._run.add(question, judgement)

    def _is_unchanged(self, task: Task, question: Question) -> bool:
        with contextlib.suppress(VideoError):
            return _question(task, self._store, question.judge) == question
        return False


def _question(task: Task, store: Store, judge_key: str) -> Question:
    """Return what a task asks, by content; VideoError if a clip cannot be read."""
    second = store.digest(task.second) if task.second else ""
    return Question(store.digest(task.first), second, task.prompt, judge_key)
