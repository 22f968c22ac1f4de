"""Judges what a run asks for: each question once, as many at once as may be, and by no other process meanwhile.

Knows the order of things: look it up, claim it, judge it, keep it, say so. Refuses to know why a pair is asked for.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from vrt_lite.errors import NoVerdictError, StoreError, VideoError
from vrt_lite.interfaces import Event as Happening
from vrt_lite.interfaces import Observe, ignore
from vrt_lite.runs.claims import BEAT_SECONDS
from vrt_lite.runs.judged import Question, Result, result_of
from vrt_lite.runs.store import Run, Store

if TYPE_CHECKING:
    from vrt_lite.api import Judge

PATIENCE_SECONDS = 600.0
"""Whoever has a question and shows no sign of life for so long has lost it, even if the process is there."""
_AWAITED = 64
_POLL_SECONDS = 0.2
_LEAVING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Task:
    """A pair to be judged, `first` shown as video 1. `label` is the asker's own."""

    first: Path
    second: Path
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
    judge_key: str | None = None,
) -> None:
    """Judge every task that is not judged yet.

    A task is pulled when it can be judged at once, so that a generator may choose by what `done` was told before;
    `done` is called in this thread, and is told whether it was judged now (True) or found (False). A question that
    another process has claimed is come back to: its result is found once that process has it.

    The judge is asked for `jobs` pairs at once, each from a thread of its own; it is not asked at all if everything is
    found. `judge_key` is its `key()`, if that is known already. `observe` is told of one pair's work, not of several.

    NoVerdictError and VideoError are kept as failures; a clip that cannot even be read is told to `done` and not kept,
    as it may be there the next time. Any other VrtError ends the work, once the pairs being judged are done, and so
    does an interrupt, at once. What was judged is kept, whatever happens.
    """
    key = judge_key or judge.key()
    with _Crew(run, store, judge, jobs, observe) as crew, _signs_of_life(store):
        work = _Work(run, store, crew, key, done)
        for task in tasks:
            work.take(task)
            while crew.full or len(work.awaited) >= _AWAITED:
                work.wait()
        while crew.busy or work.awaited:
            work.wait()


@dataclass(slots=True)
class _Awaited:
    """A task whose question someone else is at; the last sign of life seen, and when, by our clock."""

    task: Task
    question: Question
    beat: float | None
    since: float


class _Work:
    """The asking side: looks up, claims, hands over, and comes back to what others have claimed."""

    def __init__(
        self, run: Run, store: Store, crew: _Crew, judge_key: str, done: Callable[[Task, Result, bool], None]
    ) -> None:
        self.awaited: list[_Awaited] = []
        self._run = run
        self._store = store
        self._crew = crew
        self._key = judge_key
        self._done = done

    def take(self, task: Task) -> None:
        """A task: found, or handed to a free thread, or awaited."""
        try:
            question = _asked(task, self._store, self._key)
        except VideoError as error:
            nobody = Question("", "", task.prompt, "")
            self._done(task, result_of(nobody, None, error=str(error)), True)
            return
        waiting = _Awaited(task, question, beat=None, since=time.monotonic())
        if not self._settled(waiting):
            self.awaited.append(waiting)

    def wait(self) -> None:
        """Wait a little for a judge or another process; say what came of it."""
        if finished := self._crew.finished(_POLL_SECONDS):
            self._done(*finished, True)
        self.awaited = [waiting for waiting in self.awaited if not self._settled(waiting)]

    def _settled(self, waiting: _Awaited) -> bool:
        """Whether the task was found or handed to a judge."""
        task, question, crew = waiting.task, waiting.question, self._crew
        if result := self._run.result(question):
            self._done(task, result, False)
            return True
        if crew.full or crew.has(question) or not self._run.claim(question, force=self._lost(waiting)):
            return False
        crew.start(task, question)
        return True

    def _lost(self, waiting: _Awaited) -> bool:
        """Whether the claim has shown no sign of life for longer than can be."""
        beat = self._run.claimed(waiting.question)
        if beat != waiting.beat:
            waiting.beat, waiting.since = beat, time.monotonic()
        return time.monotonic() - waiting.since > PATIENCE_SECONDS


