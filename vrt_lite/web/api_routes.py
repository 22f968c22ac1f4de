"""The API: what programs ask of the server. Requests are checked here; the threads of the queue do the work."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vrt_lite.errors import UsageError
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.event_stream import CONTENT_TYPE, EVENT_HEADERS, wait_for_end, write_events
from vrt_lite.web.json_answer import JsonAnswer
from vrt_lite.web.request_bodies import CompareBody, PullBody, RankBody, RewardsBody, read_body
from vrt_lite.web.run_routes import list_run_routes
from vrt_lite.web.served_job import JobKind, ServedJob
from vrt_lite.web.server_state import ServerState, state_of
from vrt_lite.web.uploading import FORM

_LOOK_SECONDS = 0.5
_MOST_DIGITS = 19
_Asked = CompareBody | RankBody | RewardsBody


def list_api_routes() -> list[Route]:
    """List the routes of the API; `openapi` describes them."""
    return [
        Route("/v1/compare", compare, methods=["POST"]),
        Route("/v1/rank", rank, methods=["POST"]),
        Route("/v1/rewards", rewards, methods=["POST"]),
        Route("/v1/clips", upload, methods=["POST"]),
        Route("/v1/folders", list_folder, methods=["GET"]),
        Route("/v1/models", list_judges, methods=["GET"]),
        Route("/v1/models/pull", pull, methods=["POST"]),
        Route("/v1/jobs", list_jobs, methods=["GET"]),
        Route("/v1/jobs/{id}", show_job, methods=["GET"]),
        Route("/v1/jobs/{id}", cancel_job, methods=["DELETE"]),
        Route("/v1/jobs/{id}/events", follow_job, methods=["GET"]),
        Route("/v1/jobs/{id}/pause", pause_job, methods=["POST"]),
        Route("/v1/jobs/{id}/resume", resume_job, methods=["POST"]),
        Route("/openapi.json", describe_api, methods=["GET"]),
        *list_run_routes(),
    ]


async def compare(request: Request) -> Response:
    """Compare two clips, named in JSON or sent as files in a form."""
    state = state_of(request)
    uploads: list[str] = []
    try:
        if request.headers.get("content-type", "").startswith(FORM):
            fields, clips = await state.body_reader.take_form(request, ("a", "b"))
            uploads = list(clips.values())
            body = read_body(_read_form(fields) | clips, CompareBody)
        else:
            body = read_body(await state.body_reader.read_json(request), CompareBody)
        job = await state.checking.do(lambda: _begin(state, "compare", body))
    except BaseException:
        state.clip_store.uploads.give_back(uploads)
        raise
    if uploads:
        forget = functools.partial(_forget_when_ended, state, job, uploads)
        job.listen(forget)
        answer = await _answer(request, job, wait=body.wait)
        await run_in_threadpool(forget)  # before the client has the answer; and the job may have ended before `listen`
        return answer
    return await _answer(request, job, wait=body.wait)


async def rank(request: Request) -> Response:
    """Rank clips, or the videos of a folder."""
    state = state_of(request)
    body = read_body(await state.body_reader.read_json(request), RankBody)
    job = await state.checking.do(lambda: _begin(state, "rank", body))
    return await _answer(request, job, wait=body.wait)


async def rewards(request: Request) -> Response:
    """Give each clip of a prompt a scalar."""
    state = state_of(request)
    body = read_body(await state.body_reader.read_json(request), RewardsBody)
    job = await state.checking.do(lambda: _begin(state, "rewards", body))
    return await _answer(request, job, wait=body.wait)


async def upload(request: Request) -> Response:
    """Take a clip; return its id, by which other requests name it."""
    state = state_of(request)
    clip = await state.body_reader.take_clip(request)
    return JsonAnswer(await state.slow_work.do(_describe_upload, state, clip), 201)


async def list_folder(request: Request) -> Response:
    """List the folders and clips of an allowed folder."""
    clip_store = state_of(request).clip_store
    path = request.query_params.get("path", "")
    return JsonAnswer(await state_of(request).slow_work.do(clip_store.list_folder, path))


async def list_judges(request: Request) -> Response:
    """List the models that are here, or can be pulled."""
    from vrt_lite.fitting.model_list import list_models  # noqa: PLC0415
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415

    found = await run_in_threadpool(list_models)
    memory = total_memory()
    hidden = ("folder",)
    models = [
        {name: value for name, value in asdict(entry).items() if name not in hidden}
        | {"fits": entry.memory_bytes <= memory}
        for entry in found
    ]
    return JsonAnswer({"models": models, "memory_bytes": memory, "default": state_of(request).context.choice.model})


async def pull(request: Request) -> Response:
    """Begin to pull a model that this project knows by name."""
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import recipes  # noqa: PLC0415

    state = state_of(request)
    body = read_body(await state.body_reader.read_json(request), PullBody)
    known = sorted(set(recipes()) - set(bundled_names()))
    if body.model not in known:
        raise UsageError(f"{body.model[:80]!r} is no model that can be pulled by name. Those are: {', '.join(known)}.")
    job = ServedJob("pull", msgspec.to_builtins(body))
    state.queue.run_apart(job)
    return _answer_job(job)


async def list_jobs(request: Request) -> Response:
    """List the jobs that are remembered, the newest first, without their requests and results."""
    return JsonAnswer({"jobs": [job.summarize() for job in state_of(request).queue.jobs()]})


async def show_job(request: Request) -> Response:
    """Describe a job."""
    return JsonAnswer(_job_of(request).describe())


async def cancel_job(request: Request) -> Response:
    """Cancel a job. What it has judged is kept."""
    job = _job_of(request)
    state_of(request).queue.stop(job, "cancelled")
    return JsonAnswer(job.describe(), HTTPStatus.ACCEPTED)


async def pause_job(request: Request) -> Response:
    """Pause a job after its present judgement."""
    job = _job_of(request)
    state_of(request).queue.stop(job, "paused")
    return JsonAnswer(job.describe(), HTTPStatus.ACCEPTED)


async def resume_job(request: Request) -> Response:
    """Go on with a paused job."""
    job = _job_of(request)
    state_of(request).queue.resume(job)
    return JsonAnswer(job.describe(), HTTPStatus.ACCEPTED)


async def follow_job(request: Request) -> Response:
    """Send a job's events as they happen, those after Last-Event-ID."""
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < _MOST_DIGITS else 0
    events = write_events(_job_of(request), after=after)
    return StreamingResponse(events, media_type=CONTENT_TYPE, headers=EVENT_HEADERS)


