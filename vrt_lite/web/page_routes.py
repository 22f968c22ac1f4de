"""The pages: forms, jobs at work, runs, judges and votes. A small script keeps them live."""

from __future__ import annotations

import contextlib
import json
import mimetypes
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vrt_lite.clip_files import ASSUMED_FPS, MOST_FPS, PICTURE_SUFFIXES
from vrt_lite.errors import VrtError
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names
from vrt_lite.models.library import stored_models
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.ranking.entries import VIDEO_SUFFIXES
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.page_templates import render_page
from vrt_lite.web.refusals import RefusedRequestError
from vrt_lite.web.run_routes import list_runs_found
from vrt_lite.web.served_job import ServedJob
from vrt_lite.web.server_state import ServerState, state_of

_PAGES, _OWN = files("vrt_lite.show.pages"), files("vrt_lite.web") / "static"
_STATIC = {
    "report.css": (_PAGES, "text/css"),
    "report.js": (_PAGES, "text/javascript"),
    "serve.css": (_OWN, "text/css"),
    "serve.js": (_OWN, "text/javascript"),
}
_MOST_RUNS = 500


def list_page_routes() -> list[Route]:
    """List the routes of the pages, and of what they load."""
    return [
        Route("/", show_compare_form),
        Route("/rank", show_rank_form),
        Route("/runs", show_runs),
        Route("/run", show_run),
        Route("/judges", show_judges),
        Route("/vote", show_ballot),
        Route("/jobs/{id}", show_job_page),
        Route("/jobs/{id}/verdict", show_verdict),
        Route("/jobs/{id}/frames/{video:int}/{source:int}", show_frame),
        Route("/clips/{name}", play_clip),
        Route("/static/{name}", send_static),
        Route("/favicon.ico", send_no_icon),
    ]


async def show_compare_form(request: Request) -> Response:
    """Show the form to compare two clips."""
    return _page("compare_form.html", "Compare", "compare", **await run_in_threadpool(_form_values, state_of(request)))


async def show_rank_form(request: Request) -> Response:
    """Show the form to rank clips, and the rankings that are not finished."""
    state = state_of(request)
    unfinished = [job for job in state.queue.jobs() if job.kind != "pull" and not job.ended]
    values = await run_in_threadpool(_form_values, state)
    return _page("rank_form.html", "Rank", "rank", unfinished=unfinished, **values)


async def show_runs(request: Request) -> Response:
    """Show all runs of the store that hold the words that are searched for, and the jobs."""
    state, search = state_of(request), request.query_params.get("search", "")
    found = await state.slow_work.do(list_runs_found, state.store, search)
    runs = [run | {"query": urlencode({"run": run["name"]})} for run in found[:_MOST_RUNS]]
    jobs = [job for job in state.queue.jobs() if not job.ended]
    more = max(len(found) - _MOST_RUNS, 0)
    return _page("runs.html", "Runs", "runs", runs=runs, search=search, jobs=jobs, more=more)


async def show_run(request: Request) -> Response:
    """Show a run as its report, with the clips that may be played."""
    from vrt_lite.web.run_report import write_served_report  # noqa: PLC0415 - the report's own modules

    name = request.query_params.get("run", "")
    try:
        html = await state_of(request).slow_work.do(write_served_report, state_of(request), name)
    except VrtError as error:
        return _page("message.html", "Nothing to show", "runs", status=404, message=str(error))
    # The report has a policy of its own, by the digests of its style and script.
    policy = "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    return HTMLResponse(html, headers={"content-security-policy": f"{policy}frame-ancestors 'none'; base-uri 'none'"})


async def show_judges(request: Request) -> Response:
    """Show the judges that are here or can be pulled, and which fit this machine."""
    from vrt_lite.fitting.model_list import list_models  # noqa: PLC0415
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415

    memory = total_memory()
    models = [
        {
            "name": entry.name,
            "quant": entry.quant,
            "state": entry.state,
            "disk": format_bytes(entry.disk_bytes),
            "memory": format_bytes(entry.memory_bytes),
            "fits": entry.memory_bytes <= memory,
            "licence": entry.licence,
            "fetched": format_bytes(entry.fetched_bytes) if entry.fetched_bytes else "",
            "note": entry.note,
        }
        for entry in await run_in_threadpool(list_models)
    ]
    pulling = next((j.id for j in state_of(request).queue.jobs() if j.kind == "pull" and not j.ended), "")
    return _page("judges.html", "Judges", "judges", models=models, memory=format_bytes(memory), pulling=pulling)


