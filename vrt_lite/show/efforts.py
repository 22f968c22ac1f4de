"""What judging takes with each effort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vrt_lite.interfaces import TimeRange
from vrt_lite.machine import format_bytes
from vrt_lite.show.table import show_table
from vrt_lite.show.words import format_range

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.settings import EffortName


@dataclass(frozen=True, slots=True)
class EffortEstimate:
    """What judging takes with an effort, as planned for this machine, and whether that fits.

    `time` is that of a judgement; None if that is not known.
    """

    effort: EffortName
    plan: EnginePlan
    fits: bool
    time: TimeRange | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        profile, estimate = self.plan.profile, self.plan.estimate
        return {
            "effort": self.effort,
            "max_pixels": profile.max_pixels,
            "tool_max_pixels": profile.tool_max_pixels,
            "first_frames": profile.first_frames,
            "rounds": profile.rounds,
            "max_new_tokens": profile.max_new_tokens,
            "context": estimate.context,
            "bytes": estimate.cpu_bytes,
            "gpu_bytes": list(estimate.gpu_bytes),
            "fits": self.fits,
            "seconds": self.time and asdict(self.time),
        }


def show_efforts(efforts: Sequence[EffortEstimate]) -> None:
    """Print a row for each effort: what it limits, and the memory and the time that it takes, as far as it is known."""
    timed = ("TIME",) if any(effort.time for effort in efforts) else ()
    gpu = ("GPU",) if any(effort.plan.estimate.gpu_bytes for effort in efforts) else ()
    rows: list[tuple[str, ...]] = []
    for effort in efforts:
        profile, estimate = effort.plan.profile, effort.plan.estimate
        limits = (profile.max_pixels, profile.rounds, profile.max_new_tokens)
        sizes = (estimate.cpu_bytes, *([sum(estimate.gpu_bytes)] if gpu else ()))
        time = [format_range(effort.time) if effort.time else "─"] if timed else []
        fits = "yes" if effort.fits else "no"
        rows.append((effort.effort, *map(str, limits), *map(format_bytes, sizes), *time, fits))
    show_table(("EFFORT", "PIXELS", "ROUNDS", "REPLY", "MEMORY", *gpu, *timed, "FITS"), rows)
