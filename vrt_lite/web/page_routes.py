"""The pages: one page for all addresses, the viewer, and the records that it asks for beside those of the API."""

from __future__ import annotations

import contextlib
import json
import mimetypes
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from vrt_lite.clip_files import ASSUMED_FPS, MOST_FPS, PICTURE_SUFFIXES
from vrt_lite.errors import UsageError, VrtError
from vrt_lite.models import bundled_names
from vrt_lite.models.library import stored_models
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.ranking.entries import VIDEO_SUFFIXES
from vrt_lite.records.judgement import JudgedClip, Judgement
from vrt_lite.viewer.frame_album import find_places
from vrt_lite.viewer.page_file import make_served_page
from vrt_lite.viewer.pair_view import place_served, prepare_pair
from vrt_lite.web.api_routes import ENDPOINTS as API_ENDPOINTS
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.endpoints import Endpoint, describe_endpoints
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.request_bodies import CompareBody
from vrt_lite.web.run_routes import ENDPOINTS as RUN_ENDPOINTS
from vrt_lite.web.server_state import ServerState

_SANDBOX = {"content-security-policy": "default-src 'none'; sandbox"}
_MOST_DIGITS = 9


def show_page(state: ServerState) -> Response:
    """Send the viewer, and what its forms have to know."""
    own = state.context.choice.model
    first = f"{Path(own).name if own else 'the default'}, as the server was started"
    names = dict.fromkeys((*bundled_names(), *(model.manifest.name for model in stored_models())))
    about = {
        "kind": "server",
        "folders": [str(folder) for folder in state.clip_store.folders],
        "judges": [(first, ""), *((name, name) for name in names)],
        "accepted": ["video/*", *sorted(VIDEO_SUFFIXES | PICTURE_SUFFIXES)],
        "longest_prompt": LONGEST_PROMPT,
        "most_fps": MOST_FPS,
        "assumed_fps": ASSUMED_FPS,
    }
    html, policy = make_served_page(about)
    return HTMLResponse(html, headers={"content-security-policy": f"{policy}; frame-ancestors 'none'"})


def view_run(state: ServerState, run: str = "") -> dict[str, Any]:
    """Prepare a run for the viewer: what it shows first, and the list of its pairs."""
    from vrt_lite.viewer.overview import prepare_overview  # noqa: PLC0415 - numpy
    from vrt_lite.viewer.run_view import RunView  # noqa: PLC0415

    view = RunView(state.store.run(run))
    overview = prepare_overview(view)
    del overview["table"]
    overview["media"] = _place_clips(state, (of.clip for of in view.shown.values()), view.known, view.folder)
    return {"overview": overview, "index": view.prepare_index()}


def view_pair(state: ServerState, run: str = "", pair: str = "") -> dict[str, Any]:
    """Prepare one pair of a run for the viewer, by its number from 1."""
    from vrt_lite.viewer.run_view import RunView  # noqa: PLC0415 - numpy

    view = RunView(state.store.run(run))
    number = _read_number(pair)
    if not number or number > len(view.pairs):
        raise UsageError(f"Run {view.run.name!r} has the pairs 1 to {len(view.pairs)}, and no {pair[:20]!r}.")
    return view.prepare_pair(number)


def view_job(state: ServerState, job: str) -> dict[str, Any]:
    """Prepare a job for the viewer: the clips of a comparison, and its verdict once it has one."""
    found = state.queue.find(job)
    request = {name: value for name, value in found.request.items() if name != "clips"}
    told: dict[str, Any] = {"job": {"id": found.id, "kind": found.kind, "request": request}}
    if isinstance(found.body, CompareBody):
        told["clips"] = [_describe_clip(state, clip) for clip in (found.body.a, found.body.b)]
        if found.result:
            judgement = Judgement.from_json(found.result["judgement"])
            told["job"]["run"] = found.result["run"]
            told |= {"pair": prepare_pair(judgement), "media": _place_clips(state, judgement.inputs)}
    return told


