"""What a Python program uses beside `compare`: rank clips, evaluate a judge, and read what was judged before.

    >>> from vrt_lite import rank
    >>> ranking = rank(["examples/star.mp4", "examples/circle.mp4"], prompt="A blue star moves up.")
    >>> [clip.name for clip in ranking.ladders[0].ranked]
    ['star.mp4', 'circle.mp4']

Everything is kept in a store of runs, as by the commands `rank` and `eval`: the same call goes on where an earlier one
stopped, and judges nothing twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vrt_lite.api import Judge
from vrt_lite.errors import UsageError
from vrt_lite.evaluation import evaluate as evaluation
from vrt_lite.evaluation.fetching import find_set
from vrt_lite.evaluation.sets import read_set
from vrt_lite.interfaces import Backend
from vrt_lite.machine import MOST_SEQUENCES
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank import RankWatcher, rank_clips
from vrt_lite.ranking.rank_run import Effort, read_groups
from vrt_lite.records.figures import Figures
from vrt_lite.records.labelled import Orders
from vrt_lite.records.ladders import Ladder, Ranking
from vrt_lite.runs.store import Run, Store
from vrt_lite.settings import MOST_JOBS, Remote, Settings


class _Unwatched:
    """A watcher that shows nothing."""

    def observe(self, *_: Any, **__: Any) -> None:
        pass

    begins = judged = count = observe


def rank(
    clips: str | Path | Sequence[str | Path],
    *,
    prompt: str = "",
    model: str | Path | None = None,
    projector: Path | None = None,
    settings: Settings | None = None,
    backend: Backend | Remote | None = None,
    both_orders: bool = True,
    budget: int | None = None,
    confidence: float | None = None,
    exclude_flagged: bool = False,
    jobs: int = 1,
    name: str | None = None,
    store: Store | str | Path | None = None,
    watcher: RankWatcher | None = None,
) -> Ranking:
    """Rank clips made from one prompt, or each group of a table by its own; returns a ladder for each group.

    `clips` are files, folders and patterns, or the path of one table (.csv, .tsv, .jsonl) with the columns clip, prompt
    and group. `model`, `projector`, `settings` and `backend` name the judge, as for `compare`; `both_orders` here
    replaces that of the settings. At most `budget` judgements are made, those of earlier calls included; one judgement
    is one order of one pair. With `confidence` (0.5 to 1) judging stops when each clip is better than the next with
    that probability. Without either, all pairs of up to 12 clips are judged; of more, those that tell most. With
    `exclude_flagged` clips with a measured fault, such as stutter, are left out. `jobs` is
    how many pairs are judged at once, on this machine as far as the memory allows. `name` names the run, by default
    after clips, prompts and judge. `store` is an open store or its file, by default the user's. `watcher` is told of
    the progress.

    Ratings are natural-log odds. Clips that cannot be read are listed in `left_out`, pairs without a verdict count as
    failures. Raises UsageError, VideoError if no two clips can be read, ModelError, OutOfMemoryError, ShortageError,
    StoreError or BackendError: all are VrtError. What was judged before an error or Ctrl-C is kept.
    """
    if not 0.5 < (0.8 if confidence is None else confidence) < 1 or (budget is not None and budget < 1):
        raise UsageError(f"budget={budget} or confidence={confidence} is not possible: at least 1; above 0.5, below 1.")
    paths = [clips] if isinstance(clips, str | Path) else clips
    groups = read_entries([str(path) for path in paths], prompt=prompt)
    effort = Effort(both_orders=both_orders, budget=budget, confidence=confidence, exclude_flagged=exclude_flagged)
    with _open_store(store) as opened, _open_judge(model, projector, settings, backend, jobs, opened) as judge:
        return rank_clips(groups, store=opened, judge=judge, watcher=watcher or _Unwatched(), effort=effort, name=name)


def evaluate(
    labelled: str | Path,
    *,
    folder: Path | None = None,
    split: str | None = None,
    order: Orders = "given",
    limit: int | None = None,
    sample: int | None = None,
    budget: int | None = None,
    model: str | Path | None = None,
    projector: Path | None = None,
    settings: Settings | None = None,
    backend: Backend | Remote | None = None,
    jobs: int = 1,
    name: str | None = None,
    store: Store | str | Path | None = None,
    watcher: evaluation.EvalWatcher | None = None,
) -> evaluation.Evaluation:
    """Compare a judge with a labelled set of pairs; returns its figures.

    `labelled` is a published set's name, its folder, or a table with the columns a, b, prompt, and overall, TA, VQ or
    MQ; `folder` is where the set, or the table's clips, lie. Nothing is fetched. `order` says which clip is shown
    first: "given" (A), "swapped" (B), "random" or "both". `limit` takes the first pairs only, `sample` that many drawn
    by the settings' seed. At most `budget` judgements are made now; the same call goes on. The other arguments, and the
    errors, are those of `rank`. Accuracies are shares from 0 to 1. A pair whose clips are missing or broken is counted
    as a failure.
    """
    if min(limit or 1, sample or 1) < 1 or 0 in (limit, sample) or (budget or 0) < 0:
        raise UsageError(f"limit={limit}, sample={sample} or budget={budget} is not possible: at least 1, 1 and 0.")
    if order not in ("given", "swapped", "random", "both"):
        raise UsageError(f"order={order!r} is not one of given, swapped, random and both.")
    found = read_set(find_set(str(labelled), split=split, folder=folder))
    settings = settings or Settings()
    settings = replace(settings, preset=settings.preset or found.place.layout.preset)
    selection = evaluation.PairSelection(order, limit, sample, settings.seed, budget)
    with _open_store(store) as opened, _open_judge(model, projector, settings, backend, jobs, opened) as judge:
        return evaluation.evaluate(
            found, selection, store=opened, judge=judge, watcher=watcher or _Unwatched(), name=name
        )


def read_ladders(run: Run) -> tuple[Ladder, ...]:
    """Return the ladder of each group of a ranking's run, by what is judged so far. StoreError for another run."""
    return tuple(rate_group(group) for group in read_groups(run))


def read_figures(run: Run) -> Figures:
    """Return the figures of an evaluation's run, by what is judged so far. StoreError for another run."""
    return evaluation.figures_of(run)


@contextlib.contextmanager
def _open_store(store: Store | str | Path | None) -> Generator[Store]:
    """Open a store, or take one that is open, which stays so."""
    if isinstance(store, Store):
        yield store
    else:
        with Store(None if store is None else Path(store)) as opened:
            yield opened


def _open_judge(
    model: str | Path | None,
    projector: Path | None,
    settings: Settings | None,
    backend: Backend | Remote | None,
    jobs: int,
    store: Store,
) -> Judge:
    """Open a judge of one order at a time. UsageError for more jobs than it can have."""
    most = MOST_JOBS if isinstance(backend, Remote) else MOST_SEQUENCES if backend is None else 1
    if not 1 <= jobs <= most:
        raise UsageError(
            f"jobs={jobs} is not possible: up to {MOST_SEQUENCES} on this machine, {MOST_JOBS} on a server (a Remote), "
            "1 with a back end of your own."
        )
    one_order = replace(settings or Settings(), both_orders=False)
    options: dict[str, Any] = {"digest": store.digest, "jobs": jobs}
    return Judge(model, projector=projector, settings=one_order, backend=backend, **options)
