"""Chooses where the model of a judge runs: an engine on this machine, a server, or a back end that the caller gives.

Each mode has the same interface, so that `Judge` works with any of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from vrt_lite.backends import FallbackBackend, Used, describe_machine
from vrt_lite.errors import Warned
from vrt_lite.interfaces import Backend, FrameStore, Loading, Observe, Stopwatch, Turns, Working, wait_until_done
from vrt_lite.judgement import FileUsed, ModelUsed
from vrt_lite.models import ModelFiles, find, gguf_sha256, profile_of
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import shown_first
from vrt_lite.settings import Remote, Settings
from vrt_lite.shortage import ThreadPool
from vrt_lite.tuning import choose_projector, plan_engine, refuse_impossible

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan


class Mode(Protocol):
    """Where the model runs. `own` is the checkpoint's profile, `profile` the one in force; `files` are the model's."""

    own: Profile
    profile: Profile
    files: ModelFiles | None

    def key(self) -> dict[str, str]:
        """What identifies the model in the key of a stored judgement. Loads no model."""
        ...

    def prepare(self) -> None:
        """Start in the background what is needed before frames can be shown."""
        ...

    def plan(self) -> Profile:
        """The profile that fits the machine; it may show smaller frames. Raises OutOfMemoryError."""
        ...

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Backend:
        """The back end, opened once."""
        ...

    def turn(self, most: int, observe: Observe) -> AbstractContextManager[int]:
        """Wait until one more comparison may use the back end; the context is how many replies it may ask for at once.

        They are at most `most`. `observe` is called while it waits.
        """
        ...

    def used(self) -> Used:
        """What judged. This sends no request to a server."""
        ...

    def notes(self) -> tuple[Warned, ...]:
        """What a reader of a verdict must know about how the model ran."""
        ...

    def connect(self, observe: Observe) -> None:
        """Ask a server what it serves, if its key depends on that."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


def choose_mode(
    model: str | Path | None,
    projector: Path | None,
    settings: Settings,
    backend: Backend | Remote | None,
    *,
    digest: Callable[[Path], str],
    jobs: int,
    verbose: bool,
) -> Mode:
    """The mode that the arguments of a `Judge` ask for. Raises ModelError, UsageError."""
    if isinstance(backend, Remote):
        from vrt_lite.server_mode import ServerMode  # noqa: PLC0415

        return ServerMode(backend, profile_of(model), settings, projector=projector)
    refuse_impossible(settings)
    files = choose_projector(find(model, projector=projector), describe_machine)
    if backend is not None:
        return GivenMode(backend, files, settings, digest=digest)
    return LocalMode(files, settings, digest=digest, jobs=jobs, verbose=verbose)


class _FileMode:
    """What the modes with model files on this machine share."""

    def __init__(self, files: ModelFiles, settings: Settings, *, digest: Callable[[Path], str]) -> None:
        self.files: ModelFiles | None = files
        self.own = files.profile
        self.profile = settings.applied_to(self.own)
        self._files = files
        self._digest = digest
        self._pool = ThreadPool(3)
        # The projector's digest is needed first: it finds what earlier runs have encoded.
        self._projector_sha256 = self._pool.submit(digest, files.projector)
        self._text_sha256: Future[str] | None = None

    def key(self) -> dict[str, str]:
        """The digests of both files."""
        return {"text": self._digest_text().result(), "projector": self._projector_sha256.result()}

    def prepare(self) -> None:
        """Start to digest the text model, which takes seconds for gigabytes."""
        self._digest_text()

    def connect(self, observe: Observe) -> None:
        """Nothing to ask."""

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def _describe_model(self) -> ModelUsed:
        text = FileUsed(self._files.text.name, self._digest_text().result())
        return ModelUsed(self._files.name, text, FileUsed(self._files.projector.name, self._projector_sha256.result()))

    def _digest_text(self) -> Future[str]:
        if self._text_sha256 is None:
            self._text_sha256 = self._pool.submit(gguf_sha256, self._files.text, self._digest)
        return self._text_sha256


