"""The words for what was measured of two clips: a row for each measure, for the terminal and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vrt_lite.measures import MEASURES
from vrt_lite.protocol.verdict import Choice

if TYPE_CHECKING:
    from vrt_lite.measures import MeasuredPair

NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure in words: both videos' values without the unit, and which is better ("alike" if neither)."""

    name: str
    unit: str
    values: tuple[str, str]
    better: Choice | None
    words: str


def list_measure_rows(measures: tuple[MeasuredPair, ...] | None) -> list[MeasureRow]:
    """Put measures in words, in their order; none if nothing was measured."""
    rows: list[MeasureRow] = []
    for pair in measures or ():
        digits = MEASURES[pair.name].digits
        one, two = ("–" if value is None else f"{value:.{digits}f}" for value in pair.values)
        words = NOT_MEASURED if pair.better is None else f"video {pair.better}" if pair.better else "alike"
        rows.append(MeasureRow(pair.name, pair.unit, (one, two), pair.better, words))
    return rows
