"""The pages: forms, jobs at work, runs, judges and votes. A small script keeps them live."""

from __future__ import annotations

import contextlib
import json
import mimetypes
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from vrt_lite.clip_files import ASSUMED_FPS, MOST_FPS, PICTURE_SUFFIXES
from vrt_lite.errors import VrtError
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names
from vrt_lite.models.library import stored_models
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.ranking.entries import VIDEO_SUFFIXES
from vrt_lite.web.api_routes import ENDPOINTS as API_ENDPOINTS
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.endpoints import Endpoint, describe_endpoints
from vrt_lite.web.page_templates import render_page
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.run_routes import ENDPOINTS as RUN_ENDPOINTS
from vrt_lite.web.run_routes import list_runs_found
from vrt_lite.web.served_job import ServedJob
from vrt_lite.web.server_state import ServerState

_PAGES, _OWN = files("vrt_lite.show.pages"), files("vrt_lite.web") / "static"
_STATIC = {
    "report.css": (_PAGES, "text/css"),
    "report.js": (_PAGES, "text/javascript"),
    "serve.css": (_OWN, "text/css"),
    "serve.js": (_OWN, "text/javascript"),
}
_SANDBOX = {"content-security-policy": "default-src 'none'; sandbox"}
_MOST_RUNS = 500


def show_compare_form(state: ServerState) -> Response:
    """Show the form to compare two clips."""
    return _page("compare_form.html", "Compare", "compare", **_form_values(state))


def show_rank_form(state: ServerState) -> Response:
    """Show the form to rank clips, and the rankings that are not finished."""
    unfinished = [job for job in state.queue.jobs() if job.kind != "pull" and not job.ended]
    return _page("rank_form.html", "Rank", "rank", unfinished=unfinished, **_form_values(state))


def show_runs(state: ServerState, search: str = "") -> Response:
    """Show all runs of the store that hold the words that are searched for, and the jobs."""
    found = list_runs_found(state.store, search)
    runs = [run | {"query": urlencode({"run": run["name"]})} for run in found[:_MOST_RUNS]]
    jobs = [job for job in state.queue.jobs() if not job.ended]
    more = max(len(found) - _MOST_RUNS, 0)
    return _page("runs.html", "Runs", "runs", runs=runs, search=search, jobs=jobs, more=more)


def show_run(state: ServerState, run: str = "") -> Response:
    """Show a run as its report, with the clips that may be played."""
    from vrt_lite.web.run_report import write_served_report  # noqa: PLC0415 - the report's own modules

    try:
        html = write_served_report(state, run)
    except VrtError as error:
        return _page("message.html", "Nothing to show", "runs", status=404, message=str(error))
    # The report has a policy of its own, by the digests of its style and script.
    policy = "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    return HTMLResponse(html, headers={"content-security-policy": f"{policy}frame-ancestors 'none'; base-uri 'none'"})


def show_judges(state: ServerState) -> Response:
    """Show the judges that are here or can be pulled, and which fit this machine."""
    from vrt_lite.model_list import list_models  # noqa: PLC0415
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415

    memory = total_memory()
    models = [
        asdict(entry)
        | {
            "disk": format_bytes(entry.disk_bytes),
            "memory": format_bytes(entry.memory_bytes),
            "fits": entry.memory_bytes <= memory,
            "fetched": format_bytes(entry.fetched_bytes) if entry.fetched_bytes else "",
        }
        for entry in list_models()
    ]
    pulling = next((j.id for j in state.queue.jobs() if j.kind == "pull" and not j.ended), "")
    return _page("judges.html", "Judges", "judges", models=models, memory=format_bytes(memory), pulling=pulling)


def show_ballot(state: ServerState, run: str = "") -> Response:
    """Show the page to vote on a run's pairs."""
    try:
        name = state.store.run(run).name
    except VrtError as error:
        return _page("message.html", "Nothing to vote on", "runs", status=404, message=str(error))
    return _page("vote.html", "Vote", "vote", run=name, query=urlencode({"run": name}))


def show_job_page(state: ServerState, job: str) -> Response:
    """Show a job at work, or its result."""
    try:
        found = state.queue.find(job)
    except RefusedRequestError as error:
        return _page("message.html", "This job is over", "runs", status=404, message=str(error))
    prompt = str(found.request.get("prompt", ""))
    if found.kind == "compare":
        clips = _list_clips(state, found)
        return _page("compare_job.html", "Comparing", "job", job=found, prompt=prompt, clips=clips)
    folders = list(map(str, state.clip_store.folders))
    return _page("rank_job.html", "Ranking", "job", job=found, prompt=prompt, folders=folders)


