"""Writes a job's events as they happen, for server-sent events, and waits for a job's end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from vrt_lite.web.jobs import Job

_HEARTBEAT_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class EventStream(StreamingResponse):
    """All events of a job after one, and last how it ended. `give_up` is called if the client goes away before."""

    def __init__(self, job: Job, *, after: int = 0, give_up: Callable[[], object] = lambda: None) -> None:
        headers = {"x-accel-buffering": "no"}  # lets nginx pass each event on when it comes
        super().__init__(self._write(job, after, give_up), media_type="text/event-stream", headers=headers)

    @staticmethod
    async def _write(job: Job, after: int, give_up: Callable[[], object]) -> AsyncIterator[str]:
        try:
            async for ended in _follow(job, _HEARTBEAT_SECONDS):
                events = job.events_after(after)
                for event in events:
                    after = event.number
                    yield _format_event(after, event.kind, event.data)
                if ended:
                    yield _format_event(after, "end", msgspec.to_builtins(job))
                elif not events:
                    yield ": still there\n\n"
        finally:
            if not job.ended:
                give_up()


async def wait_for_end(job: Job, request: Request) -> bool:
    """Wait until a job has ended. Returns False if the client has gone away before."""
    async for _ in _follow(job, _LOOK_SECONDS):
        if await request.is_disconnected():
            return job.ended
    return True


async def _follow(job: Job, seconds: float) -> AsyncIterator[bool]:
    """Yield at once, and after events of a job or so many seconds without one, whether it had ended by then."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(changed.set)

    end = job.listen(wake)
    try:
        ended = False
        while not ended:
            changed.clear()
            ended = job.ended  # before its events are read: the last one is among them
            yield ended
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0 if ended else seconds)
    finally:
        end()


def _format_event(number: int, kind: str, data: Any) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
