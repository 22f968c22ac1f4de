"""The command that measures this machine. Parse, call, print; the engine is imported when needed."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.options import say_choice

if TYPE_CHECKING:
    from vrt_lite.fitting.search import Found, Tried, Trying
    from vrt_lite.fitting.tuning import Machine, Tuning

HEADINGS = ("SETTING", "VALUE", "FRAME PAIR", "READS", "WRITES", "SPEED", "")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, corrupt or mismatched, 5 out of memory, 130 interrupted."
_WIDTH = 72
_BUSY = 0.3


@click.command(epilog=STATUS)
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--projector", metavar="FILE", type=click.Path(path_type=Path), help="The projector (mmproj) GGUF.")
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(1, 3600),
    default=60.0,
    help="How long to measure, about. [default: 60]",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was measured as JSON.")
@click.option("--forget", is_flag=True, help="Delete what an earlier run has kept for this model here.")
def tune(model: str | None, *, projector: Path | None, budget: float, as_json: bool, forget: bool) -> None:
    """Measure once which engine settings are quickest for a model on this machine.

    \b
    vrt-lite tune
    vrt-lite tune ./vr-thinker-7b --budget 120

    Tries threads, the projector's types, weight repacking, flash attention, evaluation size and KV type, on an idle
    machine for about a minute; a value that does not win by 5 % is not taken, and one that the engine crashes or hangs
    with is refused. What is found is kept for this model and this machine, and compare uses it. SPEED is that of a
    whole verdict of two rounds against the defaults'.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite import backends  # noqa: PLC0415
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.fitting import tuning  # noqa: PLC0415
    from vrt_lite.models.files import find  # noqa: PLC0415
    from vrt_lite.models.store import disk_errors  # noqa: PLC0415

    files = find(model, projector=projector)
    say_choice(files)
    machine = backends.this_machine()
    if forget:
        with disk_errors():
            there = tuning.forget(files, machine)
        click.echo(safe(f"{files.name}: {'what was measured is deleted' if there else 'nothing was kept'}"))
        return
    # The search begins at the defaults, whatever was found before.
    files = tuning.default_projector(files, lambda: machine)
    if (share := backends.busy()) > _BUSY:
        click.echo(f"this machine is {share:.0%} busy with other work: measure again when it is idle", err=True)
    progress = _Progress(files.name)
    try:
        found, search = backends.tune(files, profile=files.profile, budget_seconds=budget, observe=progress.show)
    finally:
        progress.clear()
    with disk_errors():
        path = tuning.save(found, files, machine)
    if as_json:
        _print_json(files.name, machine, found, search, path)
        return
    from vrt_lite.display.table import show_table  # noqa: PLC0415

    show_table(HEADINGS, [_row(tried) for tried in search.tried])
    ratio = found.default_speed.verdict_seconds / found.speed.verdict_seconds
    click.echo(safe(f"{files.name}: {_words(found)}; {ratio:.2f} times as fast as the defaults"))
    click.echo(safe(f"kept for compare on this machine ({machine.processor}): {path}"), err=True)


class _Progress:
    """A line on stderr that says what is being measured, if that is a terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def show(self, event: Trying | Tried) -> None:
        from vrt_lite.display import safe  # noqa: PLC0415
        from vrt_lite.fitting.search import Trying  # noqa: PLC0415

        if self._live and isinstance(event, Trying):
            line = safe(f"{self._name}: measuring {event.name} {event.value}", encoding=sys.stderr.encoding or "utf-8")
            click.echo(f"\r{line[:_WIDTH]:<{_WIDTH}}", nl=False, err=True)

    def clear(self) -> None:
        if self._live:
            click.echo(f"\r{'':<{_WIDTH}}\r", nl=False, err=True)


def _row(tried: Tried) -> tuple[str, ...]:
    seconds = tried.seconds
    return (
        tried.name,
        tried.value or "-",
        f"{seconds['vision']:.3f} s" if "vision" in seconds else "-",
        f"{1 / seconds['prefill']:.1f} tok/s" if "prefill" in seconds else "-",
        f"{1 / seconds['decode']:.1f} tok/s" if "decode" in seconds else "-",
        f"{tried.ratio:.2f}" if tried.ratio else "-",
        f"{tried.outcome} ({tried.reason})" if tried.reason else tried.outcome,
    )


def _words(tuning: Tuning) -> str:
    attention = {None: "auto", True: "on", False: "off"}[tuning.flash_attention]
    return (
        f"threads {tuning.threads or 'auto'}, repacking {'on' if tuning.repack else 'off'}, "
        f"flash attention {attention}, ubatch {tuning.ubatch}, KV {tuning.kv_type}, projector {tuning.projector}"
    )


def _print_json(name: str, machine: Machine, tuning: Tuning, search: Found, path: Path) -> None:
    import json  # noqa: PLC0415

    table = {
        "model": name,
        "machine": asdict(machine),
        "tuning": asdict(tuning),
        "tried": [asdict(tried) for tried in search.tried],
        "file": str(path),
    }
    click.echo(json.dumps(table, indent=2))
