"""Starts the server on an address, says where it is, and ends it in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import python_multipart
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from vrt_lite.errors import UsageError, VrtError
from vrt_lite.modes import WantedJudge
from vrt_lite.shortage import limit_heaps
from vrt_lite.web.access import AccessMiddleware, is_loopback
from vrt_lite.web.endpoints import answer_error
from vrt_lite.web.job_work import perform_job
from vrt_lite.web.requests import JudgeOptions, RefusedRequestError, describe_error
from vrt_lite.web.routes import make_routes
from vrt_lite.web.server_state import ServerState

TOKEN_VARIABLE: Final = "VRT_LITE_TOKEN"
_LEAST_TOKEN = 16
_MOST_CONNECTIONS = 512
_LAST_SECONDS = 2


class TimedProtocol(asyncio.Protocol):
    """One connection. Without a whole request head in time, at its begin and after each answer, it is closed.

    uvicorn's own time limit, for a connection that is kept open, ends with the first byte. How slowly a body may come
    is up to who reads it.
    """

    HEAD_SECONDS: ClassVar[float] = 15.0
    """Longer than clients keep an idle connection, which is 5 s in httpx. With equal times a client may send a request
    while the server closes the connection."""

    def __init__(self, config: Config, **given: Any) -> None:
        self._http = H11Protocol(config=config, **given)
        self._app: ASGIApp = vars(self._http)["app"]
        self._http.app = self._serve
        self.data_received, self.eof_received = self._http.data_received, self._http.eof_received
        self.pause_writing, self.resume_writing = self._http.pause_writing, self._http.resume_writing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as asyncio does
        """Begin to wait for the first request."""
        self._transport, self._running = transport, 0
        self._http.connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._deadline.cancel()
        self._http.connection_lost(exc)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose head has arrived, and begin to wait for the next.

        That may be there already: a client reads the end of an answer before the application returns. What has no
        answer yet when the server stops gets one that says so.
        """
        self._deadline.cancel()
        self._running += 1
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            message = "The server is stopping. Ask again when it runs."
            await answer_error(503, "stopping", message, headers={"connection": "close"})(scope, receive, send)
        finally:
            self._running -= 1
            if not self._running:
                self._await_request()

    def _await_request(self) -> None:
        if not self._transport.is_closing():
            self._deadline = asyncio.get_running_loop().call_later(self.HEAD_SECONDS, self._transport.close)


def build_application(state: ServerState, *, host: str, names: Collection[str], token: str) -> ASGIApp:
    """Build the application, which does not close the `state`."""
    handlers = dict.fromkeys((VrtError, OSError, HTTPException, Exception), _answer_error)
    app = Starlette(routes=make_routes(state), exception_handlers=handlers)
    return AccessMiddleware(app, host=host, names=names, token=token)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = RefusedRequestError(error.status_code, "http", error.detail)
    told = describe_error(error)
    seconds = getattr(error, "retry_seconds", None)
    headers = {"retry-after": str(seconds)} if seconds else {}
    if told["status"] in (408, 413):
        headers["connection"] = "close"
    return answer_error(**told, headers=headers)


def run_server(
    choice: WantedJudge,
    *,
    host: str,
    port: int,
    names: Collection[str],
    folders: Sequence[Path],
    store: Path | None,
    open_browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve until interrupted or terminated (SystemExit); `say` gets the lines that tell where.

    Clips in the `folders` may be used. A reverse proxy in front of this server has these `names`. UsageError if the
    address cannot be used, ModelError if the judge's files cannot.
    """
    # uvicorn raises its signal again when it has stopped. By default this one would end the process there and then.
    signal.signal(signal.SIGTERM, lambda _, frame: sys.exit())
    limit_heaps()  # before threads allocate: a server runs for long
    token = "" if is_loopback(host) and not names else _choose_token()
    state = ServerState(perform_job, store=store, folders=folders, choice=choice)
    with contextlib.closing(state), _listen(host, port) as listening:
        state.open_judge(None, JudgeOptions()).close()  # what is wrong with its files is told before anything is served
        address, port = listening.getsockname()[:2]
        query = f"?token={token}" if token else ""
        here, *others = (
            f"http://{f'[{name}]' if ':' in name else name}:{port}/{query}" for name in _addresses(address)
        )
        others += [f"https://{name}/{query}" for name in names]
        app = build_application(state, host=host, names=names, token=token)
        server = uvicorn.Server(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                http=TimedProtocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=round(TimedProtocol.HEAD_SECONDS),
                timeout_graceful_shutdown=_LAST_SECONDS,
            )
        )
        # It warns of damaged forms, which are the clients' affair.
        logging.getLogger(python_multipart.__name__).setLevel(logging.CRITICAL)
        say(f"vrt-lite serves at {here} (Ctrl-C ends it)")
        for other in others:
            say(f"and from elsewhere at {other}")
        if open_browser:
            webbrowser.open(here)
        server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{host} port {port} cannot be served: {reason}. Give another --port or --host.") from error


def _addresses(host: str) -> list[str]:
    """List addresses at which a browser finds this server, first on this machine: 0.0.0.0 is none of them."""
    if host not in ("0.0.0.0", "::"):
        return [host]
    family, loopback, any_other = (
        (socket.AF_INET6, "::1", "2001:db8::1") if ":" in host else (socket.AF_INET, "127.0.0.1", "192.0.2.1")
    )
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((any_other, 9))  # sends nothing: it chooses the address from which it would be sent
        return [loopback, probe.getsockname()[0]]
    return [loopback]


def _choose_token() -> str:
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    if len(token) < _LEAST_TOKEN or not token.isascii():
        raise UsageError(f"{TOKEN_VARIABLE} must have at least {_LEAST_TOKEN} ASCII characters.")
    return token