async def show_ballot(request: Request) -> Response:
    """Show the page to vote on a run's pairs."""
    name = request.query_params.get("run", "")
    try:
        run = await run_in_threadpool(state_of(request).store.run, name)
    except VrtError as error:
        return _page("message.html", "Nothing to vote on", "runs", status=404, message=str(error))
    return _page("vote.html", "Vote", "vote", run=run.name, query=urlencode({"run": run.name}))


async def show_job_page(request: Request) -> Response:
    """Show a job at work, or its result."""
    state = state_of(request)
    try:
        job = state.queue.find(request.path_params["id"])
    except RefusedRequestError as error:
        return _page("message.html", "This job is over", "runs", status=404, message=str(error))
    prompt, folders = str(job.request.get("prompt", "")), [str(folder) for folder in state.clip_store.folders]
    if job.kind == "compare":
        clips = await state.slow_work.do(_list_clips, state, job)
        return _page("compare_job.html", "Comparing", "job", job=job, prompt=prompt, clips=clips)
    return _page("rank_job.html", "Ranking", "job", job=job, prompt=prompt, folders=folders)


async def show_verdict(request: Request) -> Response:
    """Show the verdict of a comparison as the report does; a part of a page."""
    state, job = state_of(request), state_of(request).queue.find(request.path_params["id"])
    if job.kind != "compare" or job.result is None:
        raise RefusedRequestError(404, "no_verdict", "This job has no verdict.")
    return HTMLResponse(await state.slow_work.do(_render_verdict, state, job))


async def show_frame(request: Request) -> Response:
    """Show a frame of a comparison's clip as a picture."""
    from vrt_lite.web.run_report import draw_job_frame  # noqa: PLC0415 - the decoder

    state, job = state_of(request), state_of(request).queue.find(request.path_params["id"])
    video, source = request.path_params["video"], request.path_params["source"]
    if job.kind != "compare" or video not in (1, 2):
        raise RefusedRequestError(404, "missing_frame", "There is no such frame.")
    picture = await state.slow_work.do(draw_job_frame, state, str(job.request["ab"[video - 1]]), source)
    return Response(picture, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


async def play_clip(request: Request) -> Response:
    """Send a clip, or a copy that browsers play, or a range of its bytes."""
    state, name = state_of(request), request.path_params["name"]
    headers = {"content-security-policy": "default-src 'none'; sandbox"}
    if name.endswith(".mp4"):
        return FileResponse(await state.copying.do(_make_copy, state, name), media_type="video/mp4", headers=headers)
    return await run_in_threadpool(_OpenedClip, state, name, headers)


async def send_static(request: Request) -> Response:
    """Send a style or a script of this package."""
    name = request.path_params["name"]
    if name not in _STATIC:
        raise RefusedRequestError(404, "missing_file", "There is no such file.")
    folder, kind = _STATIC[name]
    return Response((folder / name).read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})


async def send_no_icon(request: Request) -> Response:
    """Send nothing to a browser that asks for an icon by itself."""
    return Response(status_code=204)


class _OpenedClip(FileResponse):
    """A clip, opened once: what was checked is what is sent."""

    def __init__(self, state: ServerState, name: str, headers: dict[str, str]) -> None:
        path = state.clip_store.find_address(name)
        kind = mimetypes.guess_type(path.name)[0] or ""
        kind = kind if kind.startswith("video/") else "application/octet-stream"
        self._opened = contextlib.ExitStack()
        place = self._opened.enter_context(state.clip_store.open(path))
        super().__init__(place, media_type=kind, headers=headers, stat_result=place.stat())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and close it."""
        with self._opened:
            await super().__call__(scope, receive, send)


def _make_copy(state: ServerState, name: str) -> Path:
    path = state.clip_store.find_address(name)
    with state.clip_store.open(path) as opened:
        return state.copies.copy(path, opened)


def _render_verdict(state: ServerState, job: ServedJob) -> str:
    from vrt_lite.web.run_report import render_verdict  # noqa: PLC0415 - the report's own modules

    assert job.result
    return render_verdict(job.result["judgement"], state, [clip["address"] for clip in _list_clips(state, job)])


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
