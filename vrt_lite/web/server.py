"""Starts the server on an address, says where it is, and ends it in order."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import python_multipart
import uvicorn

from vrt_lite.api import Judge
from vrt_lite.errors import UsageError
from vrt_lite.shortage import limit_heaps
from vrt_lite.web.access import is_loopback
from vrt_lite.web.application import build_application
from vrt_lite.web.http_protocol import TimedProtocol
from vrt_lite.web.job_context import JudgeChoice
from vrt_lite.web.server_state import ServerState

TOKEN_VARIABLE: Final = "VRT_LITE_TOKEN"
_LEAST_TOKEN = 16
_MOST_CONNECTIONS = 512
_LAST_SECONDS = 2


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where to serve, what may be used, and how to judge."""

    host: str
    port: int
    folders: tuple[Path, ...]
    store: Path | None
    choice: JudgeChoice
    open_browser: bool = False


def run_server(options: ServeOptions, *, say: Callable[[str], None]) -> None:
    """Serve until interrupted; `say` gets the lines that tell where. UsageError if the address cannot be used."""
    limit_heaps()  # before threads allocate: a server runs for long
    token = "" if is_loopback(options.host) else _choose_token()
    _check_judge(options.choice)
    with _listen(options.host, options.port) as listening:
        host, port = listening.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/" + (f"?token={token}" if token else "")
        state = ServerState(store=options.store, folders=options.folders, choice=options.choice)
        try:
            app = build_application(state, host=options.host, token=token)
            server = uvicorn.Server(_configure(app))
            # It warns of damaged forms, which are the clients' affair.
            logging.getLogger(python_multipart.__name__).setLevel(logging.CRITICAL)
            say(f"vrt-lite serves at {address} (Ctrl-C ends it)")
            if options.open_browser:
                webbrowser.open(address)
            server.run(sockets=[listening])
        finally:
            state.close()


def _configure(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=TimedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=round(TimedProtocol.HEAD_SECONDS),
        timeout_graceful_shutdown=_LAST_SECONDS,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        if os.name == "posix":  # on Windows it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{host} port {port} cannot be served: {reason}. Give another --port or --host.") from error
    return listening


def _choose_token() -> str:
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    if len(token) < _LEAST_TOKEN or not token.isascii():
        raise UsageError(f"{TOKEN_VARIABLE} must have at least {_LEAST_TOKEN} ASCII characters.")
    return token


def _check_judge(choice: JudgeChoice) -> None:
    """Find the model's files, so that what is wrong with them is told before anything is served."""
    settings, backend = choice.settings, choice.backend
    Judge(choice.model, projector=choice.projector, settings=settings, backend=backend, jobs=choice.jobs).close()
