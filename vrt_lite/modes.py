"""Chooses where the model of a judge runs: an engine on this machine, a server, or a back end that the caller gives.

Each mode has the same interface, so that `Judge` works with any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from vrt_lite.backends import BackendEngine, Engine, SharedEngine, Used, describe_machine, open_backend
from vrt_lite.disk import file_sha256
from vrt_lite.fitting import TAKE_LESS
from vrt_lite.interfaces import Backend, FrameStore, Loading, Observe, Stopwatch, Working
from vrt_lite.models import ModelFiles, find, profile_of
from vrt_lite.models.gguf import gguf_sha256
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import shown_first
from vrt_lite.records.judgement import FileUsed, ModelUsed
from vrt_lite.scheduler import InThread, Work
from vrt_lite.settings import Remote, Settings
from vrt_lite.shortage import ThreadPool
from vrt_lite.tuning import choose_projector, plan_engine, refuse_impossible

if TYPE_CHECKING:
    from vrt_lite.backends.llamacpp import LlamaCppBackend
    from vrt_lite.embeddings import EmbeddingCache
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.machine import EngineSettings, Machine


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

    def plan(self) -> EnginePlan | None:
        """How the engine runs on this machine, if one does. Raises OutOfMemoryError."""
        ...

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Work[Engine]:
        """Make ready what judges."""
        ...

    def describe(self) -> Used:
        """What judged, and what was special about it. This sends no request to a server."""
        ...

    def connect(self, observe: Observe) -> None:
        """Ask a server what it serves, if its key depends on that."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


@dataclass(frozen=True, slots=True)
class WantedJudge:
    """The judge that a caller wants, as `Judge` is told. It can be sent to another process, if its back end can.

    `digests` are those of files that are known, by path.
    """

    model: str | Path | None = None
    projector: Path | None = None
    settings: Settings = field(default_factory=Settings)
    backend: Backend | Remote | None = None
    measures: bool = True
    jobs: int = 1
    verbose: bool = False
    digests: dict[Path, str] = field(default_factory=dict[Path, str])


def choose_mode(
    wanted: WantedJudge,
    *,
    digest: Callable[[Path], str] = file_sha256,
    describe: Callable[[], Machine] = describe_machine,
) -> Mode:
    """The mode of a judge. `digest` finds a file's sha256, `describe` the machine. Raises ModelError, UsageError."""

    def find_digest(path: Path) -> str:
        if path not in wanted.digests:
            wanted.digests[path] = digest(path)
        return wanted.digests[path]

    settings = wanted.settings

    def find_files() -> ModelFiles:
        refuse_impossible(settings)
        return choose_projector(find(wanted.model, projector=wanted.projector), describe)

    match wanted.backend:
        case Remote() as remote:
            from vrt_lite.server_mode import ServerMode  # noqa: PLC0415

            return ServerMode(remote, profile_of(wanted.model), settings, projector=wanted.projector)
        case None:
            return LocalMode(find_files(), settings, digest=find_digest, jobs=wanted.jobs, verbose=wanted.verbose)
        case backend:
            return GivenMode(backend, find_files(), settings, digest=find_digest)


class _FileMode:
    """What the modes with model files on this machine share."""

    def __init__(self, files: ModelFiles, settings: Settings, *, digest: Callable[[Path], str]) -> None:
        self.files: ModelFiles | None = files
        self.own = files.profile
        self.profile = settings.applied_to(self.own)
        self._files = files
        self._digest = digest
        self._pool = ThreadPool(3)
        self._starting = Lock()  # threads share a judge: what takes long is done once
        self._digests: dict[str, Future[str]] = {}

    def key(self) -> dict[str, str]:
        """The digests of both files."""
        return {name: digest.result() for name, digest in self._start_digests().items()}

    def prepare(self) -> None:
        """Start to digest the model's files, which takes seconds for gigabytes."""
        self._start_digests()

    def connect(self, observe: Observe) -> None:
        """Nothing to ask."""

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def _describe_model(self) -> ModelUsed:
        of, files = self.key(), self._files
        return ModelUsed(
            files.name, FileUsed(files.text.name, of["text"]), FileUsed(files.projector.name, of["projector"])
        )

    def _start_digests(self) -> dict[str, Future[str]]:
        with self._starting:
            if not self._digests:
                # The projector's is needed first: it finds what earlier runs have encoded.
                projector = self._pool.submit(self._digest, self._files.projector)
                text = self._pool.submit(gguf_sha256, self._files.text, self._digest)
                self._digests = {"text": text, "projector": projector}
            return self._digests


