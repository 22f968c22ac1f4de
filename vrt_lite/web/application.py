"""The ASGI application: routes to the API and the pages, errors as JSON, and the access check in front of all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vrt_lite.errors import VrtError
from vrt_lite.web.access import AccessMiddleware
from vrt_lite.web.endpoints import JsonAnswer
from vrt_lite.web.page_routes import API, PAGES
from vrt_lite.web.refusals import describe_error
from vrt_lite.web.server_state import ServerState

_ADOPT_SECONDS = 2.0


def build_application(state: ServerState, *, host: str, names: Collection[str], token: str) -> ASGIApp:
    """Build the application. It closes what `state` holds when the server ends."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        adopting = asyncio.create_task(_adopt_jobs(state))
        yield
        adopting.cancel()
        state.close()

    routes = [endpoint.make_route() for endpoint in (*API, *PAGES)]
    handlers = {VrtError: _answer_error, HTTPException: _answer_http_error, Exception: _answer_error}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.server = state
    return AccessMiddleware(app, host=host, names=names, token=token)


async def _adopt_jobs(state: ServerState) -> None:
    while True:
        await asyncio.sleep(_ADOPT_SECONDS)
        await run_in_threadpool(state.queue.adopt_jobs)


async def _answer_error(request: Request, error: Exception) -> Response:
    told = describe_error(error)
    status = told.pop("status")
    seconds = getattr(error, "retry_seconds", None)
    headers = {"retry-after": str(seconds)} if seconds else {}
    if status in (408, 413):
        headers["connection"] = "close"
    return JsonAnswer({"error": told}, status, headers)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = str(getattr(error, "detail", error))
    return JsonAnswer({"error": {"kind": "http", "message": message}}, status)
