"""Back ends. Opens one lazily: naming this package imports no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vrt_lite.backends.llamacpp import LlamaCppBackend
    from vrt_lite.modelfiles import ModelFiles
    from vrt_lite.profile import Profile


def open_backend(
    files: ModelFiles,
    *,
    profile: Profile,
    context: int | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
    verbose: bool = False,
) -> LlamaCppBackend:
    """The llama.cpp back end for a GGUF pair. Raises ModelError, OutOfMemoryError."""
    from vrt_lite.backends.llamacpp import EngineSettings, LlamaCppBackend  # noqa: PLC0415

    settings = EngineSettings(context=context, gpu_layers=gpu_layers, threads=threads, verbose=verbose)
    return LlamaCppBackend(files.text, files.projector, profile=profile, settings=settings)
