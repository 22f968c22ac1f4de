"""Shows what judging with a model would take: one quant by part, or all quants in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vrt_lite.interfaces import TimeRange
from vrt_lite.machine import SPARE_BYTES, MachineMemory, format_bytes
from vrt_lite.show.table import show_table
from vrt_lite.show.words import format_range

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.fitting.pull_options import DiskUse


@dataclass(frozen=True, slots=True)
class Estimated:
    """One quant of a model as it would run: how many layers it has, the plan, and why it does not fit ("" if it does).

    A model that is not here has a `quant`, and `disk` is what a pull takes of the disk. `time` is that
    of a judgement; None where it is not known.
    """

    name: str
    layers: int
    plan: EnginePlan
    refusal: str
    quant: str = ""
    disk: DiskUse | None = None
    time: TimeRange | None = None

    @property
    def notes(self) -> list[str]:
        """What a user should know: what was changed to make it fit, why it does not."""
        return [note for note in (*(w.text for w in self.plan.warnings), self.refusal) if note]


def show_parts(estimated: Estimated, memory: MachineMemory) -> None:
    """Print what each part takes, and what is free."""
    estimate = estimated.plan.estimate
    gpus = memory.gpus if estimate.gpu_bytes else ()
    sizes = [(term.name, term.cpu, *term.gpus) for term in estimate.terms if term.cpu or any(term.gpus)]
    sizes.append(("in all", estimate.cpu_bytes, *estimate.gpu_bytes))
    sizes.append(("free here", memory.free_bytes, *(gpu.free_bytes for gpu in gpus)))
    rows = [(name, *map(format_bytes, counts)) for name, *counts in sizes]
    show_table(("MEMORY FOR", "PROCESSOR", *(gpu.name for gpu in gpus)), rows)


def describe_settings(estimated: Estimated) -> str:
    """What the estimate is for, in a line."""
    settings, estimate = estimated.plan.settings, estimated.plan.estimate
    return (
        f"for context {estimate.context} tokens, {estimate.max_pixels} pixels a frame, keys and values "
        f"{settings.kv_type}, repacked weights {'on' if settings.repack else 'off'}"
        f"{f', on the GPU {describe_offload(estimated)}' if estimate.gpu_bytes else ''}"
    )


def describe_time(estimated: Estimated) -> str:
    """How long a judgement takes, in a line; empty if it is not known."""
    return f"a pair takes {format_range(estimated.time)} here, in one order" if estimated.time else ""


def show_quants(found: Sequence[Estimated], memory: MachineMemory, *, free_disk_bytes: int) -> None:
    """Print a row for each quant that can be pulled: disk, memory, settings, time, and whether it fits."""
    gpu = ("GPU", "ON THE GPU") if memory.gpus else ()
    timed = ("A PAIR",) if any(estimated.time for estimated in found) else ()
    headings = ("QUANT", "FETCHED", "STAYS", "DISK AT MOST", "PROCESSOR", *gpu, "PIXELS", "KV", *timed, "FITS")
    rows: list[tuple[str, ...]] = []
    for estimated in found:
        plan, disk = estimated.plan, estimated.disk
        short = ["memory"] if estimated.refusal else []
        if disk and disk.most + SPARE_BYTES > free_disk_bytes:
            short.append("disk")
        rows.append(
            (
                estimated.quant,
                *map(format_bytes, (disk.fetched, disk.stays, disk.most) if disk else ()),
                format_bytes(plan.estimate.cpu_bytes),
                *((format_bytes(sum(plan.estimate.gpu_bytes)), describe_offload(estimated)) if gpu else ()),
                str(plan.estimate.max_pixels),
                plan.settings.kv_type,
                *([format_range(estimated.time) if estimated.time else "-"] if timed else []),
                f"no: {', '.join(short)}" if short else "yes",
            )
        )
    show_table(headings, rows)


def describe_offload(estimated: Estimated) -> str:
    """What is on GPUs, in words."""
    settings = estimated.plan.settings
    if settings.gpu_layers == 0:
        return "nothing"
    count, most = settings.gpu_layers, estimated.layers + 1
    layers = "all layers" if count is None or count >= most else f"{count} of {most} layers"
    return layers if settings.projector_on_gpu is False else f"{layers}, projector"
