"""Finds the values with which a model is quickest on this machine: each change is tried on the best values so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import psutil

from vrt_lite.backends import describe_machine, read_memory
from vrt_lite.errors import VrtError
from vrt_lite.fitting.time_estimate import count_work
from vrt_lite.machine import EngineSettings
from vrt_lite.models import ModelFiles
from vrt_lite.models.gguf import loses_detail
from vrt_lite.settings import Settings
from vrt_lite.tuning import Tuning, plan_engine
from vrt_lite.tuning.measure import ModelSpeed, check_same, measure_model
from vrt_lite.worker import Worker

Outcome = Literal["default", "taken", "not faster", "no time", "refused"]
Measure = Callable[[Tuning], ModelSpeed]
_SHARE = 0.9
"""A change is taken if a judgement then takes less than this share of the time."""
_MOST_JOBS = 4
_SPARE_BYTES = 2 * 2**30
_MOST_CELLS = 256
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Tried:
    """A change that was tried, what was measured with it, and the seconds of a judgement by that."""

    name: str
    value: str
    outcome: Outcome
    measured: ModelSpeed | None = None
    seconds: float | None = None
    reason: str = ""


def tune(
    files: ModelFiles, measure: Measure, *, budget_seconds: float, show_progress: Callable[[str], None] = lambda _: None
) -> tuple[Tuning, list[Tried]]:
    """Find the values for a model on this machine; saves nothing. After `budget_seconds` nothing new is measured.

    Raises ModelError, OutOfMemoryError, and WorkerEndedError if the engine does not run with its defaults.
    """

    def judge(m: ModelSpeed) -> float:
        encoded, read, written = count_work(files.profile)
        return m.encode * encoded + m.read * read + m.write * written

    end = time.monotonic() + budget_seconds
    show_progress("default")
    best = Tuning(projector=files.projector.name)
    first = measure(best)
    quickest = judge(first)
    tried = [Tried("default", "", "default", first, quickest)]
    for name, value in _list_changes(files):
        changed, told = replace(best, **{name: value}), Tried(name, str(value), "no time")
        if time.monotonic() <= end:
            show_progress(f"{name} {value}")
            try:
                measured = measure(changed)
                check_same(first, measured)
                seconds = judge(measured)
                told = replace(told, outcome="not faster", measured=measured, seconds=seconds)
                if seconds <= _SHARE * quickest:
                    told, best, quickest = replace(told, outcome="taken"), changed, seconds
            except VrtError as error:
                told = replace(told, outcome="refused", reason=str(error))
        tried.append(told)
    return best, tried


def read_cpu_load() -> float:
    """The share of the processor's time, 0 to 1, that other programs use; measures for a third of a second."""
    return psutil.cpu_percent(interval=0.3) / 100


def measure_with(worker: Worker, files: ModelFiles) -> Measure:
    """Return what measures the values of a model in a worker."""
    cells = min(files.profile.max_pixels // files.profile.pixels_per_token, _MOST_CELLS)

    def measure(tuning: Tuning) -> ModelSpeed:
        settings = tuning.apply_to(EngineSettings(sequences=tuning.jobs))
        projector = files.projector.with_name(tuning.projector)
        return worker.call(measure_model, files.text, projector, settings, cells, seconds=_PATIENCE_SECONDS)

    return measure


def _list_changes(files: ModelFiles) -> Iterator[tuple[str, int | bool | str]]:
    """Yield the name and the value of what can be tried. Repacking needs memory for a second copy of the weights."""
    usable = describe_machine().cpus
    physical = psutil.cpu_count(logical=False) or usable
    for count in sorted({min(count, usable) for count in (physical, max(physical // 2, 1))} - {usable}, reverse=True):
        yield "threads", count
    for path in files.projectors:
        if path != files.projector and not loses_detail(path):
            yield "projector", path.name
    if read_memory().free_bytes > files.text.stat().st_size + _SPARE_BYTES:
        yield "repack", True
    most = plan_engine(files, Settings(), sequences=_MOST_JOBS, pairs=_MOST_JOBS).settings.sequences
    for jobs in (2, 4):
        if jobs <= most:
            yield "jobs", jobs
