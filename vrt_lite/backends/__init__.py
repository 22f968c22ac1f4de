"""Back ends. Opens one lazily: naming this package imports no engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vrt_lite.backends.http import HttpBackend
    from vrt_lite.backends.llamacpp import LlamaCppBackend
    from vrt_lite.backends.settings import EngineSettings, Remote
    from vrt_lite.embeddings import EmbeddingCache
    from vrt_lite.fitting.fit import Room
    from vrt_lite.fitting.search import Found, Watch
    from vrt_lite.fitting.tuning import Machine, Tuning
    from vrt_lite.models.files import ModelFiles
    from vrt_lite.profile import Profile

# GNU's OpenMP reads this when the engine is loaded. By its default a thread that waits for another spins for
# milliseconds: beside one busy program, reading was 10 to 60 times as slow. Where the other spins are short, it is not.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def open_backend(
    files: ModelFiles, *, profile: Profile, settings: EngineSettings, cache: EmbeddingCache | None = None
) -> LlamaCppBackend:
    """The llama.cpp back end for a GGUF pair. Raises ModelError, OutOfMemoryError."""
    from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: PLC0415

    return LlamaCppBackend(files.text, files.projector, profile=profile, settings=settings, cache=cache)


def open_remote(remote: Remote, *, profile: Profile) -> HttpBackend:
    """The HTTP back end for a server; nothing is asked of it yet. UsageError for a key that can be none."""
    from vrt_lite.backends.http import HttpBackend  # noqa: PLC0415

    return HttpBackend(remote, profile=profile)


def this_machine() -> Machine:
    """This machine, as the engine sees it. Loads the engine."""
    from vrt_lite.backends.llamacpp.machine import this_machine as ask  # noqa: PLC0415

    return ask()


def offloads() -> bool:
    """Whether the engine has a GPU to put layers on. Loads the engine."""
    from vrt_lite.backends.llamacpp import engine  # noqa: PLC0415

    engine.engine_log()
    return engine.offloads(None)


def busy() -> float:
    """The share of the processor's time, 0 to 1, that is in use now. Loads the engine."""
    from vrt_lite.backends.llamacpp.tune import busy as ask  # noqa: PLC0415

    return ask()


def this_room() -> Room:
    """This machine's memory and its GPUs', now. Loads the engine."""
    from vrt_lite.backends.llamacpp.room import this_room as ask  # noqa: PLC0415

    return ask()


def tune(files: ModelFiles, *, profile: Profile, budget_seconds: float, observe: Watch) -> tuple[Tuning, Found]:
    """Find the engine settings for a model on this machine. Raises ModelError, OutOfMemoryError, KeyboardInterrupt."""
    from vrt_lite.backends.llamacpp.tune import tune as find  # noqa: PLC0415

    return find(files, profile=profile, budget_seconds=budget_seconds, observe=observe)
