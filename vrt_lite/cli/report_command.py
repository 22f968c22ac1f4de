"""The command that writes a report. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from vrt_lite.cli.options import print_text
from vrt_lite.cli.run_options import open_existing_store, store_option
from vrt_lite.disk import open_to_read
from vrt_lite.errors import UsageError

STATUS = "Exit status: 0 written, 2 usage, 7 the store is damaged, or cannot be read or written, 130 interrupted."
_LARGEST = 64 * 2**20


@click.command(epilog=STATUS)
@click.argument("what", metavar="RUN|FILE.json")
@click.option(
    "-o",
    "--output",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="Where to. [default: the run's, or the file's, name with .html]",
)
@store_option
@click.option("--overwrite", is_flag=True, help="Replace FILE.html even if it is no report.")
def report(what: str, *, output: Path | None, store: Path | None, overwrite: bool) -> None:
    """Write one HTML file that shows a run, or what compare --json printed.

    \b
    vrt-lite compare a.mp4 b.mp4 --json > ab.json
    vrt-lite report ab.json -o ab.html
    vrt-lite report foxes -o foxes.html

    The file contains all that it shows and needs no network. The clips themselves stay where they are: the page plays
    them while they are there. A name that ends in .json is a file, any other name is a run (see: vrt-lite runs).
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.show.pages import write_report  # noqa: PLC0415

    if what.lower().endswith(".json"):
        source = Path(what)
        target = _check_target(output or source.with_suffix(".html"), source, overwrite=overwrite)
        write_report(_read_json(source), target, beside=source.absolute().parent)
    else:
        with open_existing_store(store) as opened:
            run = opened.run(what)
            if output is None and Path(run.name).name != run.name:
                raise UsageError(f"The run's name {run.name!r} is no file name. Give -o FILE.html.")
            target = _check_target(output or Path(f"{run.name}.html"), opened.path, overwrite=overwrite)
            write_report(run, target)
    size = target.stat().st_size / 2**20
    print_text(f"{target} is written ({size:.1f} MB): open it in a browser", err=True)


def _check_target(output: Path, source: Path, *, overwrite: bool) -> Path:
    """Return where to write. UsageError for the source, and without `overwrite` for a file that is no report."""
    try:
        if not output.parent.is_dir():
            raise UsageError(f"The report {output} cannot be written: there is no folder {output.parent}.")
        if os.path.lexists(output):
            if not output.is_file():
                raise UsageError(f"The report {output} cannot be written: it is no regular file.")
            if source.exists() and output.samefile(source):
                raise UsageError(f"{output} is what the report is made from; write to another file.")
            if not overwrite and not _is_report(output):
                raise UsageError(f"{output} is there and is no report: give another name, or --overwrite.")
    except (OSError, ValueError) as error:
        raise UsageError(f"The report {str(output)!r} cannot be written: {error}.") from error
    return output


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return b'content="vrt-lite ' in file.read(4096)


def _read_json(path: Path) -> Any:
    """Read the JSON in a file; UsageError if there is none."""
    import json  # noqa: PLC0415

    try:
        with open_to_read(path) as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"{path} is larger than {_LARGEST >> 20} MB: no judgement is.")
        return json.loads(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON ({error}). Give what vrt-lite compare --json printed.") from error
