"""Rank many clips: entries in, pairs judged, ratings out. What is heavy is imported by the module that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

__all__ = ["show"]


def show(run: Run, stream: TextIO) -> None:
    """Print the leaderboard of a stored ranking, by what is there of it now."""
    from vrt_lite.display.leaderboard import show_ladders  # noqa: PLC0415
    from vrt_lite.ranking.ladder import rank  # noqa: PLC0415
    from vrt_lite.ranking.rank import contests_of, left_out_of  # noqa: PLC0415

    show_ladders(tuple(map(rank, contests_of(run))), left_out_of(run), run=run.name, stream=stream)
