"""Chooses engine settings that fit the memory, or advises what would fit.

The best choice comes first, and the change that costs least comes next, in a fixed order: keys and values in F16, then
in Q8_0; the projector on the GPU, then on the processor; as many layers on GPUs as fit; smaller frames last, because
they change what the judge sees. What a user has set stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vrt_lite.errors import OutOfMemoryError, Warned
from vrt_lite.fitting.memory_estimate import Estimate, ModelShape, context_tokens, estimate_memory
from vrt_lite.machine import EngineSettings, KvType, MachineMemory, format_bytes
from vrt_lite.profile import Profile
from vrt_lite.records.judgement import EngineUsed

_SIDES = range(28, 2, -2)
"""Visual tokens on each side of smaller frames. With fewer than four, a judge sees almost nothing."""
_ABOUT_GPU = ("projector_on_processor", "layers_on_processor")
"""Kinds of warnings about what is not on a GPU."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What was chosen, the memory that it takes, and a warning for each change that the memory required.

    `fallbacks` take less of the memory, in case an allocation fails although the plan fits. `tuned` tells whether
    the settings come from an earlier `vrt-lite tune`.
    """

    profile: Profile
    estimate: Estimate
    warnings: tuple[Warned, ...] = ()
    fallbacks: tuple[Estimate, ...] = ()
    tuned: bool = False

    @property
    def settings(self) -> EngineSettings:
        """The engine's settings."""
        return self.estimate.settings

    @property
    def choices(self) -> tuple[EngineSettings, ...]:
        """The engine's settings, and those of the fallbacks."""
        return (self.settings, *(estimate.settings for estimate in self.fallbacks))

    def as_run_with(self, settings: EngineSettings) -> EnginePlan:
        """This plan with those of its `choices` that the engine ran with. There is a warning if that is a fallback."""
        if settings == self.settings:
            return self
        estimate = self.fallbacks[self.choices.index(settings) - 1]
        if replace(settings, sequences=self.settings.sequences) == self.settings:
            return replace(self, estimate=estimate)
        warned = Warned(
            "gpu_allocation_failed",
            "The GPU had less memory than it reported, so nothing is on it (--gpu-layers N sets how many layers).",
        )
        kept = tuple(warning for warning in self.warnings if warning.kind not in _ABOUT_GPU)
        return replace(self, estimate=estimate, warnings=(*kept, warned))

    def engine_used(self) -> EngineUsed:
        """The engine in the record of a comparison."""
        return EngineUsed(
            threads=self.settings.threads,
            repack=self.settings.repack,
            flash_attention=self.settings.flash_attention,
            ubatch=self.settings.ubatch,
            kv_type=self.settings.kv_type,
            tuned=self.tuned,
            gpu_layers=self.settings.gpu_layers,
            projector_on_gpu=self.settings.projector_on_gpu,
            memory_bytes=self.estimate.cpu_bytes,
            gpu_memory_bytes=self.estimate.gpu_bytes,
        )


def fits(estimate: Estimate, memory: MachineMemory, *, when_idle: bool = False) -> bool:
    """Whether the estimate fits the free memory; `when_idle` counts all of the processor's memory as free."""
    gpus_fit = all(needed <= gpu.free_bytes for needed, gpu in zip(estimate.gpu_bytes, memory.gpus, strict=True))
    return gpus_fit and estimate.cpu_bytes <= (memory.total_bytes if when_idle else memory.free_bytes)


def choose_plan(
    shape: ModelShape,
    profile: Profile,
    settings: EngineSettings,
    memory: MachineMemory,
    *,
    choose_kv_type: bool = True,
    choose_pixels: bool = True,
) -> EnginePlan:
    """The first choice that fits, in the order of this module. If none does, OutOfMemoryError says what would fit.

    A choice that fits the machine, but not next to the programs that run on it now, is taken with a warning. Settings
    that are None are chosen. `choose_kv_type` and `choose_pixels` tell whether these two may be changed as well.
    """
    profiles = [profile]
    if choose_pixels:
        profiles += [smaller for smaller in _list_smaller(profile) if smaller.max_pixels >= profile.min_pixels]
    tried: list[tuple[Profile, Estimate]] = []

    def take(chosen: Profile, estimate: Estimate) -> EnginePlan:
        warnings = tuple(_list_warnings(tried[0][1], estimate, memory))
        return EnginePlan(chosen, estimate, warnings, _list_fallbacks(shape, chosen, settings, estimate, memory))

    for chosen in profiles:
        for estimate in _list_estimates(shape, chosen, settings, memory, choose_kv_type=choose_kv_type):
            tried.append((chosen, estimate))
            if fits(estimate, memory):
                return take(chosen, estimate)
    for chosen, estimate in tried:
        if fits(estimate, memory, when_idle=True):
            return take(chosen, estimate)
    least = tried[-1][1]
    needed = [f"{format_bytes(least.cpu_bytes)} of memory"]
    available = [format_bytes(memory.total_bytes)]
    for size, gpu in zip(least.gpu_bytes, memory.gpus, strict=True):
        needed.append(f"{format_bytes(size)} on {gpu.name}")
        available.append(f"{format_bytes(gpu.free_bytes)} free on {gpu.name}")
    raise OutOfMemoryError(
        f"Judging takes at least {', '.join(needed)}; this machine has {', '.join(available)}. "
        f"{_advise(shape, profile, replace(settings, kv_type=least.settings.kv_type), memory, least)}"
    )


