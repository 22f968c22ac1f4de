"""The API, and the pages: one page for all addresses, and the records that it asks for beside those of the API."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import Iterable
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vrt_lite.clip_files import ASSUMED_FPS, MOST_FPS, PICTURE_SUFFIXES
from vrt_lite.errors import UsageError, VrtError
from vrt_lite.machine import total_memory
from vrt_lite.models import bundled_names
from vrt_lite.models.library import stored_models
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.ranking.entries import VIDEO_SUFFIXES
from vrt_lite.records.judgement import JudgedClip, Judgement, PlainData
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.viewer.clip_media import find_places, place_served
from vrt_lite.viewer.overview import prepare_overview
from vrt_lite.viewer.page_file import make_served_page
from vrt_lite.viewer.run_view import RunView, prepare_pair
from vrt_lite.web.endpoints import ENDPOINTS, Endpoint, JsonAnswer, answer_error, describe_api
from vrt_lite.web.job_queue import LOOK_SECONDS, ServedJob, stream_events
from vrt_lite.web.requests import CompareBody, RankBody, RefusedRequestError, RewardsBody, VoteBody
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.votes import measure_agreement, write_table

_MOST_DIGITS = 9


@Endpoint("POST", "/v1/rewards", body=RewardsBody)
@Endpoint("POST", "/v1/rank", body=RankBody, answer=ServedJob)
@Endpoint("POST", "/v1/compare", body=CompareBody, answer=Judgement, files=("a", "b"))
async def judge(state: ServerState, request: Request, body: CompareBody | RankBody | RewardsBody) -> Response:
    """Judge clips, or the videos of a folder. The answer is the result, or without `wait` the job."""
    job = ServedJob(body.kind, body)

    def begin() -> None:
        clips = (body.a, body.b) if isinstance(body, CompareBody) else body.clips
        find = state.clip_store.find_all if isinstance(body, RankBody) else state.clip_store.find
        for clip in dict.fromkeys(clips):
            find(clip)
        state.check_model(body.model)
        state.queue.add(job, keep=not body.wait)

    await state.do("clips", begin)
    if "text/event-stream" in request.headers.get("accept", ""):
        return stream_events(job, give_up=lambda: state.queue.cancel(job))
    if not body.wait:
        return JsonAnswer(job, HTTPStatus.ACCEPTED, {"location": f"/v1/jobs/{job.id}"})
    while not (job.ended or await request.is_disconnected()):
        await asyncio.sleep(LOOK_SECONDS)
    if not job.ended:
        state.queue.cancel(job)
    headers = {"x-job": job.id}
    if job.result is not None:
        return JsonAnswer(job.result["judgement"] if job.kind == "compare" else job.result, headers=headers)
    told = job.error or {"status": 409, "kind": "cancelled", "message": "The job was cancelled."}
    return answer_error(**told, headers=headers)


@Endpoint("POST", "/v1/clips", files=("clip",), status=HTTPStatus.CREATED)
async def upload(state: ServerState, request: Request) -> dict[str, str]:
    """Send a clip, its bytes as the body; the answer has its id.

    Or a form: several files in its field `clip` are numbered pictures, `fps` a second. `?name=` is the file's name.
    """
    clip = (await state.body_reader.take_clips(request, "clip"))["clip"]
    return {"clip": clip, **await state.do("clips", _describe_clip, state, clip)}


@Endpoint("GET", "/v1/folders", lane="clips")
def list_folder(state: ServerState, path: str = "") -> PlainData:
    """List the folders and clips of an allowed folder, or without a path the allowed folders."""
    return state.clip_store.list_folder(path)


@Endpoint("GET", "/v1/models")
def list_judges(state: ServerState) -> PlainData:
    """List the models that are here, or can be pulled."""
    from vrt_lite.model_list import list_models  # noqa: PLC0415

    memory = total_memory()
    models = [asdict(entry) | {"fits": entry.memory_bytes <= memory} for entry in list_models()]
    for model in models:
        del model["folder"]
    return {"models": models, "memory_bytes": memory, "default": state.choice.model}


@Endpoint("GET", "/v1/jobs")
async def list_jobs(state: ServerState) -> PlainData:
    """List the jobs that are remembered, the newest first, without their requests and results."""
    return {"jobs": [job.summarize() for job in state.queue.jobs()]}


@Endpoint("GET", "/v1/jobs/{job}")
async def show_job(state: ServerState, job: str) -> ServedJob:
    """Describe a job: its state, and its result once it has ended."""
    return state.queue.find(job)


@Endpoint("DELETE", "/v1/jobs/{job}", status=HTTPStatus.ACCEPTED)
async def cancel_job(state: ServerState, job: str) -> ServedJob:
    """Cancel a job. What it has judged is kept."""
    found = state.queue.find(job)
    state.queue.cancel(found)
    return found


@Endpoint("GET", "/v1/jobs/{job}/events")
async def follow_job(state: ServerState, request: Request, job: str) -> Response:
    """Follow a job (text/event-stream): its events as they happen, those after Last-Event-ID."""
    return stream_events(state.queue.find(job), _read_number(request.headers.get("last-event-id", "")) or 0)


_MOST_PROMPT = 200


@Endpoint("GET", "/v1/runs")
def list_runs(state: ServerState, search: str = "") -> PlainData:
    """List the runs of the store whose names or prompts have all words of `search`, the last used first."""
    words, found = search.casefold().split(), list[PlainData]()
    for info in state.store.runs():
        prompts: list[str] = info.about.get("prompts") or []
        if words and info.kind == "compare":  # only its judgements have them
            prompts = list(dict.fromkeys(result.prompt for result in state.store.run(info.name).results()))
        if all(word in f"{info.name} {info.kind} {' '.join(prompts)}".casefold() for word in words):
            told = {name: getattr(info, name) for name in ("name", "kind", "updated", "judgements", "failures")}
            found.append(told | {"prompt": "".join(prompts[:1])[:_MOST_PROMPT], "prompts": len(prompts)})
    return {"runs": found}


_EXPORTS = {"csv": (csv_lines, "text/csv"), "jsonl": (json_lines, "application/jsonl")}


@Endpoint("GET", "/v1/run/export")
def export_run(state: ServerState, run: str = "", format: str = "csv") -> Response:  # noqa: A002
    """Export a run's judgements: as `csv`, or as `jsonl` with whole judgements."""
    found = state.store.run(run)
    if format not in _EXPORTS:
        raise UsageError(f"The format {format[:20]!r} is neither csv nor jsonl.")
    write, kind = _EXPORTS[format]
    return _send_file(write(found), f"{found.name}.{format}", kind)


