"""The command that measures this machine. Parse, call, print; the engine is imported when needed."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli import KeptArgument
from vrt_lite.cli.options import complete_models, print_chosen_file, print_json, print_text

if TYPE_CHECKING:
    from vrt_lite.tuning import Tuning
    from vrt_lite.tuning.search import Tried

HEADINGS = ("SETTING", "VALUE", "FRAME PAIR", "READS", "WRITES", "SPEED", "")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, corrupt or mismatched, 5 out of memory, 130 interrupted."
_BUSY = 0.3


@click.command(epilog=STATUS)
@click.argument("model", metavar="[MODEL]", required=False, cls=KeptArgument, shell_complete=complete_models)
@click.option("--projector", metavar="FILE", type=click.Path(path_type=Path), help="The projector (mmproj) GGUF.")
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(1, 3600),
    default=60.0,
    help="How long to measure, about. [default: 60]",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was measured as JSON.")
@click.option("--forget", is_flag=True, help="Delete what an earlier run saved for this model here.")
def tune(model: str | None, *, projector: Path | None, budget: float, as_json: bool, forget: bool) -> None:
    """Measure which engine settings are quickest for a model.

    \b
    vrt-lite tune
    vrt-lite tune ./vr-thinker-7b --budget 120

    Tries threads, the projector's types, weight repacking, flash attention, evaluation size, KV type, and judging 2
    and 4 pairs at once (jobs), on an idle machine for about a minute. A value that does not win by 5 % is not taken,
    and one with which the engine crashes or hangs is refused. The result is saved for this model and this machine:
    compare uses it, rank and eval the number of jobs too. SPEED is that of a whole verdict of two rounds, relative to
    the defaults; of jobs WRITES counts the tokens of all.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.backends import describe_machine  # noqa: PLC0415
    from vrt_lite.disk import disk_errors  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.tuning import choose_projector, delete_tuning, save_tuning  # noqa: PLC0415

    files = find(model, projector=projector)
    print_chosen_file(files)
    machine = describe_machine()
    if forget:
        with disk_errors():
            deleted = delete_tuning(files, machine)
        print_text(f"{files.name}: {'what was measured is deleted' if deleted else 'nothing was kept'}")
        return
    from vrt_lite.show.table import show_table  # noqa: PLC0415
    from vrt_lite.show.wrapping import rewrite_line  # noqa: PLC0415
    from vrt_lite.tuning import tune as measuring  # noqa: PLC0415

    # The search begins at the defaults, whatever was found before.
    files = choose_projector(files, lambda: machine, as_tuned=False)
    if (share := measuring.read_cpu_load()) > _BUSY:
        click.echo(f"this machine is {share:.0%} busy with other work: measure again when it is idle", err=True)

    def show_progress(change: str) -> None:
        rewrite_line(f"{files.name}: measuring {change}", sys.stderr)

    try:
        tuning, search = measuring.tune(
            files, profile=files.profile, budget_seconds=budget, show_progress=show_progress
        )
    finally:
        rewrite_line("", sys.stderr)
    with disk_errors():
        path = save_tuning(tuning, files, machine)
    if as_json:
        table = {
            "model": files.name,
            "machine": asdict(machine),
            "tuning": asdict(tuning),
            "tried": [asdict(tried) for tried in search.tried],
            "file": str(path),
        }
        print_json(table)
        return
    show_table(HEADINGS, [_row(tried) for tried in search.tried])
    ratio = tuning.default_speed.verdict_seconds / tuning.speed.verdict_seconds
    print_text(f"{files.name}: {_describe(tuning)}; {ratio:.2f} times as fast as the defaults")
    print_text(f"kept for this machine ({machine.processor}): {path}", err=True)


def _row(tried: Tried) -> tuple[str, ...]:
    seconds = tried.seconds
    written = "together" if "together" in seconds else "decode"
    return (
        tried.name,
        tried.value or "-",
        f"{seconds['vision']:.3f} s" if "vision" in seconds else "-",
        f"{1 / seconds['prefill']:.1f} tok/s" if "prefill" in seconds else "-",
        f"{1 / seconds[written]:.1f} tok/s" if written in seconds else "-",
        f"{tried.ratio:.2f}" if tried.ratio else "-",
        f"{tried.outcome} ({tried.reason})" if tried.reason else tried.outcome,
    )


def _describe(tuning: Tuning) -> str:
    attention = {None: "auto", True: "on", False: "off"}[tuning.flash_attention]
    return (
        f"threads {tuning.threads or 'auto'}, repacking {'on' if tuning.repack else 'off'}, "
        f"flash attention {attention}, ubatch {tuning.ubatch}, KV {tuning.kv_type}, projector {tuning.projector}, "
        f"jobs {tuning.jobs}"
    )
