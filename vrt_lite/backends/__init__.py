"""Opens back ends, and imports each one only then: importing this package imports no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vrt_lite.backends.fallback import FallbackBackend
    from vrt_lite.backends.http import HttpBackend
    from vrt_lite.backends.llamacpp import LlamaCppBackend
    from vrt_lite.embeddings import EmbeddingCache
    from vrt_lite.machine import EngineSettings, Machine, MachineMemory
    from vrt_lite.models import ModelFiles
    from vrt_lite.profile import Profile
    from vrt_lite.settings import Remote


def open_backend(
    files: ModelFiles, *, profile: Profile, settings: EngineSettings, cache: EmbeddingCache | None = None
) -> LlamaCppBackend:
    """The llama.cpp back end for a GGUF pair. Raises ModelError, OutOfMemoryError."""
    from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: PLC0415

    return LlamaCppBackend(files.text, files.projector, profile=profile, settings=settings, cache=cache)


def open_first_that_fits(
    files: ModelFiles, *, profile: Profile, choices: Sequence[EngineSettings], cache: EmbeddingCache | None = None
) -> FallbackBackend:
    """The llama.cpp back end with the first of these settings for which memory can be allocated, also later on.

    Raises ModelError, OutOfMemoryError.
    """
    from vrt_lite.backends.fallback import FallbackBackend  # noqa: PLC0415

    return FallbackBackend(
        lambda settings: open_backend(files, profile=profile, settings=settings, cache=cache), choices
    )


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
