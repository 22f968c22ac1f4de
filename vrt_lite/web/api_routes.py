"""The API: what programs ask of the server. Requests are checked here; the threads of the queue do the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Judgement
from vrt_lite.web.clip_store import name_clip
from vrt_lite.web.endpoints import Endpoint, JsonAnswer
from vrt_lite.web.event_stream import EventStream, wait_for_end
from vrt_lite.web.request_bodies import CompareBody, PullBody, RankBody, RewardsBody, read_body
from vrt_lite.web.served_job import ServedJob, ToldJob
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.uploading import sends_form

_MOST_DIGITS = 19
_Asked = CompareBody | RankBody | RewardsBody


async def compare(state: ServerState, request: Request) -> Response:
    """Compare two clips, named in JSON or sent as files in a form. Without `wait` the answer is the job."""
    if not sends_form(request):
        return await judge(state, request, read_body(await state.body_reader.read_json(request), CompareBody))
    draft, texts = await state.body_reader.take_clips(request, "a", "b")
    try:
        body = read_body({**texts, **draft.ids}, CompareBody, strict=False)
    except BaseException:
        draft.remove()
        raise
    return await judge(state, request, body, clean_up=draft.remove)


async def judge(
    state: ServerState, request: Request, body: _Asked, clean_up: Callable[[], None] = lambda: None
) -> Response:
    """Judge clips, or the videos of a folder. The answer is the result, or without `wait` the job."""
    job = ServedJob(body, clean_up=clean_up)

    def begin() -> None:
        clips = (body.a, body.b) if isinstance(body, CompareBody) else body.clips
        find = state.clip_store.find_all if isinstance(body, RankBody) else state.clip_store.find
        for clip in dict.fromkeys(clips):
            find(clip)
        state.context.check_model(body.model)
        state.queue.add(job, keep=not body.wait)

    try:
        await state.do("clips", begin)
    except BaseException:
        clean_up()
        raise
    if "text/event-stream" in request.headers.get("accept", ""):
        return EventStream(job, give_up=lambda: state.queue.stop(job, "cancelled"))
    if not body.wait:
        return _answer_job(job)
    if not await wait_for_end(job, request):
        state.queue.stop(job, "cancelled")
    headers = {"x-job": job.id}
    if job.result is not None:
        return JsonAnswer(job.result["judgement"] if job.kind == "compare" else job.result, headers=headers)
    told: dict[str, Any] = {
        "kind": "cancelled",
        "message": "The job was cancelled.",
        "status": 409,
        **(job.error or {}),
    }
    return JsonAnswer({"error": told}, told.pop("status"), headers)


async def rank(state: ServerState, request: Request, body: RankBody) -> Response:
    """Rank clips, or the videos of a folder. The answer is a job, unless `wait` is set."""
    return await judge(state, request, body)


async def rewards(state: ServerState, request: Request, body: RewardsBody) -> Response:
    """Give each clip of a prompt a scalar, in log odds."""
    return await judge(state, request, body)


async def upload(state: ServerState, request: Request) -> dict[str, str]:
    """Send a clip, its bytes as the body; the answer has its id.

    Or a form: several files in its field `clip` are numbered pictures, `fps` a second. `?name=` is the file's name.
    """
    draft, _ = await state.body_reader.take_clips(request, "clip")

    def keep() -> dict[str, str]:
        clip = state.clip_store.uploads.keep(draft, "clip")
        path = state.clip_store.find(clip)
        return {"clip": clip, "name": name_clip(path), "address": state.clip_store.make_address(path)}

    try:
        return await state.do("clips", keep)
    finally:
        draft.remove()


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
    return state.queue.stop(state.queue.find(job), "cancelled")


async def pause_job(state: ServerState, job: str) -> dict[str, Any]:
    """Pause a job after its present judgement."""
    return state.queue.stop(state.queue.find(job), "paused")


async def resume_job(state: ServerState, job: str) -> dict[str, Any]:
    """Go on with a paused job."""
    return state.queue.resume(state.queue.find(job))


async def follow_job(state: ServerState, request: Request, job: str) -> Response:
    """Follow a job (text/event-stream): its events as they happen, those after Last-Event-ID."""
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < _MOST_DIGITS else 0
    return EventStream(state.queue.find(job), after=after)


ENDPOINTS = (
    Endpoint("POST", "/v1/compare", compare, body=CompareBody, answer=Judgement, files=("a", "b")),
    Endpoint("POST", "/v1/rank", rank, body=RankBody, answer=ToldJob),
    Endpoint("POST", "/v1/rewards", rewards, body=RewardsBody),
    Endpoint("POST", "/v1/clips", upload, files=("clip",), status=HTTPStatus.CREATED),
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


def _answer_job(job: ServedJob) -> Response:
    return JsonAnswer(job.describe(), HTTPStatus.ACCEPTED, {"location": f"/v1/jobs/{job.id}"})
