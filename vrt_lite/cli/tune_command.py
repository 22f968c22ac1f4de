"""The command that measures this machine. Parse, call, print; the engine is imported when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.options import (
    json_option,
    model_argument,
    print_json,
    print_text,
    projector_option,
)

if TYPE_CHECKING:
    from vrt_lite.tuning import Tuning
    from vrt_lite.tuning.tune import Tried

HEADINGS = ("SETTING", "VALUE", "ENCODES", "READS", "WRITES", "SPEED", "")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, corrupt or mismatched, 5 out of memory, 130 interrupted."
_BUSY = 0.3


@click.command(epilog=STATUS)
@model_argument
@projector_option
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(1, 3600),
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
    and eval the number of jobs too. SPEED is that of a whole judgement, relative to the defaults; of jobs WRITES
    counts the tokens of all.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.backends import describe_machine  # noqa: PLC0415
    from vrt_lite.disk import disk_errors  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.tuning import choose_projector, save_tuning, tuning_path  # noqa: PLC0415

    files = find(model, projector=projector)
    machine = describe_machine()
    if forget:
        path = tuning_path(files, machine)
        kept = path.exists()
        with disk_errors():
            path.unlink(missing_ok=True)
        print_text(f"{files.name}: {'what was measured is deleted' if kept else 'nothing was kept'}")
        return
    from vrt_lite.show.screen import Screen, Status  # noqa: PLC0415
    from vrt_lite.tuning.tune import measure_with, read_cpu_load  # noqa: PLC0415
    from vrt_lite.tuning.tune import tune as find_quickest  # noqa: PLC0415
    from vrt_lite.worker import Worker  # noqa: PLC0415

    # The search begins at the defaults, whatever was found before.
    files = choose_projector(files, lambda: machine, as_tuned=False)
    if (share := read_cpu_load()) > _BUSY:
        click.echo(f"this machine is {share:.0%} busy with other work: measure again when it is idle", err=True)

    with Screen() as screen, Worker() as worker:

        def show_progress(change: str) -> None:
            screen.show(Status(f"{files.name}: measuring {change}"))

        measure = measure_with(worker, files)
        tuning, tried = find_quickest(files, measure, budget_seconds=budget, show_progress=show_progress)
    with disk_errors():
        path = save_tuning(tuning, files, machine)
    if as_json:
        told: dict[str, object] = {"model": files.name, "machine": machine, "tuning": tuning, "file": str(path)}
        print_json(told | {"tried": [_to_json(each) for each in tried]})
        return
    _show(files.name, tuning, tried)
    print_text(f"kept for this machine ({machine.processor}): {path}", err=True)


def _show(name: str, tuning: Tuning, tried: Sequence[Tried]) -> None:
    from vrt_lite.show.table import show_table  # noqa: PLC0415

    default, *_ = taken = [each.seconds or 0.0 for each in tried if each.outcome in ("default", "taken")]
    show_table(HEADINGS, [_row(each, default) for each in tried])
    print_text(
        f"{name}: threads {tuning.threads or 'auto'}, repacking {'on' if tuning.repack else 'off'}, "
        f"projector {tuning.projector}, jobs {tuning.jobs}; {default / taken[-1]:.2f} times as fast as the defaults"
    )


def _row(tried: Tried, default_seconds: float) -> tuple[str, ...]:
    m, seconds = tried.measured, tried.seconds
    speeds = (f"{1 / each:.1f} tok/s" for each in (m.encode, m.read, m.write)) if m else "---"
    ratio = f"{default_seconds / seconds:.2f}" if seconds else "-"
    outcome = f"{tried.outcome} ({tried.reason})" if tried.reason else tried.outcome
    return tried.name, tried.value or "-", *speeds, ratio, outcome


def _to_json(tried: Tried) -> dict[str, object]:
    m = tried.measured
    speeds = m and {"encode": 1 / m.encode, "read": 1 / m.read, "write": 1 / m.write}
    told: dict[str, object] = {name: getattr(tried, name) for name in ("name", "value", "outcome", "seconds", "reason")}
    return told | {"tokens_a_second": speeds}
