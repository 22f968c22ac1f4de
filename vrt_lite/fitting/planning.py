"""From what a user has set to how the engine will run here: as tuned, then made to fit the memory.

The same for `compare`, which goes on with it, and `estimate`, which shows it. Loads no model.
"""

from __future__ import annotations

from dataclasses import replace

from vrt_lite.backends import offloads, this_machine, this_room
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import UsageError
from vrt_lite.fitting.fit import Free, Plan, Room, plan
from vrt_lite.fitting.memory import shape_of
from vrt_lite.fitting.tuning import report, tuned
from vrt_lite.models.files import ModelFiles
from vrt_lite.settings import Settings


def planned(
    files: ModelFiles,
    settings: Settings,
    *,
    verbose: bool = False,
    repack: bool | None = None,
    room: Room | None = None,
) -> tuple[Plan, dict[str, object]]:
    """What fits this machine, or the `room` given, and the engine's settings for a judgement's JSON.

    `repack` is None where the user has not said. Raises ModelError, UsageError, OutOfMemoryError.
    """
    refuse_impossible(settings)
    wanted = EngineSettings(
        context=settings.ctx,
        gpu_layers=settings.gpu_layers,
        threads=settings.threads,
        kv_type=settings.kv_type or "f16",
        verbose=verbose,
    )
    engine, by_tuning = tuned(files, wanted, this_machine())
    if settings.kv_type:
        engine = replace(engine, kv_type=settings.kv_type)
    if repack is not None:
        engine = replace(engine, repack=repack)
    free = Free(kv_type=settings.kv_type is None, max_pixels=not settings.limits_pixels)
    found = plan(shape_of(files), settings.applied_to(files.profile), engine, room or this_room(), free=free)
    said = found.estimate
    memory = {"memory_bytes": said.cpu_bytes, "gpu_memory_bytes": list(said.gpu_bytes)}
    placed = {"gpu_layers": found.settings.gpu_layers, "projector_on_gpu": found.settings.projector_on_gpu}
    return found, {**report(found.settings, by_tuning=by_tuning), **placed, **memory}


def refuse_impossible(settings: Settings) -> None:
    """UsageError for what this machine and its engine cannot give: threads without a processor, layers on no GPU."""
    if settings.threads and settings.threads > (cpus := this_machine().cpus):
        raise UsageError(
            f"--threads {settings.threads} cannot be met: at most {cpus} are allowed here, one for each processor that "
            "this process may use. Lower it, or leave it out."
        )
    if settings.gpu_layers and not offloads():
        raise UsageError(
            f"--gpu-layers {settings.gpu_layers} cannot be met: the engine installed here has no GPU to use, only the "
            f"processor ({this_machine().processor}). Leave it out, or install the engine with a GPU back end: "
            "CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall --no-cache-dir llama-cpp-python "
            "(for AMD and Intel: -DGGML_VULKAN=on)."
        )
