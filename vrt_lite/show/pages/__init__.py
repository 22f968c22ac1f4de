"""The report: one HTML file that shows a judgement, a ranking or an evaluation, offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Judgement
from vrt_lite.show.pages.clip_copies import ClipCopies
from vrt_lite.show.pages.frame_album import FrameAlbum, find_places
from vrt_lite.show.pages.html_file import write_page
from vrt_lite.show.pages.pair_page import make_address, prepare_pair, write_title
from vrt_lite.show.pages.render_templates import render

if TYPE_CHECKING:
    from vrt_lite.runs.store import Run

_PICTURE_BYTES = 2_300_000
"""Bytes of pictures in the report of one pair: with all else it stays under 3 MB."""


def write_report(
    source: Judgement | Mapping[str, Any] | Run,
    path: Path,
    *,
    beside: Path | None = None,
    copies: ClipCopies | None = None,
) -> None:
    """Write a report of a judgement, of its JSON, or of a run in a store, to `path`.

    A clip is looked for where it was judged, then relative to the folder `beside`, then in it. With `copies` the page
    holds small copies of the clips. UsageError for what is no judgement, and for a file that is no .html or cannot be
    written.
    """
    check_name(path)
    with Decoder() as decoder:
        if isinstance(source, Judgement):
            _write_pair(source, path, beside, copies, decoder)
        elif isinstance(source, Mapping):
            _write_pair(Judgement.from_json(source), path, beside, copies, decoder)
        else:
            from vrt_lite.show.pages.run_page import write_run  # noqa: PLC0415 - numpy only for a run

            write_run(source, path, decoder, beside=beside, copies=copies)


def check_name(path: Path) -> None:
    """Raise UsageError for a name that is not that of an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The report {path} cannot be written: a report is HTML. Give a name that ends in .html.")


def _write_pair(
    judgement: Judgement, path: Path, beside: Path | None, copies: ClipCopies | None, decoder: Decoder
) -> None:
    frames = {(f.video, f.source_frame) for order in judgement.orders for r in order.rounds for f in r.frames}
    album = FrameAlbum(decoder, _PICTURE_BYTES, largest=_PICTURE_BYTES // max(len(frames), 1))
    addresses: list[str] = []
    notes: list[str] = []
    for video, clip in enumerate(judgement.inputs, start=1):
        places = find_places(clip, beside)
        album.embed_in_place(clip, (source for of, source in frames if of == video), places)
        linked = make_address(places[0], path) if places and clip.sha256 not in album.absent else ""
        addresses.append(copies.embed(clip, places, decoder) if copies else linked)
        notes.append(copies.notes[clip.sha256] if copies else album.absent.get(clip.sha256, ""))
    one, two = (clip.name for clip in judgement.inputs)
    with write_page(path, f"{write_title(judgement)}: {one} and {two}", embedded=copies is not None) as file:
        values = prepare_pair(judgement, album, (addresses[0], addresses[1]), notes=(notes[0], notes[1]))
        file.write(render("pair.html", **values))
