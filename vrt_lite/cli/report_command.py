"""The command that writes a report, and what other commands do for one: check where it goes, write it, open it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import PATH, open_existing_store, page_options, print_text, store_option
from vrt_lite.disk import open_to_read
from vrt_lite.errors import UsageError
from vrt_lite.machine import format_bytes

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement
    from vrt_lite.runs.store import Run

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

    RUN is a name (see: vrt-lite runs), the beginning of one, or latest, which is the default: the run last used. The
    comparisons of a day are a run too; a page of one of them is made by compare --report FILE.html. A name that ends in
    .json is a file.

    The file contains all that it shows and needs no network. The clips themselves stay where they are, and the page
    plays them while they are there; with --embed it has a copy of each, without sound, of at most 480 pixels and 1 MB.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    if what.lower().endswith(".json"):
        from vrt_lite.records.judgement import Judgement  # noqa: PLC0415

        source = Path(what)
        judged = _read_json(source)
        target = check_target(output or source.with_suffix(".html"), source=source, overwrite=overwrite)
        judgement = Judgement.from_json(judged)
        write_wanted(WantedReport(target, embed, open_it), judgement, beside=source.absolute().parent)
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


@dataclass(frozen=True, slots=True)
class WantedReport:
    """Where to write a report, whether it holds copies of the clips, and whether to open it."""

    path: Path
    embed: bool = False
    open_it: bool = False


def take_report(options: dict[str, Any]) -> WantedReport | None:
    """Take the report that is wanted out of a command's options, if any. UsageError if it cannot be written.

    A report that is only opened lies among the system's temporary files.
    """
    path, embed, open_it = (options.pop(name) for name in ("report", "embed", "open_it"))
    if path is None and not open_it:
        if embed:
            raise UsageError("--embed is about a report: give its --report FILE.html, or --open, as well.")
        return None
    path = path or Path(tempfile.mkdtemp(prefix="vrt-lite-")) / "report.html"
    return WantedReport(check_target(path), embed, open_it)


def check_target(output: Path, *, source: Path | None = None, overwrite: bool | None = None) -> Path:
    """Return where to write. UsageError for the source, and without `overwrite` for a file that is no report.

    A command without that option leaves it None.
    """
    from vrt_lite.viewer import check_name  # noqa: PLC0415

    try:
        if not output.parent.is_dir():
            raise UsageError(f"The report {output} cannot be written: there is no folder {output.parent}.")
        if os.path.lexists(output):
            with open_to_read(output) as file:
                is_report = b'content="vrt-lite ' in file.read(4096)
            if source and output.samefile(source):
                raise UsageError(f"{output} is what the report is made from; write to another file.")
            if not (is_report or overwrite):
                other = "" if overwrite is None else ", or --overwrite"
                raise UsageError(f"{output} is there and is no report: give another name{other}.")
    except (OSError, ValueError) as error:
        raise UsageError(f"The report {str(output)!r} cannot be written: {error}.") from error
    check_name(output)
    return output


def write_wanted(
    wanted: WantedReport,
    source: Judgement | Run,
    *,
    beside: Path | None = None,
    quiet: bool = False,
) -> None:
    """Write the report, open it if that is wanted, and say so unless `quiet`."""
    from vrt_lite.show.screen import Screen, Status  # noqa: PLC0415
    from vrt_lite.viewer import write_report  # noqa: PLC0415

    path = wanted.path
    with Screen(quiet=quiet or not wanted.embed) as screen:

        def tell(line: str) -> None:
            screen.show(Status(line))

        write_report(source, path, beside=beside, embed=tell if wanted.embed else None)
    if not quiet:
        then = "" if wanted.open_it else ": open it in a browser"
        print_text(f"{path} is written ({format_bytes(path.stat().st_size)}){then}", err=True)
    if wanted.open_it:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(path.absolute().as_uri()):
            print_text(f"No browser was found: open {path} in one.", err=True)


def write_run_report(wanted: WantedReport, name: str, store: Path | None, *, quiet: bool) -> None:
    """Write the report of the run of that name, as `write_wanted` does."""
    with open_existing_store(store) as opened:
        write_wanted(wanted, opened.run(name), quiet=quiet)
