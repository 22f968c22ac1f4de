"""Writes a job's events as they happen, for server-sent events, and waits for a job's end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from vrt_lite.web.jobs import ServedJob

_HEARTBEAT_SECONDS = 10.0
_LOOK_SECONDS = 0.05
"""A thread writes events, and these are looked for: that is simpler than to wake those who wait on the event loop."""


class EventStream(StreamingResponse):
    """All events of a job after one, and last how it ended. `give_up` is called if the client goes away before."""

    def __init__(self, job: ServedJob, *, after: int = 0, give_up: Callable[[], object] = lambda: None) -> None:
        headers = {"x-accel-buffering": "no"}  # lets nginx pass each event on when it comes
        super().__init__(_write_events(job, after, give_up), media_type="text/event-stream", headers=headers)


async def _write_events(job: ServedJob, after: int, give_up: Callable[[], object]) -> AsyncIterator[str]:
    told, ended = time.monotonic(), False
    try:
        while not ended:
            ended = job.ended  # before its events are read: the last one is among them
            for event in job.events_after(after):
                after, told = event.number, time.monotonic()
                yield _format_event(after, event.kind, event.data)
            if time.monotonic() - told > _HEARTBEAT_SECONDS:
                told = time.monotonic()
                yield ": still there\n\n"
            await asyncio.sleep(_LOOK_SECONDS)
        yield _format_event(after, "end", msgspec.to_builtins(job))
    finally:
        if not job.ended:
            give_up()


async def wait_for_end(job: ServedJob, request: Request) -> bool:
    """Wait until a job has ended. Returns False if the client has gone away before."""
    while not job.ended:
        if await request.is_disconnected():
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def _format_event(number: int, kind: str, data: Any) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