def show_verdict(state: ServerState, job: str) -> Response:
    """Show the verdict of a comparison as the report does; a part of a page."""
    from vrt_lite.web.run_report import render_verdict  # noqa: PLC0415 - the report's own modules

    found = state.queue.find(job)
    if found.kind != "compare" or found.result is None:
        raise RefusedRequestError(404, "no_verdict", "This job has no verdict.")
    addresses = [clip["address"] for clip in _list_clips(state, found)]
    return HTMLResponse(render_verdict(found.result["judgement"], state, addresses))


def show_frame(state: ServerState, job: str, video: int, source: int) -> Response:
    """Show a frame of a comparison's clip as a picture."""
    found = state.queue.find(job)
    if found.kind != "compare" or video not in (1, 2):
        raise RefusedRequestError(404, "missing_frame", "There is no such frame.")
    with state.clip_store.open(state.clip_store.find(str(found.request["ab"[video - 1]]))) as opened:
        picture = state.clip_store.decoder.draw_frame(opened, source)
    return Response(picture, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


async def play_clip(state: ServerState, clip: str) -> Response:
    """Send a clip, or a copy that browsers play, or a range of its bytes."""
    if clip.endswith(".mp4"):
        return FileResponse(
            await state.lanes["copies"].do(_make_copy, state, clip), media_type="video/mp4", headers=_SANDBOX
        )
    return await run_in_threadpool(_OpenedClip, state, clip)


def show_api() -> Response:
    """Show what the API is."""
    return _page("docs.html", "API", "docs", api=describe_api())


def describe_api() -> dict[str, Any]:
    """Describe the API."""
    return describe_endpoints(API)


async def send_static(name: str) -> Response:
    """Send a style or a script of this package."""
    if name not in _STATIC:
        raise RefusedRequestError(404, "missing_file", "There is no such file.")
    folder, kind = _STATIC[name]
    return Response((folder / name).read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})


async def send_no_icon() -> Response:
    """Send nothing to a browser that asks for an icon by itself."""
    return Response(status_code=204)


API = (*API_ENDPOINTS, *RUN_ENDPOINTS)
"""What /openapi.json describes."""
PAGES = (
    Endpoint("GET", "/", show_compare_form),
    Endpoint("GET", "/rank", show_rank_form),
    Endpoint("GET", "/runs", show_runs),
    Endpoint("GET", "/run", show_run, is_shared=True),
    Endpoint("GET", "/judges", show_judges),
    Endpoint("GET", "/vote", show_ballot),
    Endpoint("GET", "/docs", show_api),
    Endpoint("GET", "/openapi.json", describe_api),
    Endpoint("GET", "/jobs/{job}", show_job_page, lane="clips", is_shared=True),
    Endpoint("GET", "/jobs/{job}/verdict", show_verdict, lane="clips", is_shared=True),
    Endpoint("GET", "/jobs/{job}/frames/{video:int}/{source:int}", show_frame, lane="clips", is_shared=True),
    Endpoint("GET", "/clips/{clip}", play_clip),
    Endpoint("GET", "/static/{name}", send_static),
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


def _make_copy(state: ServerState, name: str) -> Path:
    path = state.clip_store.find_address(name)
    with state.clip_store.open(path) as opened:
        return state.copies.copy(path, opened)


def _page(template: str, title: str, page: str, *, status: int = 200, **values: Any) -> Response:
    return HTMLResponse(render_page(template, title=title, page=page, **values), status)


def _form_values(state: ServerState) -> dict[str, Any]:
    own = state.context.choice.model
    names = [*bundled_names(), *(model.manifest.name for model in stored_models())]
    first = f"{Path(own).name if own else 'the default'}, as the server was started"
    judges = [(first, ""), *((name, name) for name in dict.fromkeys(names))]
    accepted = ",".join(("video/*", *sorted(VIDEO_SUFFIXES | PICTURE_SUFFIXES)))
    fps = {"most_fps": MOST_FPS, "assumed_fps": ASSUMED_FPS}
    limits = {"accepted": accepted, "longest_prompt": LONGEST_PROMPT, **fps}
    return {"judges": judges, "folders": state.clip_store.folders, **limits}


def _list_clips(state: ServerState, job: ServedJob) -> list[dict[str, str]]:
    """List the names and addresses of a comparison's clips; one that is gone has no address."""
    clips: list[dict[str, str]] = []
    for clip in (str(job.request["a"]), str(job.request["b"])):
        try:
            path = state.clip_store.find(clip)
            clips.append({"name": name_clip(path), "address": state.clip_store.make_address(path)})
        except VrtError:
            clips.append({"name": json.dumps(clip)[1:41], "address": ""})
    return clips
