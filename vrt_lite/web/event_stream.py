"""Writes a job's events as they happen, for server-sent events, and waits for a job's end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request

from vrt_lite.web.job_queue import JobQueue
from vrt_lite.web.served_job import ServedJob

_HEARTBEAT_SECONDS = 10.0
_LOOK_SECONDS = 0.5
CONTENT_TYPE = "text/event-stream"
HEADERS = {"content-type": CONTENT_TYPE, "x-accel-buffering": "no"}
"""The second lets nginx pass each event on when it comes."""


async def wait_for_end(job: ServedJob, request: Request) -> bool:
    """Wait until a job has ended. Returns False if the client has gone away before."""
    changed, end_listening = _listen(job)
    looked = time.monotonic()
    try:
        while not job.ended:
            changed.clear()
            if job.ended:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _LOOK_SECONDS)
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                if await request.is_disconnected():
                    return False
        return True
    finally:
        end_listening()


async def write_events(job: ServedJob, *, after: int = 0) -> AsyncIterator[str]:
    """Yield all events of a job after one, as they happen, and last how it ended."""
    changed, end_listening = _listen(job)
    try:
        while True:
            changed.clear()
            ended = job.ended  # before the events are read: the last one is among them
            for event in job.events_after(after):
                after = event.number
                yield _format_event(event.number, event.kind, dict(event.data))
            if ended:
                yield _format_event(after, "end", job.describe())
                return
            try:
                await asyncio.wait_for(changed.wait(), _HEARTBEAT_SECONDS)
            except TimeoutError:
                yield ": still there\n\n"
    finally:
        end_listening()


async def follow_own(job: ServedJob, request: Request, queue: JobQueue) -> AsyncIterator[str]:
    """Yield the events of a job that a request has begun; the job is cancelled if the client goes away."""
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


def _listen(job: ServedJob) -> tuple[asyncio.Event, Any]:
    """Return an event of this loop that is set after every event of a job, and the function that ends this."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(changed.set)

    return changed, job.listen(wake)


def _format_event(number: int, kind: str, data: dict[str, Any]) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
