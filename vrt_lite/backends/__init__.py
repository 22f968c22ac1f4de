"""Opens back ends, and imports each one only then: importing this package imports no engine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING

from vrt_lite.errors import OutOfMemoryError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.judgement import EngineUsed, ModelUsed, ServerUsed
from vrt_lite.protocol.messages import Conversation, Reply

if TYPE_CHECKING:
    from vrt_lite.backends.http import HttpBackend
    from vrt_lite.backends.llamacpp import LlamaCppBackend
    from vrt_lite.embeddings import EmbeddingCache
    from vrt_lite.machine import EngineSettings, Machine, MachineMemory
    from vrt_lite.models import ModelFiles
    from vrt_lite.profile import Profile
    from vrt_lite.settings import Remote


@dataclass(frozen=True, slots=True)
class Used:
    """What judged, for the record."""

    model: ModelUsed
    backend: ServerUsed | None = None
    engine: EngineUsed | None = None


def open_backend(
    files: ModelFiles, *, profile: Profile, settings: EngineSettings, cache: EmbeddingCache | None = None
) -> LlamaCppBackend:
    """The llama.cpp back end for a GGUF pair. Raises ModelError, OutOfMemoryError."""
    from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: PLC0415

    return LlamaCppBackend(files.text, files.projector, profile=profile, settings=settings, cache=cache)


class FallbackBackend(contextlib.ExitStack):
    """The llama.cpp back end with the first of several settings, and with the next ones if memory cannot be allocated.

    A reply that fails so starts again: each reply gets the whole conversation. `settings` are those in force. A context
    manager. Raises ModelError; OutOfMemoryError if the last settings fail, too.
    """

    def __init__(
        self, files: ModelFiles, *, profile: Profile, choices: Sequence[EngineSettings], cache: EmbeddingCache
    ) -> None:
        super().__init__()
        self._files = files
        self._profile = profile
        self._cache = cache
        self._choices = list(choices)
        self._changed = Condition()
        self._replies = 0
        self._open()

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn. As many threads as there are sequences may call it at once."""
        while True:
            with self._changed:
                backend = self._backend
                self._replies += 1
            try:
                return backend.reply(conversation, frames, sampling=sampling, observe=observe)
            except OutOfMemoryError:
                if not self._choices and backend is self._backend:
                    raise
            finally:
                with self._changed:
                    self._replies -= 1
                    self._changed.notify_all()
            self._replace(backend)

    def _replace(self, failed: LlamaCppBackend) -> None:
        """Open the next one, once no reply uses this one any more. One thread does so, if several have failed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._replies or self._backend is not failed)
            if self._backend is failed:
                self._open()

    def _open(self) -> None:
        """Close the back end, and open one with the first of the remaining settings for which there is memory."""
        self.close()
        while True:
            if not self._choices:
                raise OutOfMemoryError("No settings are left that take less memory.")
            self.settings = self._choices.pop(0)
            try:
                opened = open_backend(self._files, profile=self._profile, settings=self.settings, cache=self._cache)
                self._backend = self.enter_context(opened)
                return
            except OutOfMemoryError:
                if not self._choices:
                    raise


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
