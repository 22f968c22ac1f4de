"""Fits a judge's temperatures to pairs that it never saw, so that its probabilities are as often right as they say.

Guo et al., "On calibration of modern neural networks", 2017 (arXiv 1706.04599): one temperature for each dimension,
with the least negative log-likelihood of the labels. It changes no winner of one order. A judge that understands some
captions only has others for the rest: with a caption it may be right more often.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from train.assessment.compute_figures import calibration
from train.assessment.outcomes import CaseOutcome
from vrt_lite.disk import write_file
from vrt_lite.errors import UsageError
from vrt_lite.profile import PROFILE_NAME, Profile, load_profile
from vrt_lite.protocol.messages import KEYS, Odds
from vrt_lite.protocol.verdict import soften

FIRST_SEED: Final = 700_000_000
"""The first seed of a test range that is for calibration: evaluations and examinations have others."""
_LEAST, _MOST = 0.05, 100.0
_SMALLEST: Final = 1e-9
_STEPS: Final = 60
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Fitted:
    """The temperature of one dimension, and the expected calibration error on other pairs, before and after."""

    temperature: float
    pairs: int
    before: float
    after: float


def fit_temperatures(outcomes: Sequence[CaseOutcome], current: Mapping[str, float]) -> dict[str, Fitted]:
    """Fit each dimension on every second outcome, and compute the errors on the others.

    `current` are the temperatures with which the outcomes were made: they are taken off first. A dimension for which
    one of the halves has no labelled probabilities is left out.
    """
    found: dict[str, Fitted] = {}
    for key in KEYS:
        known = [case for case in outcomes if case.winners and key in case.odds and key in case.labels]
        raw = [(soften(case.odds[key], 1 / current.get(key, 1.0)), case.labels[key]) for case in known]
        held = [(odds, label, case.winners[key]) for (odds, label), case in list(zip(raw, known, strict=True))[1::2]]
        if not held:
            continue
        best = find_temperature(raw[::2])
        errors = [_calibration_error(held, temperature) for temperature in (current.get(key, 1.0), best)]
        found[key] = Fitted(best, len(held), *errors)
    return found


def find_temperature(labelled: Sequence[tuple[Odds, int]]) -> float:
    """Return the temperature from 0.05 to 100 with the least negative log-likelihood of the labels.

    The likelihood has one peak over the logarithm of the temperature, which golden-section search finds.
    """

    def loss(logarithm: float) -> float:
        temperature = math.exp(logarithm)
        return -fmean(math.log(max(soften(odds, temperature)[label], _SMALLEST)) for odds, label in labelled)

    return math.exp(_search_least(loss, math.log(_LEAST), math.log(_MOST)))


def fit_tables(outcomes: Sequence[CaseOutcome], profile: Profile) -> dict[str, dict[str, Fitted]]:
    """Fit all temperatures of a profile, with which the outcomes were made. Returns the fits by key, by table."""
    understood = [case for case in outcomes if not case.without_caption]
    others = [case for case in outcomes if case.without_caption]
    fits = {
        "temperatures": fit_temperatures(understood, profile.temperatures),
        "temperatures_without_caption": fit_temperatures(
            others, {**profile.temperatures, **profile.temperatures_without_caption}
        ),
    }
    return {table: of for table, of in fits.items() if of}


def write_temperatures(folder: Path, tables: Mapping[str, Mapping[str, float]]) -> Path:
    """Write tables of temperatures to the profile in a folder, and keep all else. Returns the profile's path."""
    path = folder / PROFILE_NAME
    load_profile(path)
    text = path.read_text(encoding="utf-8")
    for table, temperatures in tables.items():
        text = re.sub(rf"(?ms)^\[{table}\][^\n]*\n.*?(?=^\[|\Z)", "", text)
        text = re.sub(rf"(?m)^{table}(\s*=|\.).*\n?", "", text)
        rows = "".join(f"{key} = {value:.4g}\n" for key, value in temperatures.items())
        text = f"{text.rstrip()}\n\n[{table}]\n{rows}"
    written = tomllib.loads(text)
    if any(set(written[table]) != set(temperatures) for table, temperatures in tables.items()):
        raise UsageError(f"{path} cannot be changed: write its temperatures as a table [temperatures].")
    write_file(path, text.encode())
    return path


def describe_fits(tables: Mapping[str, Mapping[str, Fitted]]) -> str:
    """Return a table of what was fitted."""
    rows = [f"{'':4}{'temperature':>12}{'pairs':>8}{'ECE before':>12}{'after':>8}"]
    for table, fits in tables.items():
        rows += ["with a caption that it does not understand, or none:"] if table.endswith("without_caption") else []
        rows += [
            f"{key:4}{of.temperature:12.2f}{of.pairs:8}{of.before:12.3f}{of.after:8.3f}" for key, of in fits.items()
        ]
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
