"""Finds the engine settings that make a verdict quickest, by trying one at a time. Pure; measures nothing itself.

Greedy: each setting in turn is tried with the best of those before it. Measurements are noisy, so the burden of proof
is on the new one: it replaces what is there only if it wins by its margin twice, its slower time against the other's
quicker. What the budget does not reach stays as it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import VrtError
from vrt_lite.fitting.tuning import PAIRS, PREFILLED, WRITTEN, Speed, legal

Stage = Literal["vision", "prefill", "decode"]
Outcome = Literal["default", "taken", "not faster", "no time", "refused"]
Seconds = dict[Stage, float]
"""By stage: of a frame pair, of a token read, of a token written."""
STAGES: tuple[Stage, ...] = ("vision", "prefill", "decode")
UNITS: Mapping[Stage, int] = {"vision": PAIRS, "prefill": PREFILLED, "decode": WRITTEN}
MARGIN, KV_MARGIN = 0.05, 0.10
_TEXT: tuple[Stage, ...] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Setup:
    """What can be tuned."""

    settings: EngineSettings
    projector: Path


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting and the values to try, given what is best so far.

    `stages` are those that it can change, the most telling first; `effort` how much longer than the first measurement
    one takes, opening included.
    """

    name: str
    options: Callable[[Setup], Mapping[str, Setup]]
    stages: tuple[Stage, ...]
    margin: float = MARGIN
    effort: float = 1.0


@dataclass(frozen=True, slots=True)
class Trying:
    """A value is about to be measured."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A value that was tried, and the seconds that were measured. `ratio` is a whole verdict's to the defaults'."""

    name: str
    value: str
    outcome: Outcome
    seconds: Seconds
    ratio: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search: the setup, the speed with it, the speed at the start, and all that was tried."""

    setup: Setup
    speed: Speed
    default_speed: Speed
    tried: tuple[Tried, ...]


Watch = Callable[[Trying | Tried], None]
Measure = Callable[[Setup, Stage], float]
"""Seconds of one unit of a stage: a frame pair, a token read, a token written. VrtError if it cannot be used."""


def search(
    start: Setup,
    axes: Sequence[Axis],
    *,
    measure: Measure,
    budget_seconds: float,
    observe: Watch = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Try all axes within the budget; `observe` is told of each value. VrtError if the start cannot be measured."""
    end = clock() + budget_seconds
    took: Seconds = {}

    def timed(setup: Setup, stage: Stage) -> float:
        began = clock()
        seconds = measure(setup, stage)
        took.setdefault(stage, clock() - began)
        return seconds

    observe(Trying("default", ""))
    first: Seconds = {stage: timed(start, stage) for stage in STAGES}
    best, cost = start, first.copy()
    tried = [Tried("default", "", "default", first, 1.0)]
    observe(tried[0])
    for axis in axes:
        for value, setup in axis.options(best).items():
            observe(Trying(axis.name, value))
            needed = axis.effort * sum(took[stage] for stage in axis.stages)
            outcome, seconds, reason = _try(axis, setup, best, cost, timed, lambda n=needed: end - clock() - n)
            # A setting that was stopped early has no ratio: not all of it is known.
            whole = set(seconds) == set(axis.stages)
            ratio = _total(first) / _total(_merged(cost, seconds)) if whole else None
            tried.append(Tried(axis.name, value, outcome, seconds, ratio, reason))
            observe(tried[-1])
            if outcome == "taken":
                best, cost = setup, _merged(cost, seconds)
    return Found(best, _speed(cost), _speed(first), tuple(tried))


def _try(
    axis: Axis,
    setup: Setup,
    best: Setup,
    cost: Seconds,
    measure: Measure,
    spare: Callable[[], float],
) -> tuple[Outcome, Seconds, str]:
    """Whether one value is better than the best so far, and what was measured of it.

    `spare` is how much of the budget one more measurement of all its stages would leave.
    """
    seconds: Seconds = {}
    if spare() < 0:
        return "no time", seconds, ""
    try:
        for stage in axis.stages:
            seconds[stage] = measure(setup, stage)
            rest = sum(UNITS[s] * cost[s] for s in axis.stages if s not in seconds)
            lost = sum(UNITS[s] * (seconds[s] - cost[s]) for s in seconds)
            if rest and lost > rest / 2:  # even half of the rest would not make up for it
                return "not faster", seconds, ""
        if not _wins(seconds, cost, axis.margin):
            return "not faster", seconds, ""
        if spare() < 0:
            return "no time", seconds, "for a second look"
        again: Seconds = {stage: measure(setup, stage) for stage in axis.stages}
        other: Seconds = {stage: min(cost[stage], measure(best, stage)) for stage in axis.stages}
    except VrtError as error:
        return "refused", seconds, str(error)
    slower: Seconds = {stage: max(seconds[stage], again[stage]) for stage in axis.stages}
    both: Seconds = {stage: (seconds[stage] + again[stage]) / 2 for stage in axis.stages}
    return "taken" if _wins(slower, _merged(cost, other), axis.margin) else "not faster", both, ""


def _wins(seconds: Seconds, cost: Seconds, margin: float) -> bool:
    return _total(_merged(cost, seconds)) < (1 - margin) * _total(cost)


def _merged(cost: Seconds, seconds: Seconds) -> Seconds:
    """What a whole verdict costs, with the stages that were measured anew."""
    return {stage: seconds.get(stage, cost[stage]) for stage in STAGES}


def _total(seconds: Seconds) -> float:
    return math.fsum(UNITS[stage] * seconds[stage] for stage in STAGES)


def _speed(seconds: Seconds) -> Speed:
    return Speed(seconds["vision"], 1 / seconds["prefill"], 1 / seconds["decode"])


def axes(
    projectors: Sequence[Path],
    *,
    physical_cpus: int,
    usable_cpus: int,
    repack_fits: Callable[[], bool],
    long_prefill: Callable[[], bool],
) -> tuple[Axis, ...]:
    """What to try, in this order: what costs little to try or often pays first.

    Repacking needs memory for a second copy of the weights; a larger evaluation shows only with a prefill as long.
    Quantised keys and values are less accurate, so speed alone must speak for them twice as clearly.
    """

    def one(
        name: str, when: Callable[[], bool] = lambda: True, **values: object
    ) -> Callable[[Setup], dict[str, Setup]]:
        def option(best: Setup) -> dict[str, Setup]:
            setup = replace(best, settings=replace(best.settings, **values))
            return {name: setup} if legal(setup.settings) and when() else {}

        return option

    counts = {min(count, usable_cpus) for count in (physical_cpus, max(physical_cpus // 2, 1))} - {usable_cpus}

    def attention(best: Setup) -> dict[str, Setup]:
        return one("on", flash_attention=True)(best) | one("off", flash_attention=False)(best)

    def threads(best: Setup) -> dict[str, Setup]:
        return {str(n): replace(best, settings=replace(best.settings, threads=n)) for n in sorted(counts, reverse=True)}

    def types(best: Setup) -> dict[str, Setup]:
        return {path.name: replace(best, projector=path) for path in projectors if path != best.projector}

    return (
        Axis("threads", threads, ("prefill", "decode", "vision")),
        Axis("projector", types, ("vision",)),
        Axis("repack", one("on", repack_fits, repack=True), _TEXT, effort=2.0),
        Axis("flash attention", attention, ("vision", *_TEXT)),
        Axis("ubatch", one("1024", long_prefill, ubatch=1024), _TEXT),
        Axis("kv type", one("q8_0", kv_type="q8_0"), _TEXT, margin=KV_MARGIN),
    )
