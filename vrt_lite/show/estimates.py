"""Shows what judging with a model would take: one quant by part and by effort, or all quants in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vrt_lite.interfaces import TimeRange
from vrt_lite.machine import SPARE_BYTES, MachineMemory, format_bytes
from vrt_lite.show.words import format_range, show_table

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.fitting.pull_options import PullOption

_PLAN: Final = ("PIXELS", "KV", "MEMORY", "GPU", "ON THE GPU", "TIME")


@dataclass(frozen=True, slots=True)
class Estimated:
    """One quant of a model as it would run: how many layers it has, the plan, and why it does not fit ("" if it does).

    A model that is not here has an `option`, the quant that a pull brings. `time` is that of a judgement; None where it
    is not known.
    """

    name: str
    layers: int
    plan: EnginePlan
    refusal: str
    option: PullOption | None = None
    time: TimeRange | None = None

    @property
    def shown_time(self) -> str:
        """The time in words; empty if it is not known."""
        return format_range(self.time) if self.time else ""


def show_parts(estimated: Estimated, memory: MachineMemory) -> None:
    """Print what each part takes, and what is free."""
    estimate = estimated.plan.estimate
    gpu = memory.gpu if estimate.gpu_bytes else None
    sizes = [
        *((name, *taken) for name, taken in estimate.terms.items() if any(taken)),
        ("in all", estimate.cpu_bytes, estimate.gpu_bytes),
        ("free here", memory.free_bytes, gpu.free_bytes if gpu else 0),
    ]
    rows = [(name, format_bytes(cpu), format_bytes(on_gpu) if gpu else "") for name, cpu, on_gpu in sizes]
    show_table(("MEMORY FOR", "PROCESSOR", gpu.name if gpu else ""), rows)


def describe_settings(estimated: Estimated) -> str:
    """What the estimate is for, in a line."""
    settings, estimate = estimated.plan.settings, estimated.plan.estimate
    return (
        f"for context {estimate.context} tokens, {estimate.profile.max_pixels} pixels a frame, keys and values "
        f"{settings.kv_type}, repacked weights {'on' if settings.repack else 'off'}"
        f"{f', on the GPU {_describe_offload(estimated)}' if estimate.gpu_bytes else ''}"
    )


def show_efforts(efforts: Mapping[str, Estimated]) -> None:
    """Print a row for each effort: what it limits, and the memory and the time that it takes, as far as it is known."""
    rows: list[Sequence[str]] = []
    for effort, of in efforts.items():
        profile = of.plan.profile
        limits = (str(profile.rounds), str(profile.max_new_tokens))
        rows.append((effort, *limits, *_list_plan(of), "no" if of.refusal else "yes"))
    show_table(("EFFORT", "ROUNDS", "REPLY", *_PLAN, "FITS"), rows)


def show_quants(found: Sequence[Estimated], *, free_disk_bytes: int) -> None:
    """Print a row for each quant that can be pulled: disk, memory, settings, time, and whether it fits."""
    rows: list[Sequence[str]] = []
    for of in found:
        if option := of.option:
            short = ["memory"] if of.refusal else []
            short += ["disk"] if option.most + SPARE_BYTES > free_disk_bytes else []
            disk = map(format_bytes, (option.fetched, option.stays, option.most))
            fits = f"no: {', '.join(short)}" if short else "yes"
            rows.append((option.quant, *disk, *_list_plan(of), fits))
    show_table(("QUANT", "FETCHED", "STAYS", "DISK AT MOST", *_PLAN, "FITS"), rows)


def _list_plan(of: Estimated) -> Sequence[str]:
    """List what is chosen, and the memory and the time that it takes, below the headings of `_PLAN`."""
    estimate = of.plan.estimate
    gpu = (format_bytes(estimate.gpu_bytes), _describe_offload(of)) if estimate.gpu_bytes else ("", "")
    chosen = (str(estimate.profile.max_pixels), of.plan.settings.kv_type)
    return *chosen, format_bytes(estimate.cpu_bytes), *gpu, of.shown_time


def _describe_offload(estimated: Estimated) -> str:
    """What is on GPUs, in words."""
    settings = estimated.plan.settings
    if settings.gpu_layers == 0:
        return "nothing"
    count, most = settings.gpu_layers, estimated.layers + 1
    layers = "all layers" if count is None or count >= most else f"{count} of {most} layers"
    return layers if settings.projector_on_gpu is False else f"{layers}, projector"
