"""Opens back ends, and imports each one only then: importing this package imports no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from vrt_lite.errors import OutOfMemoryError, Warned
from vrt_lite.interfaces import Backend, FrameStore, Observe, check_stops
from vrt_lite.judge import Answer, Ask, answer_with
from vrt_lite.protocol.messages import Reply
from vrt_lite.records.judgement import EngineUsed, ModelUsed, ServerUsed
from vrt_lite.scheduler import Seats, Work

if TYPE_CHECKING:
    from vrt_lite.backends.http import HttpBackend
    from vrt_lite.backends.llamacpp import Lane, LlamaCppBackend
    from vrt_lite.embeddings import EmbeddingCache
    from vrt_lite.machine import EngineSettings, Machine, MachineMemory
    from vrt_lite.models import ModelFiles
    from vrt_lite.profile import Profile
    from vrt_lite.settings import Remote

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Used:
    """What judged, for the record, and what a reader of its verdict must know of how it ran."""

    model: ModelUsed
    backend: ServerUsed | None = None
    engine: EngineUsed | None = None
    warnings: tuple[Warned, ...] = ()


def open_backend(
    files: ModelFiles, *, profile: Profile, settings: EngineSettings, cache: EmbeddingCache | None = None
) -> LlamaCppBackend:
    """The llama.cpp back end for a GGUF pair. Raises ModelError, OutOfMemoryError."""
    from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: PLC0415

    return LlamaCppBackend(files.text, files.projector, profile=profile, settings=settings, cache=cache)


class Engine(Protocol):
    """What judges, ready for trials."""

    @property
    def at_once(self) -> bool:
        """Whether both orders of a pair may be judged at once."""
        ...

    def run(self, trial: Callable[[Answer], Work[_Result]], frames: FrameStore) -> Work[_Result]:
        """Run a trial with its answers, as soon as there is a place for it."""
        ...


@dataclass(frozen=True, slots=True)
class BackendEngine:
    """A back end that has its own queue: each trial gets its replies."""

    backend: Backend
    at_once: bool = False

    def run(self, trial: Callable[[Answer], Work[_Result]], frames: FrameStore) -> Work[_Result]:
        """Run a trial with the back end's replies."""
        return trial(answer_with(self.backend, frames))


class SharedEngine:
    """The llama.cpp back end that several trials share, each in a sequence of its own.

    It is opened with the first of several settings, and with the next ones if memory cannot be allocated: then every
    trial asks again for the reply that it waits for. `settings` are those in force. To be closed, when nothing uses it.
    """

    at_once = True

    def __init__(
        self,
        open_with: Callable[[EngineSettings], LlamaCppBackend],
        choices: Sequence[EngineSettings],
        *,
        submit: Callable[[Callable[[], LlamaCppBackend]], Future[LlamaCppBackend]],
        advice: str,
    ) -> None:
        """`submit` runs a function in a thread: loading takes long. `advice` says what takes less than all choices."""
        self._open_with = open_with
        self._choices = choices
        self._chosen = 0
        self._submit = submit
        self._advice = advice
        self._opening: Future[LlamaCppBackend] | None = None
        self._opened: _Opened | None = None

    @property
    def settings(self) -> EngineSettings:
        """The settings that it runs with."""
        return self._choices[self._chosen]

    def start(self) -> Future[LlamaCppBackend]:
        """Start to load the model, unless that was done."""
        if self._opening is None:
            self._opening = self._submit(self._load)
        return self._opening

    def open(self) -> Work[_Opened]:
        """Wait until the model is loaded. Raises ModelError, OutOfMemoryError; then the next one tries again."""
        while self._opened is None:
            opening = self.start()
            try:
                backend = yield opening
            except BaseException:
                if opening is self._opening and opening.done() and opening.exception():
                    self._opening = None
                raise
            if opening is self._opening and self._opened is None:
                self._opened = _Opened(backend, Seats(backend.lanes))
        return self._opened

    def run(self, trial: Callable[[Answer], Work[_Result]], frames: FrameStore) -> Work[_Result]:
        """Run a trial with the engine's answers, as soon as a sequence is free."""
        seat: tuple[_Opened, Lane] | None = yield from self._take_seat()

        def answer(ask: Ask, observe: Observe) -> Work[Reply]:
            nonlocal seat
            while True:
                seat = seat or (yield from self._take_seat())
                opened, lane = seat
                try:
                    return (
                        yield from opened.backend.answer(
                            lane, ask.conversation, frames, sampling=ask.sampling, observe=observe
                        )
                    )
                except OutOfMemoryError as error:
                    seat = None
                    check_stops()  # the error may be what ends this trial
                    self._replace(opened, error)

        try:
            return (yield from trial(answer))
        finally:
            if seat:
                opened, lane = seat
                opened.seats.give_back(lane)

    def close(self) -> None:
        """Free the model."""
        opening, self._opening, self._opened = self._opening, None, None
        if opening and not opening.exception():
            opening.result().close()

    def _load(self) -> LlamaCppBackend:
        """Open the back end with the first of the remaining settings for which there is memory."""
        while True:
            try:
                return self._open_with(self.settings)
            except OutOfMemoryError:
                if self._chosen + 1 == len(self._choices):
                    raise
                self._chosen += 1

    def _take_seat(self) -> Work[tuple[_Opened, Lane]]:
        while True:
            opened = yield from self.open()
            if lane := (yield from opened.seats.take()):
                return opened, lane

    def _replace(self, failed: _Opened, error: OutOfMemoryError) -> None:
        """Close what has failed, unless another trial did; the next one to use it opens it with the next settings.

        Raises OutOfMemoryError if there are none.
        """
        if self._opened is not failed:
            return
        self._opening = self._opened = None
        failed.backend.close()
        failed.seats.close()
        if self._chosen + 1 == len(self._choices):
            raise OutOfMemoryError(f"{error} {self._advice}".strip()) from error
        self._chosen += 1


@dataclass(frozen=True, eq=False, slots=True)
class _Opened:
    """The back end, and its sequences for the trials."""

    backend: LlamaCppBackend
    seats: Seats[Lane]


def open_remote(remote: Remote, *, profile: Profile) -> HttpBackend:
    """The HTTP back end for a server; nothing is sent to it yet. UsageError for a key that is not valid."""
    from vrt_lite.backends.http import HttpBackend  # noqa: PLC0415

    return HttpBackend(remote, profile=profile)


def describe_machine() -> Machine:
    """This machine, as the engine sees it. Loads the engine."""
    from vrt_lite.backends.llamacpp import engine  # noqa: PLC0415

    return engine.describe_machine()


def read_memory() -> MachineMemory:
    """The memory of this machine and its GPUs now. Loads the engine."""
    from vrt_lite.backends.llamacpp import engine  # noqa: PLC0415

    return engine.read_memory()


def has_gpu() -> bool:
    """Whether the engine has a GPU to put layers on. Loads the engine."""
    from vrt_lite.backends.llamacpp import engine  # noqa: PLC0415

    engine.start_engine()
    return engine.uses_gpu(None)