class GivenMode(_FileMode):
    """A back end that the caller opened and closes. The files name the model."""

    def __init__(
        self, backend: Backend, files: ModelFiles, settings: Settings, *, digest: Callable[[Path], str]
    ) -> None:
        super().__init__(files, settings, digest=digest)
        # That measures decide, or are trusted more, was found for the weights, which this back end is not.
        self.own, self.profile = (replace(of, trusts_measures=False, decides=()) for of in (self.own, self.profile))
        self._backend = backend

    def plan(self) -> Profile:
        """The profile as it is: the caller has chosen how the back end runs."""
        return self.profile

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Backend:
        """The back end that was given."""
        return self._backend

    def turn(self, most: int, observe: Observe) -> AbstractContextManager[int]:
        """Nothing to wait for: the caller decides how many use it. It may be one for a single thread."""
        return contextlib.nullcontext(1)

    def used(self) -> Used:
        """The model by its files."""
        return Used(self._describe_model())

    def notes(self) -> tuple[Warned, ...]:
        """Nothing: the caller knows how the back end runs."""
        return ()


class LocalMode(_FileMode):
    """The engine on this machine: planned to fit the memory, and loaded when first needed.

    `jobs` threads may share it. Each judges in a sequence of its own, if there is memory for as many; else some wait.
    For both orders of a pair there are at least two: with more jobs than one the engine's batches are filled by those.
    """

    def __init__(
        self, files: ModelFiles, settings: Settings, *, digest: Callable[[Path], str], jobs: int, verbose: bool
    ) -> None:
        super().__init__(files, settings, digest=digest)
        self._jobs = jobs
        self._lock = Lock()
        self._turns: Turns | None = None
        self._loading: Future[FallbackBackend] | None = None
        self._settings = settings
        self._verbose = verbose
        self._planning: Future[EnginePlan] | None = None
        self._backend: FallbackBackend | None = None
        self._free = contextlib.ExitStack()

    def prepare(self) -> None:
        """Start to choose what fits the memory, and to digest the text model."""
        self.start_planning()
        super().prepare()

    def plan(self) -> Profile:
        """The profile with frames that fit the memory. Loads the engine's library, but no model."""
        self.profile = self.start_planning().result().profile
        return self.profile

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Backend:
        """The engine, which loads while the first frames are decoded."""
        if self._backend is None:
            with self._lock:
                if self._loading is None:
                    self._loading = self._pool.submit(self._load, watch)
            observe(Working("decoding frames"))
            first = (shown_first(self.profile.workspace, self.profile.first_frames, clip) for clip in (0, 1))
            frames.pixels([frame for shown in first for frame in shown])
            observe(Loading(self._files.name))
            self._backend = wait_until_done(self._loading, observe)
        return self._backend

    def turn(self, most: int, observe: Observe) -> AbstractContextManager[int]:
        """Wait for a free sequence of the engine."""
        with self._lock:
            if self._turns is None:
                self._turns = Turns(self.start_planning().result().settings.sequences)
        return self._turns.take(most, observe)

    def used(self) -> Used:
        """The model by its files, and how the engine ran if it did."""
        plan = self._plan_in_force()
        return Used(self._describe_model(), engine=plan.engine_used() if plan else None)

    def notes(self) -> tuple[Warned, ...]:
        """What was changed to fit the memory."""
        return plan.warnings if (plan := self._plan_in_force()) else ()

    def close(self) -> None:
        """Free the model, after the threads that use it have ended."""
        super().close()
        self._free.close()

    def start_planning(self) -> Future[EnginePlan]:
        """Start, once, to choose what fits the memory."""
        if self._planning is None:
            sequences = max(self._jobs, 2 if self._settings.both_orders is True else 1)
            self._planning = self._pool.submit(
                plan_engine,
                self._files,
                self._settings,
                verbose=self._verbose,
                sequences=sequences,
                pairs=self._jobs,
            )
        return self._planning

    def _plan_in_force(self) -> EnginePlan | None:
        """The plan that the engine runs with; None before it is loaded."""
        return self.start_planning().result().as_run_with(self._backend.settings) if self._backend else None

    def _load(self, watch: Stopwatch) -> FallbackBackend:
        from vrt_lite.embeddings import EmbeddingCache, users_disk  # noqa: PLC0415 - numpy

        with watch.measure("load"):
            disk = users_disk(self._settings.cache_mb) if self._settings.cache else None
            cache = EmbeddingCache(disk, namespace=self._projector_sha256.result)
            choices = self.start_planning().result().choices
            backend = FallbackBackend(self._files, profile=self.profile, choices=choices, cache=cache)
            return self._free.enter_context(backend)