async def describe_api(request: Request) -> Response:
    """Describe the API."""
    from vrt_lite.web.openapi import make_description  # noqa: PLC0415

    return JsonAnswer(make_description())


def _job_of(request: Request) -> ServedJob:
    return state_of(request).queue.find(request.path_params["id"])


def _begin(state: ServerState, kind: JobKind, body: _Asked) -> ServedJob:
    """Check what is asked for, and put it in the queue."""
    find = state.clip_store.find_all if isinstance(body, RankBody) else state.clip_store.find
    for clip in dict.fromkeys((body.a, body.b) if isinstance(body, CompareBody) else body.clips):
        find(clip)
    state.context.check_model(body.model)
    job = ServedJob(kind, msgspec.to_builtins(body))
    state.queue.add(job, keep=not body.wait)
    return job


async def _answer(request: Request, job: ServedJob, *, wait: bool) -> Response:
    """Answer with the events of a job, its result, or the job itself."""
    if CONTENT_TYPE in request.headers.get("accept", ""):
        return _stream_own(request, job)
    if not wait:
        return _answer_job(job)
    if not await wait_for_end(job, request):
        state_of(request).queue.stop(job, "cancelled")
    if job.result is not None:
        body = job.result["judgement"] if job.kind == "compare" else job.result
        return JsonAnswer(body, headers={"x-job": job.id})
    told: dict[str, Any] = dict(job.error or {"kind": "cancelled", "message": "The job was cancelled.", "status": 409})
    status: int = told.pop("status")
    return JsonAnswer({"error": told}, status, headers={"x-job": job.id})


def _stream_own(request: Request, job: ServedJob) -> StreamingResponse:
    """Send the events of a job that this request has begun; the job is cancelled if the client goes away."""
    queue = state_of(request).queue

    async def follow() -> AsyncIterator[str]:
        try:
            looked = time.monotonic()
            async for event in write_events(job):
                yield event
                if time.monotonic() - looked > _LOOK_SECONDS:
                    looked = time.monotonic()
                    if await request.is_disconnected():  # not every server tells by itself
                        return
        finally:
            if not job.ended:
                queue.stop(job, "cancelled")

    return StreamingResponse(follow(), media_type=CONTENT_TYPE, headers=EVENT_HEADERS)


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
    if "options" not in fields:
        return fields | flags
    try:
        return fields | flags | {"options": msgspec.json.decode(fields["options"])}
    except msgspec.DecodeError as error:
        raise UsageError(f"The form's options are no JSON: {error}.") from error


def _forget_when_ended(state: ServerState, job: ServedJob, clips: list[str]) -> None:
    if job.ended:
        state.clip_store.uploads.give_back(clips)