def add_sequences(plan: EnginePlan, shape: ModelShape, memory: MachineMemory, most: int, *, pairs: int) -> EnginePlan:
    """The plan with as many sequences as fit the free memory beside it, at most `most`, for `pairs` judged at once.

    Nothing else is given up. The plan without them is its first fallback.
    """
    for count in range(most, 1, -1):
        settings = replace(plan.settings, sequences=count)
        shares, judged = _shares(memory), min(pairs, count)
        estimate = estimate_memory(shape, plan.profile, settings, gpu_shares=shares, pairs=judged)
        if fits(estimate, memory):
            return replace(plan, estimate=estimate, fallbacks=(plan.estimate, *plan.fallbacks))
    return plan


def advise_smaller(profile: Profile) -> str:
    """What to try where memory could not be allocated although the plan fits: the next smaller frames."""
    for smaller in _list_smaller(profile):
        if smaller.max_pixels >= profile.min_pixels:
            return f"The same command with --max-pixels {smaller.max_pixels} takes less."
    return "A smaller quantisation or model takes less."


def _advise(
    shape: ModelShape, profile: Profile, settings: EngineSettings, memory: MachineMemory, least: Estimate
) -> str:
    """The smallest change with which it fits: of an option, else of the model."""

    def would_fit(smaller: Profile, changed: EngineSettings) -> bool:
        estimates = _list_estimates(shape, smaller, changed, memory, choose_kv_type=False)
        return any(fits(estimate, memory, when_idle=True) for estimate in estimates)

    if settings.context and would_fit(profile, replace(settings, context=None)):
        return f"Lower --ctx: {context_tokens(shape, profile)} tokens are enough, and fit."
    if settings.gpu_layers and would_fit(profile, replace(settings, gpu_layers=None)):
        return "Leave out --gpu-layers: as many layers as fit are then on the GPU."
    for smaller in _list_smaller(profile):
        if would_fit(smaller, settings):
            return f"This would fit: --max-pixels {smaller.max_pixels}."
    files = memory.total_bytes - sum(term.cpu for term in least.terms if term.name not in ("weights", "projector"))
    if files <= 0:
        return "No model fits."
    return f"A smaller quantisation or model would fit: weights and projector of at most {format_bytes(files)}."


def _list_smaller(profile: Profile) -> Iterator[Profile]:
    """Yield the profile with smaller and smaller frames."""
    for pixels in (side * side * profile.pixels_per_token for side in _SIDES):
        if pixels < profile.max_pixels:
            yield profile.with_max_pixels(pixels)


def _list_estimates(
    shape: ModelShape, profile: Profile, settings: EngineSettings, memory: MachineMemory, *, choose_kv_type: bool
) -> Iterator[Estimate]:
    """Yield an estimate for all that may be chosen about the engine, best first."""
    layers: Sequence[int | None] = (settings.gpu_layers,)
    if memory.gpus and settings.gpu_layers is None:
        # None is the engine's own choice, all of them.
        layers = (None, *range(len(shape.layers), -1, -1))
    choose_projector = memory.gpus and settings.projector_on_gpu is None
    quantise = choose_kv_type and settings.flash_attention is not False and not settings.exact
    kv_types: Sequence[KvType] = ("f16", "q8_0") if quantise and settings.kv_type == "f16" else (settings.kv_type,)
    for count in layers:
        for on_gpu in (True, False) if choose_projector and count != 0 else (settings.projector_on_gpu,):
            for kv_type in kv_types:
                changed = replace(settings, gpu_layers=count, projector_on_gpu=on_gpu, kv_type=kv_type)
                yield estimate_memory(shape, profile, changed, gpu_shares=_shares(memory))


def _shares(memory: MachineMemory) -> list[float]:
    """The parts in which layers are divided among GPUs, as the engine does: by their free memory."""
    return [max(float(gpu.free_bytes), 1.0) for gpu in memory.gpus]


def _list_fallbacks(
    shape: ModelShape, profile: Profile, settings: EngineSettings, planned: Estimate, memory: MachineMemory
) -> tuple[Estimate, ...]:
    """What takes nothing of the GPUs, if that is not planned, fits, and the user has not set the layers."""
    if not memory.gpus or planned.settings.gpu_layers == 0 or settings.gpu_layers is not None:
        return ()
    without = replace(planned.settings, gpu_layers=0, projector_on_gpu=False)
    less = estimate_memory(shape, profile, without, gpu_shares=_shares(memory))
    return (less,) if fits(less, memory, when_idle=True) else ()


def _list_warnings(best: Estimate, chosen: Estimate, memory: MachineMemory) -> Iterator[Warned]:
    """What a user should know about the differences from the best choice."""
    settings = chosen.settings
    if settings.kv_type != best.settings.kv_type:
        yield Warned(
            "kv_cache_quantized",
            "To fit the memory, keys and values are kept as Q8_0 (--kv-type f16 keeps them whole).",
        )
    if settings.projector_on_gpu is False and best.settings.projector_on_gpu:
        yield Warned("projector_on_processor", "To fit the GPU's memory, the projector runs on the processor.")
    if settings.gpu_layers != best.settings.gpu_layers:
        yield Warned(
            "layers_on_processor",
            f"To fit the GPU's memory, {settings.gpu_layers} layers are on it (--gpu-layers N sets how many).",
        )
    if chosen.max_pixels != best.max_pixels:
        yield Warned(
            "frames_reduced",
            f"To fit the memory, frames are shown with at most {chosen.max_pixels} pixels instead of "
            f"{best.max_pixels}: the judge sees less detail (--max-pixels N sets it).",
        )
    if chosen.cpu_bytes > memory.free_bytes:
        yield Warned(
            "memory_tight",
            f"Judging takes about {format_bytes(chosen.cpu_bytes)} and {format_bytes(memory.free_bytes)} are free: "
            "close other programs, or it will be slow.",
        )
