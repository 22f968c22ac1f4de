"""A judge whose engine runs in a process of its own: a pair at which that process dies costs no other judgement."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from vrt_lite.api import Judge
from vrt_lite.disk import file_sha256
from vrt_lite.errors import EngineEndedError, ModelError, ShortageError, VrtError
from vrt_lite.fitting.predicted_time import Prediction
from vrt_lite.interfaces import Observe, Stop, ignore
from vrt_lite.judgement import Judgement
from vrt_lite.models import ModelFiles
from vrt_lite.settings import Settings
from vrt_lite.shortage import limit_heaps, memory_limit, shortage_of
from vrt_lite.tuning.child import ChildProcess

if TYPE_CHECKING:
    from vrt_lite.tuning.child import Pipe

MOST_DEATHS: Final = 25
"""After so many pairs in a row at which the engine died, it is not the pairs that are at fault."""
_TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Digests:
    """Finds digests of files with `compute`, each once. A copy in another process computes only what is not `known`."""

    compute: Callable[[Path], str] = file_sha256
    known: dict[Path, str] = field(default_factory=dict[Path, str])

    def __call__(self, path: Path) -> str:
        """Return a file's sha256."""
        if path not in self.known:
            self.known[path] = self.compute(path)
        return self.known[path]


@dataclass(frozen=True, slots=True)
class LocalJudge:
    """What opens a judge on this machine, here or in another process."""

    model: str | Path | None
    projector: Path | None
    settings: Settings
    verbose: bool
    known: dict[Path, str]

    def __call__(self) -> Judge:
        """Open the judge."""
        return Judge(
            self.model,
            projector=self.projector,
            settings=self.settings,
            digest=Digests(known=self.known),
            verbose=self.verbose,
        )


class JudgeProcess:
    """A judge like `here`, opened by `open_judge` in a process of its own when it is first needed; a context manager.

    `open_judge` must be a value that can be pickled. If the process dies at a pair, a new one tries the pair once more.
    With `prints` it prints here what the engine prints.
    """

    def __init__(self, here: Judge, open_judge: Callable[[], Judge], *, prints: bool = False) -> None:
        self._here = here
        self._open_judge = open_judge
        self._prints = prints
        self._child: ChildProcess | None = None
        self._deaths = 0

    def __enter__(self) -> JudgeProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._end()
        self._here.close()

    @property
    def files(self) -> ModelFiles | None:
        """The model's files."""
        return self._here.files

    @property
    def scope(self) -> str:
        """As `Judge.scope`."""
        return self._here.scope

    def connect(self, observe: Observe = ignore, *, stop: Stop | None = None) -> None:
        """Nothing to ask: the judge is on this machine."""

    def key(self) -> str:
        """As `Judge.key`; it starts no process."""
        return self._here.key()

    def describe(self) -> dict[str, str]:
        """As `Judge.describe`."""
        return self._here.describe()

    def key_here(self) -> str:
        """As `Judge.key_here`. Raises OutOfMemoryError."""
        return self._ask(None, ignore, Stop())

    def measure(self, clip: Path) -> Mapping[str, float]:
        """As `Judge.measure`."""
        return self._here.measure(clip)

    def predict(self, clip: Path) -> Prediction | None:
        """As `Judge.predict`; None if the process dies."""
        try:
            return self._ask(clip, ignore, Stop())
        except EngineEndedError:
            return None

    def compare(
        self, a: Path, b: Path, *, prompt: str = "", observe: Observe = ignore, stop: Stop | None = None
    ) -> Judgement:
        """Judge two clips made from one prompt. Raises what `Judge.compare` raises. `stop` ends the process.

        EngineEndedError if the process died at this pair, and a new one too; ModelError if it dies at every pair;
        ShortageError if it may have died for lack of memory.
        """
        try:
            judged = self._try_twice((a, b, prompt), observe, stop or Stop())
        except EngineEndedError as error:
            self._deaths += 1
            if self._deaths < MOST_DEATHS:
                raise
            raise ModelError(
                f"The engine ended at {self._deaths} pairs in a row, lastly: {error}. Check it: vrt-lite doctor"
            ) from error
        self._deaths = 0
        return judged

    def _try_twice(self, question: tuple[Path, Path, str], observe: Observe, stop: Stop) -> Judgement:
        try:
            return self._ask(question, observe, stop)
        except EngineEndedError:
            return self._ask(question, observe, stop)

    def _ask(self, question: tuple[Path, Path, str] | Path | None, observe: Observe, stop: Stop) -> Any:
        """Return the answer of the process, which is started if there is none; pass its events on."""
        child = self._child or self._start()
        try:
            child.send(question)
            while not isinstance(said := _next_message(child, stop), _Answer):
                observe(said)
        except EngineEndedError as error:
            self._end()
            raise _shortage_behind(error) or error from None
        except BaseException:
            self._end()  # it is not waited for
            raise
        if isinstance(said.value, BaseException):
            raise said.value
        return said.value

    def _start(self) -> ChildProcess:
        """Start the process. A process that does not begin says nothing about a pair: ModelError."""
        child = self._child = ChildProcess(_answer_questions, self._open_judge, prints=self._prints)
        try:
            while not isinstance(said := _next_message(child, Stop()), _Answer):
                pass
        except EngineEndedError as error:
            self._end()
            raise _shortage_behind(error) or ModelError(
                f"The judge's process does not start: {error}. Check it: vrt-lite doctor"
            ) from error
        except BaseException:
            self._end()
            raise
        if isinstance(said.value, BaseException):
            self._end()
            raise said.value
        return child

    def _end(self) -> None:
        if self._child:
            child, self._child = self._child, None
            child.close()


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a question, in contrast to an event: a value, or an error."""

    value: Any


def _next_message(child: ChildProcess, stop: Stop) -> Any:
    """Return what the process sends next. Raises the error of `stop` if that is set before."""
    while not child.has_sent(seconds=_TICK_SECONDS):
        stop.check()
    stop.check()
    return child.receive()


def _shortage_behind(error: EngineEndedError) -> ShortageError | None:
    """Return the shortage for which the process may have died: an engine that cannot allocate memory ends."""
    return ShortageError("memory") if memory_limit() else shortage_of(error)


def _answer_questions(pipe: Pipe, open_judge: Callable[[], Judge]) -> None:
    """In the process: say that the judge is open, and then answer each question, with its events before."""
    limit_heaps()
    try:
        with open_judge() as judge:
            pipe.send(_Answer(None))
            while True:
                question = pipe.recv()
                try:
                    if question is None:
                        answer = judge.key_here()
                    elif isinstance(question, Path):
                        answer = judge.predict(question)
                    else:
                        a, b, prompt = question
                        answer = judge.compare(a, b, prompt=prompt, observe=pipe.send)
                except Exception as error:
                    answer = _portable(error)
                pipe.send(_Answer(answer))
    except Exception as error:
        pipe.send(_Answer(_portable(error)))


def _portable(error: Exception) -> Exception:
    """Return the error, or one that tells the same and can be pickled; a shortage if that is its cause."""
    if isinstance(error, VrtError):
        return error
    if short := shortage_of(error):
        return short
    told = RuntimeError(f"{type(error).__name__}: {error}")
    told.add_note(traceback.format_exc())
    return told