def show_frame(state: ServerState, clip: str, source: str) -> Response:
    """Show a frame of a clip as a picture: by its number, or the "middle" one."""
    number = _read_number(source)
    if number is None and source != "middle":
        raise RefusedRequestError(404, "missing_frame", "There is no such frame.")
    with state.clip_store.open(state.clip_store.find_address(clip)) as opened:
        picture = state.clip_store.decoder.draw_frame(opened, number)
    return Response(picture, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


async def play_clip(state: ServerState, clip: str) -> Response:
    """Send a clip, or a copy that browsers play, or a range of its bytes."""
    if not clip.endswith(".mp4"):
        return await state.do("reading", _OpenedClip, state, clip)

    def make_copy() -> Path:
        path = state.clip_store.find_address(clip)
        with state.clip_store.open(path) as opened:
            return state.copies.copy(path, opened)

    return FileResponse(await state.do("copies", make_copy), media_type="video/mp4", headers=_SANDBOX)


def describe_api() -> dict[str, Any]:
    """Describe the API."""
    return describe_endpoints(API)


async def send_no_icon() -> Response:
    """Send nothing to a browser that asks for an icon by itself."""
    return Response(status_code=204)


API = (*API_ENDPOINTS, *RUN_ENDPOINTS)
"""What /openapi.json describes."""
_PATHS = ("/", "/rank", "/runs", "/run", "/judges", "/vote", "/docs", "/jobs/{_}")
PAGES = (
    *(Endpoint("GET", path, show_page) for path in _PATHS),
    Endpoint("GET", "/view/run", view_run),
    Endpoint("GET", "/view/pair", view_pair),
    Endpoint("GET", "/view/jobs/{job}", view_job, lane="clips"),
    Endpoint("GET", "/openapi.json", describe_api),
    Endpoint("GET", "/clips/{clip}", play_clip),
    Endpoint("GET", "/clips/{clip}/frames/{source}", show_frame, lane="pictures"),
    Endpoint("GET", "/favicon.ico", send_no_icon),
)


class _OpenedClip(FileResponse):
    """A clip, opened once: what was checked is what is sent."""

    def __init__(self, state: ServerState, name: str) -> None:
        path = state.clip_store.find_address(name)
        kind = mimetypes.guess_type(path.name)[0] or ""
        kind = kind if kind.startswith("video/") else "application/octet-stream"
        self._opened = contextlib.ExitStack()
        place = self._opened.enter_context(state.clip_store.open(path))
        super().__init__(place, media_type=kind, headers=_SANDBOX, stat_result=place.stat())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and close it."""
        with self._opened:
            await super().__call__(scope, receive, send)


def _read_number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _place_clips(
    state: ServerState, clips: Iterable[JudgedClip], known: Mapping[str, str] | None = None, beside: Path | None = None
) -> dict[str, Any]:
    """Say where a page plays each clip and gets its pictures, by the clip's sha256: if it may, and it is the same."""
    found: dict[str, Any] = {}
    for clip in clips:
        places = find_places(clip, beside, known=(known or {}).get(clip.sha256, ""))
        addresses = (state.clip_store.make_address(place) for place in places if _has_content(state, place, clip))
        found[clip.sha256] = place_served(next(filter(None, addresses), ""))
    return found


def _has_content(state: ServerState, path: Path, clip: JudgedClip) -> bool:
    with contextlib.suppress(VrtError, OSError):
        return state.clip_store.is_allowed(path) and state.store.digest(path) == clip.sha256
    return False


def _describe_clip(state: ServerState, clip: str) -> dict[str, str]:
    """Describe a clip of a request; one that is gone has no address."""
    with contextlib.suppress(VrtError):
        path = state.clip_store.find(clip)
        return {"name": name_clip(path), "address": state.clip_store.make_address(path)}
    return {"name": json.dumps(clip)[1:41], "address": ""}