class _Crew:
    """The judging side: a thread a job, each begun when all others are at work. A context manager."""

    def __init__(self, run: Run, store: Store, judge: Judge, jobs: int, observe: Observe) -> None:
        self._run = run
        self._store = store
        self._judge = judge
        self._jobs = jobs
        self._observe = observe if jobs == 1 else ignore
        self._threads: list[Thread] = []
        self._at_work: set[str] = set()
        self._asked: queue.SimpleQueue[tuple[Task, Question] | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[tuple[Task, Question, Result | BaseException]] = queue.SimpleQueue()
        self._stop = Event()

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        """Let them end what they are at; an interrupt, also one that comes now, makes them stop."""
        try:
            if isinstance(error, KeyboardInterrupt):
                self._stop.set()
            while self.busy and not self._stop.is_set():
                with contextlib.suppress(queue.Empty):
                    _, question, _ = self._ended.get(timeout=_POLL_SECONDS)
                    self._at_work.discard(question.key)
        finally:
            self._stop.set()
            for _ in self._threads:
                self._asked.put(None)
            until = time.monotonic() + _LEAVING_SECONDS
            for thread in self._threads:
                thread.join(max(until - time.monotonic(), 0))

    @property
    def busy(self) -> bool:
        """Whether a pair is being judged."""
        return bool(self._at_work)

    @property
    def full(self) -> bool:
        """Whether all threads are at work."""
        return len(self._at_work) >= self._jobs

    def has(self, question: Question) -> bool:
        """Whether this question is being judged here."""
        return question.key in self._at_work

    def start(self, task: Task, question: Question) -> None:
        """Have a claimed question judged."""
        if len(self._at_work) == len(self._threads):
            self._threads.append(Thread(target=self._judging, daemon=True))
            self._threads[-1].start()
        self._at_work.add(question.key)
        self._asked.put((task, question))

    def finished(self, seconds: float) -> tuple[Task, Result] | None:
        """What was judged and kept, if that happens within so many seconds; raises what ended a thread's work."""
        if not self.busy:
            time.sleep(seconds)
            return None
        try:
            task, question, result = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        self._at_work.discard(question.key)
        if isinstance(result, BaseException):
            raise result
        return task, result

    def _judging(self) -> None:
        while (asked := self._asked.get()) and not self._stop.is_set():
            task, question = asked
            try:
                self._ended.put((task, question, self._judged(task, question)))
            except BaseException as error:  # it is raised again where the work was asked for
                with contextlib.suppress(StoreError):
                    self._run.release(question)
                self._ended.put((task, question, error))

    def _judged(self, task: Task, question: Question) -> Result:
        """Judge and keep. A clip that was replaced meanwhile is kept as what it was when it was judged."""
        try:
            judged = self._judge.compare(task.first, task.second, prompt=task.prompt, observe=self._watched)
        except (NoVerdictError, VideoError) as error:
            if not self._unchanged(task, question):
                self._run.release(question)
                return result_of(question, None, error=str(error))
            return self._run.add(question, None, error=str(error))
        judgement = judged.to_json()
        if self._unchanged(task, question):
            return self._run.add(question, judgement)
        self._run.release(question)
        first, second = (clip["sha256"] for clip in judgement["inputs"])
        return self._run.add(replace(question, first=first, second=second), judgement)

    def _unchanged(self, task: Task, question: Question) -> bool:
        with contextlib.suppress(VideoError):
            return _asked(task, self._store, question.judge) == question
        return False

    def _watched(self, event: Happening) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._observe(event)


def _asked(task: Task, store: Store, judge_key: str) -> Question:
    """What a task asks, by content; VideoError if a clip cannot be read."""
    return Question(store.digest(task.first), store.digest(task.second), task.prompt, judge_key)


@contextlib.contextmanager
def _signs_of_life(store: Store) -> Generator[None]:
    """Give them as long as the block lasts."""
    over = Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            with contextlib.suppress(StoreError):
                store.beat()

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
