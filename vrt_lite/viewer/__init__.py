"""The viewer: plain modules and a style that draw this project's records, in a report's file and on a server's pages.

This package gives it what it draws. A report is one HTML file with the viewer, a record and pictures, for use offline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Judgement
from vrt_lite.viewer.clip_copies import ClipCopies
from vrt_lite.viewer.frame_album import FrameAlbum, find_places
from vrt_lite.viewer.page_file import make_table, write_data, write_json, write_packed, write_page
from vrt_lite.viewer.pair_view import (
    ClipPlace,
    ShownClip,
    find_form,
    list_shown,
    make_address,
    make_pair_table,
    prepare_pair,
    write_title,
)

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

_PAIR_BYTES = 2_300_000
"""Bytes of pictures in the report of one pair: with all else it stays under 3 MB."""
_RUN_BYTES = 20 * 2**20
_LARGEST_OF_RUN = 24_000
_BLOCK = 16
"""Pairs that are packed together."""


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
            _write_run(source, path, beside, copies, decoder)


def check_name(path: Path) -> None:
    """Raise UsageError for a name that is not that of an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The report {path} cannot be written: a report is HTML. Give a name that ends in .html.")


def _write_pair(
    judgement: Judgement, path: Path, beside: Path | None, copies: ClipCopies | None, decoder: Decoder
) -> None:
    shown = list_shown([judgement])
    frames = sum(len(of.first | of.called) for of in shown.values())
    album = FrameAlbum(decoder, _PAIR_BYTES, largest=_PAIR_BYTES // max(frames, 1))
    names = " and ".join(clip.name for clip in judgement.inputs)
    title = f"{write_title(judgement)}: {names}"
    with write_page(path, title, make_pair_table(judgement), embedded=copies is not None) as file:
        media: dict[str, Any] = {}
        for sha256, of in shown.items():
            places = find_places(of.clip, beside)
            _write_pictures(file, album, of, of.first | of.called, places)
            media[sha256] = _place_clip(file, of, places, path, album, copies)
        write_json(file, "record", {"kind": "pair", "title": title, "media": media, **prepare_pair(judgement)})


def _write_run(run: Run, path: Path, beside: Path | None, copies: ClipCopies | None, decoder: Decoder) -> None:
    """Write the report of a run: its overview first, pictures while there are bytes left, and the pairs packed."""
    from vrt_lite.viewer.overview import prepare_overview  # noqa: PLC0415 - numpy only for a run
    from vrt_lite.viewer.run_view import RunView  # noqa: PLC0415

    view = RunView(run)
    overview = prepare_overview(view)
    table = make_table(*overview.pop("table"))
    beside = beside or view.folder
    album = FrameAlbum(decoder, _RUN_BYTES, largest=_LARGEST_OF_RUN)
    places = {
        sha256: find_places(of.clip, beside, known=view.known.get(sha256, "")) for sha256, of in view.shown.items()
    }
    with write_page(path, overview["title"], table, embedded=copies is not None) as file:
        write_json(file, "record", {**overview, "block": _BLOCK})
        write_packed(file, "index", view.prepare_index())
        # The frame that stands for a clip comes first, then first frames, then those that the judge requested.
        clips = view.shown.items()
        stages = ([{of.middle} for _, of in clips], [of.first for _, of in clips], [of.called for _, of in clips])
        for stage in stages:
            for (sha256, of), sources in zip(clips, stage, strict=True):
                _write_pictures(file, album, of, sources, places[sha256])
        media = {sha256: _place_clip(file, of, places[sha256], path, album, copies) for sha256, of in clips}
        write_packed(file, "media", media)
        for number, begin in enumerate(range(0, len(view.pairs), _BLOCK)):
            block = range(begin, min(begin + _BLOCK, len(view.pairs)))
            write_packed(file, f"b{number}", [view.prepare_pair(at + 1) for at in block])


def _write_pictures(file: TextIO, album: FrameAlbum, of: ShownClip, sources: set[int], places: list[Path]) -> None:
    for name, uri in album.embed(of.clip, sources, places):
        write_data(file, name, uri)


def _place_clip(
    file: TextIO, of: ShownClip, places: list[Path], page: Path, album: FrameAlbum, copies: ClipCopies | None
) -> dict[str, Any]:
    """Say where a clip is: a copy in the page, which is written here, or its own file."""
    clip = of.clip
    missing = album.absent.get(clip.sha256, "")
    address, note = make_address(places[0], page) if places and not missing else "", missing
    if copies:
        if uri := copies.embed(clip, places, album.decoder):
            write_data(file, copies.ids[clip.sha256], uri)
        address, note = f"#{copies.ids[clip.sha256]}" if uri else "", copies.notes.get(clip.sha256, "")
    frames = album.frames.get(clip.sha256, {})
    return asdict(ClipPlace(address, find_form(clip, address), frames, note, missing, of.middle))
