"""What the run of an evaluation is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vrt_lite.records.judgement import Record
from vrt_lite.records.labelled import Orders

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run


class EvalAbout(Record, frozen=True):
    """The set, the pairs taken from it, and the judge.

    `labels` counts the table's pairs labelled 1, 2 and 0, by KEY. `judge` is the judge's key, `model` the name to show,
    `scope` what the judge says that it sees.
    `left_out` counts the rows that cannot be judged, by kind; `left_out_rows` describes the first of them. `chosen` is
    the number of pairs to judge.
    """

    set: str = ""
    title: str = ""
    split: str = ""
    labels: Mapping[str, tuple[int, int, int]] = {}
    table: str = ""
    table_sha256: str = ""
    folder: str = ""
    judge: str = ""
    model: str = ""
    scope: str = ""
    order: Orders = "given"
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    left_out: Mapping[str, int] = {}
    left_out_rows: tuple[str, ...] = ()
    chosen: int = 0


def read_eval_about(run: Run) -> EvalAbout:
    """Read what an evaluation's run is about; StoreError if it is something else."""
    return run.read_about(EvalAbout, "an evaluation")
