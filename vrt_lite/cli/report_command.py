"""The command that writes a report. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vrt_lite.cli.options import PATH, open_existing_store, page_options, store_option
from vrt_lite.cli.report_writing import WantedReport, check_target, write_wanted
from vrt_lite.disk import open_to_read
from vrt_lite.errors import UsageError

STATUS = "Exit status: 0 written, 2 usage, 7 the store is damaged, or cannot be read or written, 130 interrupted."


@click.command(epilog=STATUS)
@click.argument("what", metavar="[RUN|FILE.json]", default="latest")
@click.option(
    "-o",
    "--output",
    metavar="FILE.html",
    type=PATH,
    help="Where to. [default: the run's, or the file's, name with .html]",
)
@page_options
@store_option
@click.option("--overwrite", is_flag=True, help="Replace FILE.html even if it is no report.")
def report(what: str, *, output: Path | None, embed: bool, open_it: bool, store: Path | None, overwrite: bool) -> None:
    """Write a run, or what compare --json printed, as a page.

    \b
    vrt-lite report --open
    vrt-lite report foxes -o foxes.html --embed
    vrt-lite compare a.mp4 b.mp4 --json > ab.json
    vrt-lite report ab.json -o ab.html

    RUN is a name (see: vrt-lite runs), the beginning of one, or latest, which is the default: the run of rank or eval
    that was used last. compare keeps no run: give it --report FILE.html. A name that ends in .json is a file.

    The file contains all that it shows and needs no network. The clips themselves stay where they are, and the page
    plays them while they are there; with --embed it has a copy of each, without sound, of at most 480 pixels and 1 MB.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    if what.lower().endswith(".json"):
        source = Path(what)
        judged = _read_json(source)
        target = check_target(output or source.with_suffix(".html"), source=source, overwrite=overwrite)
        write_wanted(WantedReport(target, embed, open_it), judged, beside=source.absolute().parent)
        return
    with open_existing_store(store) as opened:
        run = opened.run(what)
        if output is None and Path(run.name).name != run.name:
            raise UsageError(f"The run's name {run.name!r} is no file name. Give -o FILE.html.")
        target = check_target(output or Path(f"{run.name}.html"), source=opened.path, overwrite=overwrite)
        write_wanted(WantedReport(target, embed, open_it), run)


def _read_json(path: Path) -> Any:
    """Read the JSON in a file; UsageError if there is none."""
    import json  # noqa: PLC0415

    try:
        with open_to_read(path) as file:
            return json.load(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON ({error}). Give what vrt-lite compare --json printed.") from error
