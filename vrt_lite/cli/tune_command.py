"""The command that measures this machine. Parse, call, print; the engine is imported when needed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.options import (
    Real,
    json_option,
    model_argument,
    print_json,
    print_text,
    projector_option,
)

if TYPE_CHECKING:
    from vrt_lite.tuning.tune import Tried

HEADINGS = ("SETTING", "A JUDGEMENT", "SPEED", "")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, corrupt or mismatched, 5 out of memory, 130 interrupted."


@click.command(epilog=STATUS)
@model_argument
@projector_option
@click.option(
    "--budget",
    metavar="SECONDS",
    type=Real(1, 3600),
    default=120.0,
    help="How long to measure, about. [default: 120]",
)
@json_option
@click.option("--forget", is_flag=True, help="Delete what an earlier run saved for this model here.")
def tune(model: str | None, *, projector: Path | None, budget: float, as_json: bool, forget: bool) -> None:
    """Measure which engine settings are quickest for a model.

    \b
    vrt-lite tune
    vrt-lite tune ./vr-thinker-7b --budget 120

    Tries threads, the projector's types, weight repacking, and judging 2 and 4 pairs at once (jobs), on an idle
    machine for about two minutes. A value is taken if a judgement takes 10 % less time with it; one with which the
    engine crashes or hangs is refused. The result is saved for this model and this machine: compare uses it, rank
    and eval the number of jobs too. SPEED is that of a whole judgement, relative to the defaults.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.backends import describe_machine  # noqa: PLC0415
    from vrt_lite.disk import disk_errors  # noqa: PLC0415
    from vrt_lite.fitting.memory_estimate import count_work  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.tuning import keep, tuning_path  # noqa: PLC0415

    files, machine = find(model, projector=projector), describe_machine()
    path = tuning_path(files, machine)
    if forget:
        kept = path.exists()
        with disk_errors():
            path.unlink(missing_ok=True)
        print_text(f"{files.name}: {'what was measured is deleted' if kept else 'nothing was kept'}")
        return
    from vrt_lite.show.screen import Screen, Status  # noqa: PLC0415
    from vrt_lite.tuning.tune import PATIENCE_SECONDS, TAKEN, measure_model  # noqa: PLC0415
    from vrt_lite.tuning.tune import tune as find_quickest  # noqa: PLC0415
    from vrt_lite.worker import Worker  # noqa: PLC0415

    tried: list[Tried] = []
    with Screen() as screen, Worker() as worker:
        screen.show(Status(f"{files.name}: measuring the defaults"))
        measure = partial(worker.call, measure_model, files, count_work(files.profile), seconds=PATIENCE_SECONDS)
        for each in find_quickest(files, measure, budget_seconds=budget):
            tried.append(each)
            screen.show(Status(f"{files.name}: measuring; {each.change} {each.outcome}"))
    *_, tuning = (each.tuning for each in tried if each.outcome == TAKEN)
    with disk_errors():
        keep(path, tuning)
    if as_json:
        print_json({"model": files.name, "machine": machine, "tuning": tuning, "file": path, "tried": tried})
        return
    from vrt_lite.show.words import show_table  # noqa: PLC0415

    default, *_ = taken = [each.seconds or 0.0 for each in tried if each.outcome == TAKEN]
    show_table(HEADINGS, [_row(each, default) for each in tried])
    print_text(
        f"{files.name}: threads {tuning.threads or 'auto'}, repacking {'on' if tuning.repack else 'off'}, "
        f"projector {tuning.projector}, jobs {tuning.jobs}; {default / taken[-1]:.2f} times as fast as the defaults"
    )
    print_text(f"kept for this machine ({machine.processor}): {path}", err=True)


def _row(tried: Tried, default_seconds: float) -> tuple[str, ...]:
    measured = (f"{tried.seconds:.1f} s", f"{default_seconds / tried.seconds:.2f}") if tried.seconds else ("-", "-")
    return tried.change, *measured, tried.outcome