@Endpoint("GET", "/v1/votes")
def export_votes(state: ServerState, run: str = "") -> Response:
    """Export the votes on a run as a table that `vrt-lite eval` reads."""
    found = state.store.run(run)
    return _send_file(list(write_table(found)), f"{found.name} votes.csv", "text/csv")


@Endpoint("POST", "/v1/votes", status=HTTPStatus.CREATED)
def vote(state: ServerState, body: VoteBody) -> dict[str, bool]:
    """Keep a vote."""
    state.ballots.vote(body.ticket, body.choice)
    return {"kept": True}


@Endpoint("GET", "/v1/votes/next")
def show_next_pair(state: ServerState, run: str = "") -> PlainData:
    """Give the next pair of a run to vote on, a ticket, and how far each judge agrees with the votes by now.

    The sides at which the clips are played are at random.
    """
    found = state.store.run(run)
    told = state.ballots.next_pair(found, state.clip_store.make_address)
    return told | {"judges": measure_agreement(found, state.store)}


def _send_file(lines: Iterable[str], name: str, kind: str) -> StreamingResponse:
    parts = (line.encode("utf-8", "backslashreplace") for line in lines)
    disposition = f"attachment; filename*=UTF-8''{quote(name.encode('utf-8', 'replace'), safe='')}"
    return StreamingResponse(parts, media_type=kind, headers={"content-disposition": disposition})


_SANDBOX = {"content-security-policy": "default-src 'none'; sandbox"}


def show_page(state: ServerState) -> Response:
    """Send the viewer, and what its forms have to know."""
    own = state.choice.model
    first = f"{Path(own).name if own else 'the default'}, as the server was started"
    names = (*bundled_names(), *(model.manifest.name for model in stored_models()))
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


for _page in ("/", "/rank", "/runs", "/run", "/judges", "/vote", "/docs", "/jobs/{_}"):
    Endpoint("GET", _page)(show_page)


