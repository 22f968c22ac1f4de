"""Fits a judge's temperatures to pairs that it never saw, so that its probabilities are as often right as they say.

Guo et al., "On calibration of modern neural networks", 2017 (arXiv 1706.04599): a temperature with the least negative
log-likelihood of the labels, here one for the winners and one for the ties of each dimension, since ties are right less
often, and others for pairs whose caption the judge does not understand. It changes no winner of one order.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from train.assessment.compute_figures import calibration
from train.assessment.outcomes import CaseOutcome
from vrt_lite.disk import write_file
from vrt_lite.errors import UsageError
from vrt_lite.profile import PROFILE_NAME, load_profile
from vrt_lite.protocol.messages import KEYS, Odds
from vrt_lite.protocol.verdict import TIE_SUFFIX, UNREAD_SUFFIX, choose_temperature, soften

FIRST_SEED: Final = 700_000_000
"""The first seed of a test range that is for calibration: evaluations have others."""
_LEAST, _MOST = 0.05, 100.0
_SMALLEST: Final = 1e-9
_STEPS: Final = 60
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Fitted:
    """The temperature of a dimension's winners or ties, and the calibration error on other pairs, before and after."""

    temperature: float
    pairs: int
    before: float
    after: float


def fit_temperatures(
    outcomes: Sequence[CaseOutcome], current: Mapping[str, float], *, unread: Collection[str] = ()
) -> dict[str, Fitted]:
    """Fit each temperature on every second outcome that it is for, and compute the errors on the others.

    `current` are the temperatures with which the outcomes were made: they are taken off first. `unread` are the keys of
    the cases whose caption the judge does not understand. What has no labelled probabilities in one of the halves is
    left out.
    """
    found: dict[str, Fitted] = {}
    for key, not_read, tie in product(KEYS, (False, True), (False, True)):
        known = [
            case
            for case in outcomes
            if case.winners and key in case.odds and key in case.labels
            if tie == (case.winners[key] == 0) and not_read == (case.key in unread)
        ]
        now = choose_temperature(current, key, 0 if tie else 1, unread=not_read)
        raw = [(soften(case.odds[key], 1 / now), case.labels[key]) for case in known]
        held = [(odds, label, case.winners[key]) for (odds, label), case in list(zip(raw, known, strict=True))[1::2]]
        if not held:
            continue
        best = find_temperature(raw[::2])
        errors = [_calibration_error(held, temperature) for temperature in (now, best)]
        name = key + (TIE_SUFFIX if tie else "") + (UNREAD_SUFFIX if not_read else "")
        found[name] = Fitted(best, len(held), *errors)
    return found


def find_temperature(labelled: Sequence[tuple[Odds, int]]) -> float:
    """Return the temperature from 0.05 to 100 with the least negative log-likelihood of the labels.

    The likelihood has one peak over the logarithm of the temperature, which golden-section search finds.
    """

    def loss(logarithm: float) -> float:
        temperature = math.exp(logarithm)
        return -fmean(math.log(max(soften(odds, temperature)[label], _SMALLEST)) for odds, label in labelled)

    return math.exp(_search_least(loss, math.log(_LEAST), math.log(_MOST)))


def write_temperatures(folder: Path, temperatures: Mapping[str, float]) -> Path:
    """Write temperatures to the profile in a folder, and keep all else as it is. Returns the profile's path."""
    path = folder / PROFILE_NAME
    load_profile(path)
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(?ms)^\[temperatures\][^\n]*\n.*?(?=^\[|\Z)", "", text)
    text = re.sub(r"(?m)^temperatures(\s*=|\.).*\n?", "", text)
    rows = "".join(f"{key} = {value:.4g}\n" for key, value in temperatures.items())
    text = f"{text.rstrip()}\n\n[temperatures]\n{rows}"
    if set(tomllib.loads(text)["temperatures"]) != set(temperatures):
        raise UsageError(f"{path} cannot be changed: write its temperatures as a table [temperatures].")
    write_file(path, text.encode())
    return path


def describe_fits(fits: Mapping[str, Fitted]) -> str:
    """Return a table of what was fitted."""
    rows = [f"{'':14}{'temperature':>12}{'pairs':>8}{'ECE before':>12}{'after':>8}"]
    rows += [f"{key:14}{of.temperature:12.2f}{of.pairs:8}{of.before:12.3f}{of.after:8.3f}" for key, of in fits.items()]
    return "\n".join(rows)


def _calibration_error(held: Sequence[tuple[Odds, int, int]], temperature: float) -> float:
    rows = [(soften(odds, temperature)[winner], winner == label) for odds, label, winner in held]
    figures: dict[str, Any] = calibration(rows)
    return figures["ece"]


def _search_least(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one valley is least, by golden-section search."""
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    values = [loss(place) for place in inner]
    for _ in range(_STEPS):
        if values[0] <= values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - _GOLDEN * (high - low)
            values[0] = loss(inner[0])
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + _GOLDEN * (high - low)
            values[1] = loss(inner[1])
    return (low + high) / 2
