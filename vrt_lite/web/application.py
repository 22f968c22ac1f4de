"""The ASGI application: routes to the API and the pages, errors as JSON, and the access check in front of all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection

from anyio import to_thread
from starlette.applications import Starlette
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

    routes = [endpoint.make_route(state) for endpoint in (*API, *PAGES)]
    handlers = dict.fromkeys((VrtError, OSError, HTTPException, Exception), _answer_error)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    return AccessMiddleware(app, host=host, names=names, token=token)


async def _adopt_jobs(state: ServerState) -> None:
    while True:
        await asyncio.sleep(_ADOPT_SECONDS)
        await to_thread.run_sync(state.queue.adopt_jobs)


async def _answer_error(request: Request, error: Exception) -> Response:
    told = describe_error(error)
    status = told.pop("status")
    if isinstance(error, HTTPException):
        status, told = error.status_code, {"kind": "http", "message": error.detail}
    seconds = getattr(error, "retry_seconds", None)
    headers = {"retry-after": str(seconds)} if seconds else {}
    if status in (408, 413):
        headers["connection"] = "close"
    return JsonAnswer({"error": told}, status, headers)
