"""The viewer: plain modules and a style that draw this project's records, in a report's file and on a server's pages.

This package gives it what it draws. A report is one HTML file with the viewer, a record and pictures, for use offline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Judgement
from vrt_lite.viewer.clip_media import ClipMedia, find_places, list_shown
from vrt_lite.viewer.page_file import write_json, write_packed, write_page
from vrt_lite.viewer.run_view import RunView, make_pair_table, prepare_pair, write_title

if TYPE_CHECKING:
    from vrt_lite.runs.store import Run

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
    embed: Callable[[str], None] | None = None,
) -> None:
    """Write a report of a judgement, of its JSON, or of a run in a store, to `path`.

    A clip is looked for where it was judged, then relative to the folder `beside`, then in it. With `embed` the page
    holds small copies of the clips, and `embed` is told what is done now. UsageError for what is no judgement, and for
    a file that is no .html or cannot be written.
    """
    check_name(path)
    if isinstance(source, Mapping):
        source = Judgement.from_json(source)
    with Decoder() as decoder:
        if isinstance(source, Judgement):
            _write_pair(source, path, decoder, beside, embed)
        else:
            _write_run(source, path, decoder, beside, embed)


def check_name(path: Path) -> None:
    """Raise UsageError for a name that is not that of an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The report {path} cannot be written: a report is HTML. Give a name that ends in .html.")


def _write_pair(
    judgement: Judgement, path: Path, decoder: Decoder, beside: Path | None, embed: Callable[[str], None] | None
) -> None:
    shown = list_shown([judgement])
    largest = _PAIR_BYTES // max(sum(len(of.first | of.called) for of in shown.values()), 1)
    title = f"{write_title(judgement)}: {' and '.join(clip.name for clip in judgement.inputs)}"
    with write_page(path, title, make_pair_table(judgement), embedded=embed is not None) as file:
        media = ClipMedia(file, path, decoder, _PAIR_BYTES, largest, partial(find_places, beside=beside), embed)
        for of in shown.values():
            media.draw(of.clip, of.first | of.called)
        places = {sha256: media.place(of) for sha256, of in shown.items()}
        write_json(file, "record", {"kind": "pair", "title": title, "media": places, **prepare_pair(judgement)})


def _write_run(
    run: Run, path: Path, decoder: Decoder, beside: Path | None, embed: Callable[[str], None] | None
) -> None:
    """Write the report of a run: its overview first, pictures while there are bytes left, and the pairs packed."""
    from vrt_lite.viewer.overview import prepare_overview  # noqa: PLC0415 - numpy only for a run

    view = RunView(run)
    overview = prepare_overview(view)
    clips = view.shown.values()
    with write_page(path, overview["title"], overview.pop("table"), embedded=embed is not None) as file:
        write_json(file, "record", {**overview, "block": _BLOCK})
        write_packed(file, "index", view.prepare_index())
        find = partial(find_places, beside=beside or view.folder, known=view.known)
        media = ClipMedia(file, path, decoder, _RUN_BYTES, _LARGEST_OF_RUN, find, embed)
        # The frame that stands for a clip comes first, then first frames, then those that the judge requested.
        for stage in ([{of.middle} for of in clips], [of.first for of in clips], [of.called for of in clips]):
            for of, sources in zip(clips, stage, strict=True):
                media.draw(of.clip, sources)
        write_packed(file, "media", {sha256: media.place(of) for sha256, of in view.shown.items()})
        numbers = range(1, len(view.pairs) + 1)
        for block, begin in enumerate(range(0, len(numbers), _BLOCK)):
            write_packed(file, f"b{block}", [view.prepare_pair(number) for number in numbers[begin : begin + _BLOCK]])
