"""The words for what was measured of two clips: a row for each measure, for the terminal and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vrt_lite.measures import MEASURES
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.report import MEASURED_KEYS
from vrt_lite.protocol.verdict import Choice, describe

if TYPE_CHECKING:
    from vrt_lite.measures import MeasuredPair
    from vrt_lite.records.judgement import Judgement

NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure in words: both videos' values without the unit, and which is better ("alike" if neither)."""

    name: str
    unit: str
    values: tuple[str, str]
    better: Choice | None
    words: str


def describe_measured(judgement: Judgement) -> list[str]:
    """Say what measuring finds in a pair: which video it prefers, and what is wrong with one where that is sure.

    "by measuring: overall video 1 (0.97), VQ video 1 (0.98), MQ tie (0.91)"; "found in video 2: blocks, strong". A
    preference that the verdict takes over is not said twice.
    """
    measured = judgement.measured
    if not measured:
        return []
    said: list[str] = []
    for key in MEASURED_KEYS:
        preference = measured.preferences[key]
        if judgement.verdict.preferences.get(key) != preference:
            words = f"{describe(preference, with_share=False)} ({measured.odds[key][preference.choice]:.2f})"
            said.append(f"{'overall' if key == OVERALL else key} {words}")
    found = [f"video {fault.video}: {fault.name}, {fault.strength}" for fault in measured.faults]
    return [*([f"by measuring: {', '.join(said)}"] if said else []), *(f"found in {fault}" for fault in found)]


def split_measure_rows(measures: tuple[MeasuredPair, ...] | None) -> tuple[list[MeasureRow], str]:
    """Return the rows of the measures that tell the clips apart, or are missing, and the names of those alike."""
    rows = list_measure_rows(measures)
    return [row for row in rows if row.better != 0], ", ".join(row.name for row in rows if row.better == 0)


def list_measure_rows(measures: tuple[MeasuredPair, ...] | None) -> list[MeasureRow]:
    """Put measures in words, in their order; none if nothing was measured."""
    rows: list[MeasureRow] = []
    for pair in measures or ():
        digits = MEASURES[pair.name].digits
        one, two = ("–" if value is None else f"{value:.{digits}f}" for value in pair.values)
        words = NOT_MEASURED if pair.better is None else f"video {pair.better}" if pair.better else "alike"
        rows.append(MeasureRow(pair.name, pair.unit, (one, two), pair.better, words))
    return rows
