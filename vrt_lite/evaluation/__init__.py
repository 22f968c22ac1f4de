"""Evaluation: a judge held to a labelled preference set.

`tables` and `layouts` read a set, `sets` finds it, `clips` finds its clips, `fetching` brings it from the hub;
`evaluate` has it judged and keeps a `Case` a pair in the run; `metrics` and `figures` count; `wording`, `summary` and
`plots` show. The shape of `run.about["figures"]` is drawn in `figures`. Importing does no work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

__all__ = ["figures_of", "show"]


def show(run: Run, stream: TextIO) -> None:
    """Print an eval run's figures: tables on a terminal, aligned plain lines for all else."""
    from vrt_lite.evaluation.summary import show_figures  # noqa: PLC0415

    show_figures(figures_of(run), stream=stream)


def figures_of(run: Run) -> dict[str, Any]:
    """An eval run's figures, also of one that has not ended; their shape is drawn in `vrt_lite.evaluation.figures`."""
    from vrt_lite.evaluation.evaluate import figures_of as made  # noqa: PLC0415

    return made(run)