@Endpoint("GET", "/view/run")
def view_run(state: ServerState, run: str = "") -> PlainData:
    """Prepare a run for the viewer: what it shows first, and the list of its pairs."""
    view = RunView(state.store.run(run))
    overview = prepare_overview(view)
    del overview["table"]
    overview["media"] = {
        sha256: _place_clip(state, of.clip, find_places(of.clip, view.folder, view.known))
        for sha256, of in view.shown.items()
    }
    return {"overview": overview, "index": view.prepare_index()}


@Endpoint("GET", "/view/pair")
def view_pair(state: ServerState, run: str = "", pair: str = "") -> PlainData:
    """Prepare one pair of a run for the viewer, by its number from 1."""
    view = RunView(state.store.run(run))
    number = _read_number(pair)
    if not number or number > len(view.pairs):
        raise UsageError(f"Run {view.run.name!r} has the pairs 1 to {len(view.pairs)}, and no {pair[:20]!r}.")
    return view.prepare_pair(number)


@Endpoint("GET", "/view/jobs/{job}", lane="clips")
def view_job(state: ServerState, job: str) -> PlainData:
    """Prepare a job for the viewer: the clips of a comparison, and its verdict once it has one."""
    found = state.queue.find(job)
    told: PlainData = {"job": found.summarize()}
    if isinstance(found.request, CompareBody):
        told["job"]["request"] = found.request
        told["clips"] = [_describe_clip(state, clip) for clip in (found.request.a, found.request.b)]
        if found.result:
            judgement = Judgement.from_json(found.result["judgement"])
            told["run"] = found.result["run"]
            media = {clip.sha256: _place_clip(state, clip, find_places(clip)) for clip in judgement.inputs}
            told |= {"pair": prepare_pair(judgement), "media": media}
    return told


@Endpoint("GET", "/clips/{clip}/frames/{source}", lane="pictures")
def show_frame(state: ServerState, clip: str, source: str) -> Response:
    """Show a frame of a clip as a picture: by its number, or the "middle" one."""
    number = _read_number(source)
    if number is None and source != "middle":
        raise RefusedRequestError(404, "missing_frame", "There is no such frame.")
    with state.clip_store.open(state.clip_store.find_address(clip)) as opened:
        picture = state.clip_store.decoder.draw_frame(opened, number)
    return Response(picture, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


@Endpoint("GET", "/clips/{clip}")
async def play_clip(state: ServerState, clip: str) -> Response:
    """Send a clip, or a copy that browsers play, or a range of its bytes."""
    if not clip.endswith(".mp4"):
        return await state.do("reading", _OpenedClip, state, clip)
    copy = await state.do("copies", state.clip_store.copy, clip)
    return FileResponse(copy, media_type="video/mp4", headers=_SANDBOX)


Endpoint("GET", "/openapi.json")(describe_api)


class _OpenedClip(FileResponse):
    """A clip, opened once: what was checked is what is sent."""

    def __init__(self, state: ServerState, name: str) -> None:
        path = state.clip_store.find_address(name)
        kind = mimetypes.guess_type(path.name)[0] or ""
        kind = kind if kind.startswith("video/") else "application/octet-stream"
        self._opened = contextlib.ExitStack()
        place = self._opened.enter_context(state.clip_store.open(path))
        super().__init__(place, media_type=kind, headers=_SANDBOX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and close it."""
        with self._opened:
            await super().__call__(scope, receive, send)


def _read_number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _place_clip(state: ServerState, clip: JudgedClip, places: Iterable[Path]) -> PlainData:
    """Say where a page plays a clip and gets its pictures: from the first place that it may use and has the content."""
    for place in places:
        with contextlib.suppress(VrtError, OSError):
            if (address := state.clip_store.make_address(place)) and state.store.digest(place) == clip.sha256:
                return place_served(address)
    return place_served("")


def _describe_clip(state: ServerState, clip: str) -> dict[str, str]:
    """Describe a clip of a request; one that is gone has no address."""
    with contextlib.suppress(VrtError):
        return state.clip_store.describe(state.clip_store.find(clip))
    return {"name": clip[:40], "address": ""}


def make_routes(state: ServerState) -> list[Route]:
    """Make the routes of all endpoints."""
    return [endpoint.make_route(state) for endpoint in ENDPOINTS]
