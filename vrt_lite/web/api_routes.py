"""The API: what programs ask of the server. Requests are checked here; the threads of the queue do the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Judgement
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.endpoints import Endpoint, JsonAnswer
from vrt_lite.web.event_stream import CONTENT_TYPE, HEADERS, follow_own, wait_for_end, write_events
from vrt_lite.web.request_bodies import CompareBody, PullBody, RankBody, RewardsBody, read_body
from vrt_lite.web.served_job import ServedJob, ToldJob
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.uploading import FORM

_MOST_DIGITS = 19
_Asked = CompareBody | RankBody | RewardsBody


async def compare(state: ServerState, request: Request) -> Response:
    """Compare two clips, named in JSON or sent as files in a form. Without `wait` the answer is the job."""
    uploads: list[str] = []
    try:
        if request.headers.get("content-type", "").startswith(FORM):
            fields, clips = await state.body_reader.take_form(request, ("a", "b"))
            uploads = list(clips.values())
            body = read_body(_read_form(fields) | clips, CompareBody)
        else:
            body = read_body(await state.body_reader.read_json(request), CompareBody)
        job = await _begin(state, body, (body.a, body.b))
    except BaseException:
        state.clip_store.uploads.give_back(uploads)
        raise

    def forget_uploads() -> None:
        if job.ended:
            state.clip_store.uploads.give_back(uploads)

    if uploads:
        job.listen(forget_uploads)
    try:
        return await _answer(state, request, job, wait=body.wait)
    finally:  # before the client has the answer; and the job may have ended before `listen`
        await run_in_threadpool(forget_uploads)


async def rank(state: ServerState, request: Request, body: RankBody) -> Response:
    """Rank clips, or the videos of a folder. The answer is a job, unless `wait` is set."""
    return await _answer(state, request, await _begin(state, body, body.clips), wait=body.wait)


async def rewards(state: ServerState, request: Request, body: RewardsBody) -> Response:
    """Give each clip of a prompt a scalar, in log odds."""
    return await _answer(state, request, await _begin(state, body, body.clips), wait=body.wait)


async def upload(state: ServerState, request: Request) -> Response:
    """Send a clip, its bytes as the body; the answer has its id.

    Or a form: several files in its field `clip` are numbered pictures, `fps` a second. `?name=` is the file's name.
    """
    clip = await state.body_reader.take_clip(request)
    return JsonAnswer(await state.lanes["clips"].do(_describe_upload, state, clip), HTTPStatus.CREATED)


def list_folder(state: ServerState, path: str = "") -> dict[str, Any]:
    """List the folders and clips of an allowed folder, or without a path the allowed folders."""
    return state.clip_store.list_folder(path)


def list_judges(state: ServerState) -> dict[str, Any]:
    """List the models that are here, or can be pulled."""
    from vrt_lite.model_list import list_models  # noqa: PLC0415
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415

    memory = total_memory()
    models = [asdict(entry) | {"fits": entry.memory_bytes <= memory} for entry in list_models()]
    for model in models:
        del model["folder"]
    return {"models": models, "memory_bytes": memory, "default": state.context.choice.model}


def pull(state: ServerState, body: PullBody) -> Response:
    """Pull a model that this project knows by name."""
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import recipes  # noqa: PLC0415

    known = sorted(set(recipes()) - set(bundled_names()))
    if body.model not in known:
        raise UsageError(f"{body.model[:80]!r} is no model that can be pulled by name. Those are: {', '.join(known)}.")
    job = ServedJob(body)
    state.queue.run_apart(job)
    return _answer_job(job)


async def list_jobs(state: ServerState) -> dict[str, Any]:
    """List the jobs that are remembered, the newest first, without their requests and results."""
    return {"jobs": [job.summarize() for job in state.queue.jobs()]}


async def show_job(state: ServerState, job: str) -> dict[str, Any]:
    """Describe a job: its state, and its result once it has ended."""
    return state.queue.find(job).describe()


async def cancel_job(state: ServerState, job: str) -> dict[str, Any]:
    """Cancel a job. What it has judged is kept."""
    found = state.queue.find(job)
    state.queue.stop(found, "cancelled")
    return found.describe()


async def pause_job(state: ServerState, job: str) -> dict[str, Any]:
    """Pause a job after its present judgement."""
    found = state.queue.find(job)
    state.queue.stop(found, "paused")
    return found.describe()


async def resume_job(state: ServerState, job: str) -> dict[str, Any]:
    """Go on with a paused job."""
    found = state.queue.find(job)
    state.queue.resume(found)
    return found.describe()


async def follow_job(state: ServerState, request: Request, job: str) -> Response:
    """Follow a job (text/event-stream): its events as they happen, those after Last-Event-ID."""
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < _MOST_DIGITS else 0
    return StreamingResponse(write_events(state.queue.find(job), after=after), headers=HEADERS)


ENDPOINTS = (
    Endpoint("POST", "/v1/compare", compare, body=CompareBody, answer=Judgement, files=("a", "b")),
    Endpoint("POST", "/v1/rank", rank, body=RankBody, answer=ToldJob),
    Endpoint("POST", "/v1/rewards", rewards, body=RewardsBody),
    Endpoint("POST", "/v1/clips", upload, files=("clip",)),
    Endpoint("GET", "/v1/folders", list_folder, lane="clips"),
    Endpoint("GET", "/v1/models", list_judges),
    Endpoint("POST", "/v1/models/pull", pull, body=PullBody, answer=ToldJob),
    Endpoint("GET", "/v1/jobs", list_jobs),
    Endpoint("GET", "/v1/jobs/{job}", show_job, answer=ToldJob),
    Endpoint("DELETE", "/v1/jobs/{job}", cancel_job, answer=ToldJob, status=HTTPStatus.ACCEPTED),
    Endpoint("GET", "/v1/jobs/{job}/events", follow_job),
    Endpoint("POST", "/v1/jobs/{job}/pause", pause_job, answer=ToldJob, status=HTTPStatus.ACCEPTED),
    Endpoint("POST", "/v1/jobs/{job}/resume", resume_job, answer=ToldJob, status=HTTPStatus.ACCEPTED),
)


async def _begin(state: ServerState, body: _Asked, clips: Sequence[str]) -> ServedJob:
    """Check what is asked for, and put it in the queue."""
    job = ServedJob(body)

    def begin() -> None:
        find = state.clip_store.find_all if job.kind == "rank" else state.clip_store.find
        for clip in dict.fromkeys(clips):
            find(clip)
        state.context.check_model(body.model)
        state.queue.add(job, keep=not body.wait)

    await state.lanes["clips"].do(begin)
    return job


async def _answer(state: ServerState, request: Request, job: ServedJob, *, wait: bool) -> Response:
    """Answer with the events of a job that this request has begun, its result, or the job itself."""
    if CONTENT_TYPE in request.headers.get("accept", ""):
        return StreamingResponse(follow_own(job, request, state.queue), headers=HEADERS)
    if not wait:
        return _answer_job(job)
    if not await wait_for_end(job, request):
        state.queue.stop(job, "cancelled")
    if job.result is not None:
        return JsonAnswer(job.result["judgement"] if job.kind == "compare" else job.result, headers={"x-job": job.id})
    told: dict[str, Any] = dict(job.error or {"kind": "cancelled", "message": "The job was cancelled.", "status": 409})
    return JsonAnswer({"error": told}, told.pop("status"), headers={"x-job": job.id})


def _describe_upload(state: ServerState, clip: str) -> dict[str, str]:
    path = state.clip_store.find(clip)
    return {"clip": clip, "name": name_clip(path), "address": state.clip_store.make_address(path)}


def _answer_job(job: ServedJob) -> Response:
    return JsonAnswer(job.describe(), HTTPStatus.ACCEPTED, headers={"location": f"/v1/jobs/{job.id}"})


def _read_form(fields: dict[str, str]) -> dict[str, Any]:
    """Read the fields of a form, which are all text, as the JSON would have them."""
    flags = {
        name: fields[name].lower() in ("1", "true", "yes", "on") for name in ("both_orders", "wait") if name in fields
    }
    try:
        options = {"options": msgspec.json.decode(fields["options"])} if "options" in fields else {}
    except msgspec.DecodeError as error:
        raise UsageError(f"The form's options are no JSON: {error}.") from error
    return fields | flags | options
