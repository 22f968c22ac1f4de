"""Writes a report of a judgement or of a run. Knows which parts a page has; each part knows how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_lite.errors import UsageError
from vrt_lite.report.case import Case, read_case
from vrt_lite.report.page import draft_of, write_content, write_end, write_foot, write_head
from vrt_lite.report.pair import Setting, address, headline, pair_page
from vrt_lite.report.pictures import Album, places_of

if TYPE_CHECKING:
    from vrt_lite.runs.store import Run

_ROOM = 2_300_000
"""Bytes of pictures in the report of one pair: with all else it stays under 3 MB."""


def write_report(source: Mapping[str, Any] | Run, path: Path, *, beside: Path | None = None) -> None:
    """Write a report of a judgement's JSON, or of a run in a store, to `path`.

    A clip is looked for where it was judged, then relative to the folder `beside`, then in it. UsageError for what is
    no judgement, and for a file that is no .html or cannot be written.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The report {path} cannot be written: a report is HTML. Give a name that ends in .html.")
    if isinstance(source, Mapping):
        _write_pair(read_case(source), path, beside)
    else:
        from vrt_lite.report.runs import write_run  # noqa: PLC0415 - numpy only for a run

        write_run(source, path, beside=beside)


def _write_pair(case: Case, path: Path, beside: Path | None) -> None:
    wanted = {(still.video, still.source) for order in case.orders for turn in order.turns for still in turn.stills}
    album = Album(room=_ROOM, most=_ROOM // max(len(wanted), 1))
    addresses: list[str] = []
    for video, clip in enumerate(case.clips, start=1):
        places = places_of(clip, beside)
        album.keep(clip, (source for of, source in wanted if of == video), places)
        found = bool(places) and not album.absent.get(clip.sha256)
        addresses.append(address(places[0], path) if found else "")
    with draft_of(path) as file:
        write_head(file, f"{headline(case)}: {case.clips[0].name} and {case.clips[1].name}")
        write_content(file, pair_page(case, Setting(album, (addresses[0], addresses[1]))))
        write_foot(file)
        write_end(file)
