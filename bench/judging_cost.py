"""Compares the cost of verdicts and of a ranking on all sides, stage by stage.

It says which judgements are made and in what order the sides run. `bench.side` runs a side.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench.measurements import Figure, Report
from bench.side import COUNTERS, SIDES, STAGES, Job, frame_size, run

_WORDS = {1: "One-round", 2: "Two-round", 3: "Three-round"}
_READ_BYTES = 16 * 2**20


def verdict(job: Job, sides: Sequence[str], *, rounds: Sequence[int], repeat: int) -> Report:
    """Measure a verdict of each number of rounds by each side. The order of the sides turns with every repetition.

    The two clips of a verdict are new to every process, so that no side has anything cached before.
    """
    read_ahead(job.files)
    present, notes = _present(sides, job)
    figures: list[Figure] = []
    detail: dict[str, Any] = {}
    for count in rounds:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in present}
        for turn in range(repeat):
            for side in present if turn % 2 == 0 else reversed(present):
                result = run(replace(job, side=side, plan=((0, 1, count),)))
                found[side].append(result)
                _progress(f"{_WORDS[count]} verdict", side, result["judgements"][0]["whole"])
        figures += _stages(f"{count} rounds", found, headline=f"{_WORDS[count]} verdict")
        figures.append(_peak(f"{count} rounds", found))
        notes += [f"{count} rounds, {side}: {_counted(found[side][0]['judgements'])}" for side in present]
        detail[f"{count} rounds"] = found
    return Report("verdict", _title("A verdict", job), _options(job, repeat=repeat), figures, notes, detail)


def rank(job: Job, *, clips: int, rounds: int, sample: int | None, order: Sequence[str]) -> Report:
    """Measure all ordered pairs of clips, in one process a side.

    The stock side may do only `sample` of the judgements.
    """
    read_ahead(job.files)
    pairs = list(permutations(range(clips), 2))
    plan = tuple((a, b, rounds) for a, b in pairs)
    picked = plan[:: max(len(plan) // sample, 1)][:sample] if sample else plan
    share = len(plan) / len(picked)
    found: dict[str, list[dict[str, Any]]] = {}
    present, absent = _present(order, job)
    for side in present:
        found[side] = [run(replace(job, side=side, plan=picked if side == "stock" else plan))]
        _progress("Ranking", side, sum(j["whole"] for j in found[side][0]["judgements"]))
    sides = [side for side in SIDES if side in found]
    found = {side: found[side] for side in sides}
    scale = {side: share if side == "stock" else 1.0 for side in sides}
    title = f"{clips} clips in all ordered pairs, {len(plan)} judgements"
    figures = _stages("all", found, headline=f"{len(plan)} judgements", scale=scale)
    notes = [f"{side}: {_counted(found[side][0]['judgements'])}" for side in sides] + absent
    if "stock" in sides and share > 1:
        notes.append(f"stock: measured on {len(picked)} judgements of {len(plan)}, its figures times {share:g}")
    options = _options(job, clips=clips, rounds=rounds, sample=sample)
    return Report("rank", _title(title, job), options, [*figures, _peak("all", found)], notes, found)


def read_ahead(files: Sequence[str]) -> None:
    """Read files once, so that no side pays for the disk."""
    for name in files:
        with Path(name).open("rb") as file:
            while file.read(_READ_BYTES):
                pass


def _present(sides: Sequence[str], job: Job) -> tuple[list[str], list[str]]:
    """Return the sides that can run, vrt-lite's first, and why the others cannot."""
    reason = ""
    if not job.checkpoint:
        reason = "no --checkpoint of this shape was given (python -m bench checkpoint)"
    elif missing := [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]:
        reason = f'{" and ".join(missing)} not installed (pip install -e ".[parity]")'
    reasons = {"transformers": reason, "former": "" if job.former else "no --former directory was given"}
    present = [side for side in sides if not reasons.get(side)]
    return present, [f"{side}: not measured: {reasons[side]}" for side in sides if side not in present]


def _stages(
    name: str,
    found: dict[str, list[dict[str, Any]]],
    *,
    headline: str,
    scale: dict[str, float] | None = None,
) -> list[Figure]:
    """Compute the seconds of each stage and of the whole, as medians of the repetitions.

    The processor's time says more than the clock's on a machine with other work. A former state may not measure it.
    """

    def seconds(side: str, stage: str) -> float:
        totals = [sum(j.get(stage, nan) for j in result["judgements"]) for result in found[side]]
        return median(totals) * (scale or {}).get(side, 1.0)

    sides = sorted(found, key=lambda side: side != "ours")
    return [
        Figure(
            f"{name}, {stage}",
            "s",
            {side: value for side in sides if not isnan(value := seconds(side, stage))},
            headline if stage == "whole" else "",
        )
        for stage in (*STAGES, "whole", "processor")
    ]


def _peak(name: str, found: dict[str, list[dict[str, Any]]]) -> Figure:
    # transformers loads in F32 for any type of computation, so its peak has no meaning.
    sides = [side for side in sorted(found, key=lambda side: side != "ours") if side != "transformers"]
    values = {side: max(result["peak_resident_bytes"] for result in found[side]) / 1e9 for side in sides}
    return Figure(f"{name}, peak memory", "GB", values)


def _counted(judgements: Sequence[dict[str, Any]]) -> str:
    totals = {name: sum(judgement[name] for judgement in judgements) for name in COUNTERS}
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in totals.items() if count)


def _title(what: str, job: Job) -> str:
    width, height = frame_size(job.max_pixels)
    return f"{what}: {Path(job.text).stem}, frames of {width}x{height}, {job.threads} threads"


def _options(job: Job, **more: Any) -> dict[str, Any]:
    return {
        "text": Path(job.text).name,
        "projector": Path(job.projector).name,
        "stock_projector": Path(job.stock_projector or job.projector).name,
        "max_pixels": job.max_pixels,
        "frame_size": list(frame_size(job.max_pixels)),
        "threads": job.threads,
        "stock_context": job.stock_context,
        "dtype": job.dtype,
        "engine": dict(job.engine),
        **more,
    }


def _progress(what: str, side: str, seconds: float) -> None:
    click.echo(f"{what}, {side}: {seconds:.1f} s", err=True)
