"""The comparisons of a run: clips that were compared pair by pair, each pair with a prompt of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from vrt_lite.show.pair_words import write_headline
from vrt_lite.show.table import show_table
from vrt_lite.show.wrapping import write_lines

if TYPE_CHECKING:
    from vrt_lite.records.pairs import JudgedPair
    from vrt_lite.runs.run import Run

_HEADINGS = ("VIDEO 1", "VIDEO 2", "RESULT", "ORDERS", "PROMPT")


def describe_pair(run: Run, pair: JudgedPair) -> dict[str, Any]:
    """Describe a comparison as plain data: two clips by name, their prompt, and the overall result of `orders` orders.

    `words` say the result as a sentence without its full stop; `overall` is null, with an `error`, without a verdict.
    """
    judgement = run.read_pair(pair)
    first, second = (clip.name for clip in judgement.inputs) if judgement else (pair.first[:12], pair.second[:12])
    error = "" if judgement else pair.errors[0]
    return {
        "id": pair.id,
        "first": first,
        "second": second,
        "sha256": [pair.first, pair.second],
        "prompt": pair.prompt,
        "overall": pair.overall and asdict(pair.overall),
        "orders": len(judgement.orders) if judgement else 0,
        "error": error,
        "words": write_headline(judgement.verdict, (first, second)) if judgement else f"No verdict: {error}",
        "judge": judgement.model.name if judgement else str(run.about.get("model", "")),
        "run": run.name,
    }


def list_comparisons(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of a run, in the order first judged."""
    return (describe_pair(run, pair) for pair in run.pairs())


def show_comparisons(run: Run, *, judge: str, stream: TextIO | None = None) -> None:
    """Print a line for each comparison, then the judge's and the run's names."""
    to = stream or sys.stdout
    show_table(_HEADINGS, [_list_cells(pair) for pair in list_comparisons(run)], stream=to)
    write_lines([*([f"judge: {judge}"] if judge else []), f"run: {run.name}"], to)


def _list_cells(pair: dict[str, Any]) -> tuple[str, ...]:
    prompt = " ".join(pair["prompt"].split())
    return (pair["first"], pair["second"], pair["words"], str(pair["orders"] or ""), prompt)
