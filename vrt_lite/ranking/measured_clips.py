"""Measures the clips of a ranking, each once, and keeps what is measured in its run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vrt_lite.errors import VideoError
from vrt_lite.interfaces import Observe, Working
from vrt_lite.measures.flags import Flag, find_flags
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from pathlib import Path

    from vrt_lite.runs.judging import PairJudge
    from vrt_lite.runs.run import Run

_MEASURED = "measured"
"""The kind of the run's items, by the clip's sha256."""


def measure_clips(
    groups: Iterable[ClipGroup], run: Run, judge: PairJudge, observe: Observe
) -> dict[str, tuple[Flag, ...]]:
    """Measure the clips that the run has no measures of; return the flags of all by sha256."""
    known = read_flags(run)
    unknown = {clip.sha256: clip.path for group in groups for clip in group.clips if clip.sha256 not in known}
    if not unknown:
        return known

    def measure(path: Path) -> dict[str, float]:
        try:
            return dict(judge.measure(path))
        except VideoError:  # it cannot be read any more; a judgement of it will say so
            return {}

    observe(Working("measuring the clips"))
    with ThreadPool(2) as pool:
        for sha256, values in zip(unknown, pool.map(measure, unknown.values()), strict=True):
            if values:
                run.put(_MEASURED, sha256, values)
            known[sha256] = find_flags(values)
    return known


def read_flags(run: Run) -> dict[str, tuple[Flag, ...]]:
    """Read the flags of a run's clips, by sha256, as they were measured."""
    return {sha256: find_flags(values) for sha256, values in run.items(_MEASURED)}
