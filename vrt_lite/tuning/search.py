"""Finds the engine settings that make a verdict quickest, by trying one change at a time. Measures nothing itself.

The search is greedy: each change is tried on the best settings so far. Measurements are noisy, so a change must win
twice by its margin: its slower time is compared with the quicker time of the best settings. A change for which no time
is left is not made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from vrt_lite.errors import VrtError
from vrt_lite.machine import EngineSettings
from vrt_lite.tuning import GENERATED, PAIRS, PREFILLED, Speed

Stage = Literal["vision", "prefill", "decode", "together"]
Outcome = Literal["default", "taken", "not faster", "no time", "refused"]
Seconds = dict[Stage, float]
"""By stage: for a frame pair, for a token read, for a token written, for one of several written together."""
STAGES: tuple[Stage, ...] = ("vision", "prefill", "decode")
"""What a single judgement goes through."""
_TEXT: tuple[Stage, ...] = ("prefill", "decode")
_MARGIN, _KV_MARGIN = 0.05, 0.10
_JOBS: Final = (2, 4)
MOST_TRIED_JOBS: Final = _JOBS[-1]
"""The most judgements at once that are tried."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The values that can be tuned. `jobs` is how many judgements are made at once."""

    settings: EngineSettings
    projector: Path
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Change:
    """One change to try. `stages` are those that it can affect.

    `effort` is the time of a measurement, loading included, as a multiple of the time with the defaults.
    """

    name: str
    value: str
    apply: Callable[[Setup], Setup]
    stages: tuple[Stage, ...]
    margin: float = _MARGIN
    effort: float = 1.0


@dataclass(frozen=True, slots=True)
class Tried:
    """A change that was tried, and the seconds measured. `ratio` is the default's time for a verdict to this one's."""

    name: str
    value: str
    outcome: Outcome
    seconds: Seconds
    ratio: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best setup, its speed, the speed of the default setup, and all that was tried."""

    setup: Setup
    speed: Speed
    default_speed: Speed
    tried: tuple[Tried, ...]


ShowProgress = Callable[[str], None]
"""Called with the name and value of each change before it is measured."""
Measure = Callable[[Setup, tuple[Stage, ...]], Seconds]
"""Measures some stages of a setup. VrtError if the setup cannot be used."""


def search(
    start: Setup,
    changes: Iterable[Change],
    *,
    measure: Measure,
    budget_seconds: float,
    show_progress: ShowProgress = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Try the changes within the budget. VrtError if the start cannot be measured."""
    end = clock() + budget_seconds
    show_progress("default")
    began = clock()
    default = measure(start, STAGES)
    stage_duration = (clock() - began) / len(STAGES)
    best, cost = start, default
    tried = [Tried("default", "", "default", default, 1.0)]
    for change in changes:
        setup = change.apply(best)
        if not setup.settings.is_supported:
            continue
        show_progress(f"{change.name} {change.value}")
        latest = end - change.effort * stage_duration * len(change.stages)
        outcome, seconds, reason = _try(
            change, setup, best, cost, measure=measure, has_time=lambda latest=latest: clock() <= latest
        )
        ratio = _verdict_seconds(default) / _verdict_seconds(cost | seconds, change.stages) if seconds else None
        tried.append(Tried(change.name, change.value, outcome, seconds, ratio, reason))
        if outcome == "taken":
            best, cost = setup, cost | seconds
    return SearchResult(best, _speed(cost), _speed(default), tuple(tried))


def list_changes(
    start: Setup,
    projectors: Sequence[Path],
    *,
    physical_cpus: int,
    usable_cpus: int,
    most_jobs: Callable[[], int],
    repack_fits: Callable[[], bool],
    long_prefill: Callable[[], bool],
) -> Iterator[Change]:
    """Yield what to try: first what takes little time to try or often helps.

    Repacking needs memory for a second copy of the weights. Larger evaluations make a difference only if the measured
    prefill is as long. Quantised keys and values are less accurate, so they must win by twice the margin. At most
    `most_jobs` judgements can be made at once.
    """

    def setting(**values: object) -> Callable[[Setup], Setup]:
        return lambda best: replace(best, settings=replace(best.settings, **values))

    most = most_jobs()
    for jobs in (jobs for jobs in _JOBS if jobs <= most):
        yield Change("jobs", str(jobs), lambda best, jobs=jobs: replace(best, jobs=jobs), ("together",), effort=2.0)
    counts = {min(count, usable_cpus) for count in (physical_cpus, max(physical_cpus // 2, 1))} - {usable_cpus}
    for count in sorted(counts, reverse=True):
        yield Change("threads", str(count), setting(threads=count), STAGES)
    for path in projectors:
        if path != start.projector:
            yield Change("projector", path.name, lambda best, path=path: replace(best, projector=path), ("vision",))
    if repack_fits():
        yield Change("repack", "on", setting(repack=True), _TEXT, effort=2.0)
    yield Change("flash attention", "on", setting(flash_attention=True), STAGES)
    yield Change("flash attention", "off", setting(flash_attention=False), STAGES)
    if long_prefill():
        yield Change("ubatch", "1024", setting(ubatch=1024), _TEXT)
    yield Change("kv type", "q8_0", setting(kv_type="q8_0"), _TEXT, margin=_KV_MARGIN)


def _try(
    change: Change, setup: Setup, best: Setup, cost: Seconds, *, measure: Measure, has_time: Callable[[], bool]
) -> tuple[Outcome, Seconds, str]:
    """Whether a change is better than the best setup so far, what was measured, and why it was not taken."""
    seconds: Seconds = {}
    if not has_time():
        return "no time", seconds, ""
    try:
        seconds = measure(setup, change.stages)
        if not _wins(change, seconds, cost):
            return "not faster", seconds, ""
        if not has_time():
            return "no time", seconds, "for a second look"
        again, other = measure(setup, change.stages), measure(best, change.stages)
    except VrtError as error:
        return "refused", seconds, str(error)
    slower: Seconds = {stage: max(seconds[stage], again[stage]) for stage in change.stages}
    mean: Seconds = {stage: (seconds[stage] + again[stage]) / 2 for stage in change.stages}
    quicker: Seconds = {stage: min(cost.get(stage, cost["decode"]), other[stage]) for stage in change.stages}
    return "taken" if _wins(change, slower, cost | quicker) else "not faster", mean, ""


def _wins(change: Change, seconds: Seconds, cost: Seconds) -> bool:
    before, after = (_verdict_seconds(of, change.stages) for of in (cost, cost | seconds))
    return after < (1 - change.margin) * before


def _verdict_seconds(seconds: Seconds, stages: tuple[Stage, ...] = STAGES) -> float:
    """Seconds of a verdict; of one of several that are written together if that is one of the stages."""
    written = seconds.get("together", seconds["decode"]) if "together" in stages else seconds["decode"]
    return PAIRS * seconds["vision"] + PREFILLED * seconds["prefill"] + GENERATED * written


def _speed(seconds: Seconds) -> Speed:
    return Speed(seconds["vision"], 1 / seconds["prefill"], 1 / seconds["decode"])
