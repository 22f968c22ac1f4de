"""What several commands do for a report: check where it goes, write it, open it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.records.judgement import Judgement
    from vrt_lite.runs.run import Run


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
            if not output.is_file():
                raise UsageError(f"The report {output} cannot be written: it is no regular file.")
            if source and source.exists() and output.samefile(source):
                raise UsageError(f"{output} is what the report is made from; write to another file.")
            if not overwrite and b'content="vrt-lite ' not in _read_start(output):
                other = "" if overwrite is None else ", or --overwrite"
                raise UsageError(f"{output} is there and is no report: give another name{other}.")
    except (OSError, ValueError) as error:
        raise UsageError(f"The report {str(output)!r} cannot be written: {error}.") from error
    check_name(output)
    return output


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def write_wanted(
    wanted: WantedReport,
    source: Judgement | Mapping[str, Any] | Run,
    *,
    beside: Path | None = None,
    quiet: bool = False,
) -> None:
    """Write the report, open it if that is wanted, and say so unless `quiet`."""
    from vrt_lite.show.screen import Screen, Status  # noqa: PLC0415
    from vrt_lite.show.wrapping import print_wrapped  # noqa: PLC0415
    from vrt_lite.viewer import write_report  # noqa: PLC0415

    with Screen(quiet=quiet or not wanted.embed) as screen:

        def tell(line: str) -> None:
            screen.show(Status(line))

        write_report(source, wanted.path, beside=beside, embed=tell if wanted.embed else None)
    if not quiet:
        size = wanted.path.stat().st_size / 2**20
        then = "" if wanted.open_it else ": open it in a browser"
        print_wrapped(f"{wanted.path} is written ({size:.1f} MB){then}", sys.stderr)
    if wanted.open_it:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(wanted.path.absolute().as_uri()):
            print_wrapped(f"No browser was found: open {wanted.path} in one.", sys.stderr)


def write_run_report(wanted: WantedReport, name: str, store: Path | None, *, quiet: bool) -> None:
    """Write the report of the run of that name, as `write_wanted` does."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    with Store(store) as opened:
        write_wanted(wanted, opened.run(name), quiet=quiet)
