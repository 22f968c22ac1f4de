"""Chooses engine settings that fit the memory at hand, or says what would fit.

The order is fixed. Tried first is what is best, and given up first is what costs least: keys and values whole, then in
Q8_0; the projector on the GPU, then not; as many layers on GPUs as fit; smaller pictures last, for they change what the
judge sees. What a user has set stays. Standard library only; knows the machine as numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.fitting.memory import Estimate, Shape, context_tokens, estimate
from vrt_lite.profile import Profile
from vrt_lite.resize import PIXELS_PER_TOKEN

GB: Final = 10**9
_PIXEL_STEP = 0.75


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: its name, and the bytes that are free on it."""

    name: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Room:
    """A machine's memory in bytes: what can be had now, and what it has in all, swap included; and its GPUs."""

    free_bytes: int
    total_bytes: int
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What was chosen, what it takes, and a line for each thing that was given up for memory."""

    profile: Profile
    estimate: Estimate
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> EngineSettings:
        """For the engine."""
        return self.estimate.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Which settings may be chosen beside those that the engine's settings leave open as None."""

    kv_type: bool = True
    max_pixels: bool = True


def fits(said: Estimate, room: Room, *, of_all: bool = False) -> bool:
    """Whether it fits what can be had now, or, of the processor's memory, into all that there is."""
    enough = zip(said.gpu_bytes, room.gpus, strict=True)
    return said.cpu_bytes <= (room.total_bytes if of_all else room.free_bytes) and all(
        needed <= gpu.free_bytes for needed, gpu in enough
    )


def plan(shape: Shape, profile: Profile, settings: EngineSettings, room: Room, *, free: Free) -> Plan:
    """The first choice that fits, in the order of this module; OutOfMemoryError with what would fit otherwise.

    What fits into the machine but not beside what runs on it now is taken with a note.
    """
    tried = list(_choices(shape, profile, settings, room, free))
    first = tried[0][1]
    for of_all in (False, True):
        for chosen, said in tried:
            if fits(said, room, of_all=of_all):
                notes = tuple(_notes(first, said, room, of_all=of_all))
                return Plan(chosen, said, notes)
    raise OutOfMemoryError(_refusal(shape, profile, tried[-1][1], room))


def _advice(shape: Shape, profile: Profile, least: Estimate, room: Room) -> str:
    """What to change so that it fits, the least change first."""
    settings = least.settings
    if settings.context and _any_fits(shape, profile, settings, room):
        return f"Lower --ctx: {context_tokens(shape, profile)} tokens are enough, and fit."
    # Frames of 14 tokens a side down to 4: with fewer a judge sees next to nothing.
    for cells in (196, 144, 100, 64, 36, 16):
        smaller = profile.with_max_pixels(cells * PIXELS_PER_TOKEN)
        if cells * PIXELS_PER_TOKEN < profile.max_pixels and _any_fits(shape, smaller, settings, room):
            return f"This would fit: --max-pixels {smaller.max_pixels}."
    fewest = profile.with_max_pixels(min(profile.max_pixels, 16 * PIXELS_PER_TOKEN))
    for rounds in range(profile.rounds - 1, 0, -1):
        if _any_fits(shape, replace(fewest, rounds=rounds), settings, room):
            return f"This would fit: --max-pixels {fewest.max_pixels} --rounds {rounds}."
    rest = least.cpu_bytes - sum(term.cpu for term in least.terms if term.name in ("weights", "projector"))
    files = max(room.total_bytes - rest, 0)
    return f"A smaller quantisation or model would fit: weights and projector of at most {told(files)}."


def _any_fits(shape: Shape, profile: Profile, settings: EngineSettings, room: Room) -> bool:
    open_again = replace(settings, gpu_layers=None, projector_on_gpu=None, context=None)
    choices = _choices(shape, profile, open_again, room, Free(max_pixels=False))
    return any(fits(said, room, of_all=True) for _, said in choices)


def _choices(
    shape: Shape, profile: Profile, settings: EngineSettings, room: Room, free: Free
) -> Iterator[tuple[Profile, Estimate]]:
    """Everything that may be chosen, best first."""
    shares = [float(gpu.free_bytes) for gpu in room.gpus]
    layers: Sequence[int | None] = (settings.gpu_layers,)
    if room.gpus and settings.gpu_layers is None:
        # None is the engine's own choice, all of them.
        layers = (None, *range(len(shape.layers), -1, -1))
    may_place = room.gpus and settings.projector_on_gpu is None
    quantises = free.kv_type and settings.kv_type == "f16" and settings.flash_attention is not False
    for chosen in _profiles(profile) if free.max_pixels else (profile,):
        for count in layers:
            for on_gpu in (True, False) if may_place and count != 0 else (settings.projector_on_gpu,):
                for kv_type in ("f16", "q8_0") if quantises and not settings.exact else (settings.kv_type,):
                    with_these = replace(settings, gpu_layers=count, projector_on_gpu=on_gpu, kv_type=kv_type)
                    yield chosen, estimate(shape, chosen, with_these, gpu_shares=shares)


def _profiles(profile: Profile) -> Iterator[Profile]:
    """The profile, then with smaller pictures, down to the smallest that its checkpoint was meant for."""
    yield profile
    pixels = profile.max_pixels
    while pixels > profile.min_pixels:
        pixels = max(int(pixels * _PIXEL_STEP) // PIXELS_PER_TOKEN * PIXELS_PER_TOKEN, profile.min_pixels)
        yield profile.with_max_pixels(pixels, tool_pixels=min(pixels, profile.tool_max_pixels))


def told(size: int) -> str:
    """Bytes as a person reads them."""
    return f"{size / 1e6:.0f} MB" if size < GB else f"{size / GB:.2f} GB"


def _notes(first: Estimate, said: Estimate, room: Room, *, of_all: bool) -> Iterator[str]:
    """What differs from the best choice, and what to know of it."""
    if said.settings.kv_type != first.settings.kv_type:
        yield "To fit the memory, keys and values are kept as Q8_0 (--kv-type f16 keeps them whole)."
    if said.settings.projector_on_gpu is False and first.settings.projector_on_gpu:
        yield "To fit the GPU's memory, the projector runs on the processor."
    if said.settings.gpu_layers != first.settings.gpu_layers:
        yield f"To fit the GPU's memory, {said.settings.gpu_layers} layers are on it (--gpu-layers N sets how many)."
    if said.max_pixels != first.max_pixels:
        yield (
            f"To fit the memory, frames are shown with at most {said.max_pixels} pixels instead of "
            f"{first.max_pixels}: the judge sees less detail (--max-pixels N sets it)."
        )
    if of_all and said.cpu_bytes > room.free_bytes:
        yield (
            f"Judging takes about {told(said.cpu_bytes)} and {told(room.free_bytes)} are free: "
            "close other programs, or it will be slow."
        )


def _refusal(shape: Shape, profile: Profile, least: Estimate, room: Room) -> str:
    needed = [f"{told(least.cpu_bytes)} of memory"]
    there = [f"{told(room.total_bytes)}"]
    for bytes_, gpu in zip(least.gpu_bytes, room.gpus, strict=True):
        needed.append(f"{told(bytes_)} on {gpu.name}")
        there.append(f"{told(gpu.free_bytes)} free on {gpu.name}")
    asked = f"Judging takes at least {', '.join(needed)}; this machine has {', '.join(there)}."
    return f"{asked} {_advice(shape, profile, least, room)}"
