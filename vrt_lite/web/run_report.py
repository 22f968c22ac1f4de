"""The report's pages as the server sends them: only clips that it may use are shown and played."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from vrt_lite.records.judgement import Judgement
from vrt_lite.show.pages.frame_album import FrameAlbum, find_places
from vrt_lite.show.pages.pair_page import prepare_pair
from vrt_lite.show.pages.render_templates import render
from vrt_lite.show.pages.run_page import ServedReport, write_run
from vrt_lite.web.page_templates import render_page
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.upload_folder import DRAFT

_PICTURE_BYTES = 2_300_000


def write_served_report(state: ServerState, name: str) -> str:
    """Write the report of a run; return its HTML. UsageError without that run, or without judgements."""
    run = state.store.run(name)
    top = render_page("report_top.html", query=urlencode({"run": run.name}))
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=state.clip_store.uploads.path) as folder:
        path = Path(folder) / "report.html"
        write_run(run, path, state.clip_store.decoder, served=ServedReport(top, state.clip_store.make_address))
        return path.read_text(encoding="utf-8")


def render_verdict(judgement: Any, state: ServerState, addresses: list[str]) -> str:
    """Render a judgement as the report's article, with its pictures in it. Its clips are played at `addresses`."""
    read = Judgement.from_json(judgement)
    frames = {(f.video, f.source_frame) for order in read.orders for r in order.rounds for f in r.frames}
    album = FrameAlbum(state.clip_store.decoder, _PICTURE_BYTES, largest=_PICTURE_BYTES // max(len(frames), 1))
    for video, clip in enumerate(read.inputs, start=1):
        places = [path for path in find_places(clip, None) if state.clip_store.is_allowed(path)]
        album.embed_in_place(clip, (source for of, source in frames if of == video), places)
    one, two = addresses
    return render("pair_article.html", **prepare_pair(read, album, (one, two)))