class GivenMode(_FileMode):
    """A back end that the caller opened and closes. The files name the model."""

    def __init__(
        self, backend: Backend, files: ModelFiles, settings: Settings, *, digest: Callable[[Path], str]
    ) -> None:
        super().__init__(files, settings, digest=digest)
        # That measures decide, or are trusted more, was found for the weights, which this back end is not.
        self.own, self.profile = (replace(of, trusts_measures=False, decides=()) for of in (self.own, self.profile))
        self._backend = backend

    def plan(self) -> None:
        """Nothing to plan: the caller has chosen how the back end runs."""

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Work[Engine]:
        """Nothing to do: the caller has opened it, and decides how many use it."""
        yield from ()
        return BackendEngine(self._backend)

    def describe(self) -> Used:
        """The model by its files."""
        return Used(self._describe_model())


class LocalMode(_FileMode):
    """The engine on this machine: planned to fit the memory, and loaded when first needed.

    `jobs` pairs are judged at once, each in a sequence of its own, if there is memory for as many; else some wait.
    For both orders of a pair there are at least two: with more jobs than one the engine's batches are filled by those.
    """

    def __init__(
        self, files: ModelFiles, settings: Settings, *, digest: Callable[[Path], str], jobs: int, verbose: bool
    ) -> None:
        super().__init__(files, settings, digest=digest)
        self._jobs = jobs
        self._settings = settings
        self._verbose = verbose
        self._planning: Future[EnginePlan] | None = None
        self._engine: SharedEngine | None = None
        self._cache: EmbeddingCache | None = None

    def prepare(self) -> None:
        """Start to choose what fits the memory, and to digest the model's files."""
        self._start_planning()
        super().prepare()

    def plan(self) -> EnginePlan:
        """Choose what fits the memory. Loads the engine's library, but no model."""
        return self._start_planning().result()

    def open(self, frames: FrameStore, observe: Observe, watch: Stopwatch) -> Work[Engine]:
        """Load the engine, while the first frames are decoded."""
        plan = yield self._start_planning()
        if self._engine is None:
            self._engine = SharedEngine(
                self._load,
                [choice.settings for choice in plan.choices],
                submit=self._pool.submit,
                advice=TAKE_LESS,
            )
            loading, began = self._engine.start(), watch.total
            loading.add_done_callback(lambda _: watch.seconds.update(load=watch.total - began))
            observe(Working("decoding frames"))
            if not self.profile.answer:  # else their number depends on the clip
                first = (shown_first(self.profile.workspace, self.profile.first_frames, clip) for clip in (0, 1))
                shown = [frame for of_clip in first for frame in of_clip]
                yield InThread(lambda _: frames.pixels(shown))
            observe(Loading(self._files.name))
        yield from self._engine.open()
        return self._engine

    def describe(self) -> Used:
        """The model by its files, how the engine ran if it did, and what was changed to fit the memory."""
        if self._engine is None:
            return Used(self._describe_model())
        plan = self.plan()
        return Used(self._describe_model(), engine=plan.engine_used(), warnings=plan.warnings)

    def close(self) -> None:
        """Free the model, after the threads that use it have ended."""
        super().close()
        if self._engine:
            self._engine.close()

    def _start_planning(self) -> Future[EnginePlan]:
        """Start, once, to choose what fits the memory."""
        both = self._settings.both_orders is True and not self.own.pointwise
        with self._starting:
            self._planning = self._planning or self._pool.submit(
                plan_engine,
                self._files,
                self._settings,
                verbose=self._verbose,
                sequences=max(self._jobs, 1 + both),
                pairs=self._jobs,
            )
            return self._planning

    def _load(self, settings: EngineSettings) -> LlamaCppBackend:
        from vrt_lite.embeddings import EmbeddingCache, cache_folder, most_bytes_of  # noqa: PLC0415 - numpy

        if self._cache is None:
            self._cache = EmbeddingCache(
                cache_folder() if self._settings.keeps_on_disk else None,
                most_bytes=most_bytes_of(self._settings.cache_mb),
                namespace=self._start_digests()["projector"].result,
            )
        return open_backend(self._files, profile=self.profile, settings=settings, cache=self._cache)
