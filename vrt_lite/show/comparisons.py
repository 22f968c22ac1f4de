"""The comparisons of a run: clips that were compared pair by pair, each pair with a prompt of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from vrt_lite.protocol.verdict import Preference
from vrt_lite.show.table import show_table
from vrt_lite.show.words import write_headline
from vrt_lite.show.wrapping import write_lines

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

_HEADINGS = ("VIDEO 1", "VIDEO 2", "RESULT", "ORDERS", "PROMPT")


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """Two clips, by name, their prompt, and the overall result of `orders` orders; with an `error` instead if none.

    `words` say the result as a sentence without its full stop.
    """

    first: str
    second: str
    prompt: str
    overall: Preference | None
    orders: int
    error: str
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def list_comparisons(run: Run) -> Iterator[ComparedPair]:
    """Yield the comparisons of a run, in the order first judged."""
    for pair in run.pairs():
        judgement = run.read_pair(pair)
        first, second = (clip.name for clip in judgement.inputs) if judgement else (pair.first[:12], pair.second[:12])
        error = "" if judgement else pair.errors[0]
        words = write_headline(judgement.verdict, (first, second)) if judgement else f"No verdict: {error}"
        yield ComparedPair(first, second, pair.prompt, pair.overall, sum(map(bool, pair.verdicts)), error, words)


def show_comparisons(run: Run, *, judge: str, stream: TextIO | None = None) -> None:
    """Print a line for each comparison, then the judge's and the run's names."""
    to = stream or sys.stdout
    show_table(_HEADINGS, [_list_cells(pair) for pair in list_comparisons(run)], stream=to)
    write_lines([*([f"judge: {judge}"] if judge else []), f"run: {run.name}"], to)


def _list_cells(pair: ComparedPair) -> tuple[str, ...]:
    prompt = " ".join(pair.prompt.split())
    return (pair.first, pair.second, pair.words, str(pair.orders or ""), prompt)
