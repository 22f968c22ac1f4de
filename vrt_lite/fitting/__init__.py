"""Chooses engine settings that fit the memory.

The best choice comes first, and the change that costs least comes next, in a fixed order: keys and values in F16, then
in Q8_0; the projector on the GPU, then on the processor; as many layers on the GPU as fit. What a user has set stays,
and so do the frames: what the judge sees never depends on the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

from vrt_lite.errors import OutOfMemoryError, Warned
from vrt_lite.fitting.memory_estimate import Estimate, ModelShape, estimate_memory
from vrt_lite.machine import EngineSettings, KvType, MachineMemory, format_bytes
from vrt_lite.profile import Profile
from vrt_lite.records.judgement import EngineUsed
from vrt_lite.settings import Settings

TAKE_LESS: Final = (
    "--effort quick takes less, and so do a smaller quantisation, and lower --max-pixels, --ctx and --gpu-layers."
)
"""What to try where memory is short."""
_DEFAULTS: Final = EngineSettings()


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What was chosen, and a warning for each change that the memory required.

    `choices` are the memory and settings that were chosen, then the same without more sequences than one, in case an
    allocation fails although the plan fits. `tuned` tells whether the settings come from an earlier `vrt-lite tune`.
    """

    choices: tuple[Estimate, ...]
    warnings: tuple[Warned, ...] = ()
    tuned: bool = False

    @property
    def estimate(self) -> Estimate:
        """The memory that was chosen."""
        return self.choices[0]

    @property
    def settings(self) -> EngineSettings:
        """The engine's settings."""
        return self.estimate.settings

    @property
    def profile(self) -> Profile:
        """The model's profile with the user's settings."""
        return self.estimate.profile

    def engine_used(self) -> EngineUsed:
        """The engine in the record of a comparison."""
        settings, estimate = self.settings, self.estimate
        return EngineUsed(
            threads=settings.threads,
            repack=settings.repack,
            flash_attention=settings.flash_attention,
            ubatch=settings.ubatch,
            kv_type=settings.kv_type,
            tuned=self.tuned,
            gpu_layers=settings.gpu_layers,
            projector_on_gpu=settings.projector_on_gpu,
            memory_bytes=estimate.cpu_bytes,
            gpu_memory_bytes=(estimate.gpu_bytes,) if estimate.gpu_bytes else (),
        )


def fits(estimate: Estimate, memory: MachineMemory) -> bool:
    """Whether the estimate fits the free memory."""
    free_on_gpu = memory.gpu.free_bytes if memory.gpu else 0
    return estimate.cpu_bytes <= memory.free_bytes and estimate.gpu_bytes <= free_on_gpu


def choose_plan(
    shape: ModelShape,
    profile: Profile,
    settings: Settings,
    memory: MachineMemory,
    *,
    engine: EngineSettings = _DEFAULTS,
    sequences: int = 1,
    pairs: int = 1,
) -> EnginePlan:
    """The first choice that fits, in the order of this module, with as many sequences as fit the free memory beside it.

    A choice that fits the machine, but not next to the programs that run on it now, is taken with a warning. `engine`
    has what was tuned; `sequences` is the most that are used, for `pairs` judged at once. Raises UsageError for
    settings that cannot be used, OutOfMemoryError if nothing fits.
    """
    list_estimates = partial(_list_estimates, shape, settings.applied_to(profile), settings, engine, memory)
    idle = replace(memory, free_bytes=memory.total_bytes)
    chosen = next((each for state in (memory, idle) for each in list_estimates() if fits(each, state)), None)
    if chosen is None:
        *_, least = list_estimates()
        on_gpu = f" and {format_bytes(least.gpu_bytes)} on the GPU" if least.gpu_bytes else ""
        free = f" and {format_bytes(memory.gpu.free_bytes)} free on {memory.gpu.name}" if memory.gpu else ""
        raise OutOfMemoryError(
            f"Judging takes at least {format_bytes(least.cpu_bytes)} of memory{on_gpu}; this machine has "
            f"{format_bytes(memory.total_bytes)}{free}. {TAKE_LESS}"
        )
    choices = (chosen,)
    for count in range(sequences, 1, -1):
        more = replace(chosen.settings, sequences=count)
        several = estimate_memory(shape, chosen.profile, more, pairs=min(pairs, count))
        if fits(several, memory):
            choices = (several, chosen)
            break
    return EnginePlan(choices, tuple(_list_warnings(next(list_estimates()), chosen, memory)))


def _list_estimates(
    shape: ModelShape, profile: Profile, settings: Settings, engine: EngineSettings, memory: MachineMemory
) -> Iterator[Estimate]:
    """Yield an estimate for all that may be chosen, best first."""
    layers: Sequence[int | None] = [settings.gpu_layers]
    if settings.gpu_layers is None:
        # None is the engine's own choice, all of them.
        layers = (None, *range(shape.layers, -1, -1)) if memory.gpu else [0]
    on_gpu = (True, False) if memory.gpu and settings.gpu_layers != 0 else (None,)
    kv_types: tuple[KvType, ...] = (settings.kv_type,) if settings.kv_type else ("f16", "q8_0")
    for count, projector, kv_type in product(layers, on_gpu, kv_types):
        chosen = replace(
            engine,
            context=settings.ctx,
            gpu_layers=count,
            projector_on_gpu=projector,
            threads=settings.threads or engine.threads,
            kv_type=kv_type,
        )
        yield estimate_memory(shape, profile, chosen)


def _list_warnings(best: Estimate, chosen: Estimate, memory: MachineMemory) -> Iterator[Warned]:
    """What a user should know about the differences from the best choice."""
    settings = chosen.settings
    if settings.kv_type != best.settings.kv_type:
        yield Warned(
            "kv_cache_quantized",
            "To fit the memory, keys and values are kept as Q8_0 (--kv-type f16 keeps them whole).",
        )
    if (settings.gpu_layers, settings.projector_on_gpu) != (best.settings.gpu_layers, best.settings.projector_on_gpu):
        layers = "all" if settings.gpu_layers is None else settings.gpu_layers
        parts = f"{layers} layers are on it{'' if settings.projector_on_gpu else ', without the projector'}"
        yield Warned("gpu_memory_short", f"To fit the GPU's memory, {parts} (--gpu-layers N sets how many).")
    if chosen.cpu_bytes > memory.free_bytes:
        yield Warned(
            "memory_tight",
            f"Judging takes about {format_bytes(chosen.cpu_bytes)} and {format_bytes(memory.free_bytes)} are free: "
            "close other programs, or it will be slow.",
        )
