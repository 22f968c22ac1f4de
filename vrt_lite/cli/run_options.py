"""The options of the commands that make runs or read them: how many pairs at once, and which store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli import KeptOption, find_sources
from vrt_lite.cli.options import auto_or_number, open_judge
from vrt_lite.errors import UsageError
from vrt_lite.machine import MOST_SEQUENCES
from vrt_lite.settings import MOST_JOBS, Remote

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.runs.store import Store
    from vrt_lite.settings import EffortName, Settings

jobs_option = click.option(
    "--jobs",
    cls=KeptOption,
    metavar="AUTO|N",
    type=auto_or_number("jobs"),
    help=f"Pairs judged at once: here at most {MOST_SEQUENCES}, if memory allows, with --backend {MOST_JOBS}. "
    "[default: auto: what tune found, else 1]",
)
"""The command calls `choose_jobs` with its value."""


def choose_jobs(jobs: int | None, model: str | None, projector: Path | None, backend: Remote | None) -> int:
    """Return how many jobs to use: by default what `tune` found for the model here, 1 if there is nothing.

    UsageError for more than the judge can use.
    """
    if jobs is None:
        from vrt_lite.tuning import find_tuning  # noqa: PLC0415

        tuning = None if backend else find_tuning(model, projector)
        return tuning.jobs if tuning else 1
    if jobs > MOST_SEQUENCES and backend is None and find_sources()["jobs"] == "option":
        raise UsageError(
            f"--jobs {jobs} is too many: on this machine at most {MOST_SEQUENCES} pairs are judged at once, and "
            f"{MOST_JOBS} on a server (--backend URL)."
        )
    return jobs if backend else min(jobs, MOST_SEQUENCES)


def open_run_judge(
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
    settings: Settings,
    store: Store,
    *,
    log: bool,
    quiet: bool,
    jobs: int,
) -> Judge:
    """Open the judge of many pairs, in a process of its own. The store remembers files' digests."""
    options: dict[str, Any] = {"verbose": log, "quiet": quiet, "jobs": jobs, "digest": store.digest}
    return open_judge(model, projector, backend, settings, process=True, **options)


def print_effort(effort: EffortName) -> None:
    """Print what a run was judged with, unless it is the model's own."""
    if effort != "full":
        click.echo(f"judged with effort {effort}, not with the model's own pixels, rounds and length of replies")


store_option = click.option(
    "--store", metavar="FILE", type=click.Path(path_type=Path), help="The store of runs. [default: the user's]"
)


def open_existing_store(path: Path | None) -> Store:
    """Open the store, the user's own without a path. UsageError if a path is given and nothing is there."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    if path is not None and not os.path.lexists(path):
        raise UsageError(f"There is no store {path}. Give the --store that rank or eval was given.")
    return Store(path)
