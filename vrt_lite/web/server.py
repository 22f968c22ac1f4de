"""Starts the server on an address, says where it is, and ends it in order."""

from __future__ import annotations

import contextlib
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
    names: tuple[str, ...] = ()
    """What a reverse proxy in front of this server is called."""
    open_browser: bool = False


def run_server(options: ServeOptions, *, say: Callable[[str], None]) -> None:
    """Serve until interrupted; `say` gets the lines that tell where. UsageError if the address cannot be used."""
    limit_heaps()  # before threads allocate: a server runs for long
    token = "" if is_loopback(options.host) and not options.names else _choose_token()
    _check_judge(options.choice)
    with _listen(options.host, options.port) as listening:
        host, port = listening.getsockname()[:2]
        query = f"?token={token}" if token else ""
        here, *others = (f"http://{f'[{name}]' if ':' in name else name}:{port}/{query}" for name in _addresses(host))
        others += [f"https://{name}/{query}" for name in options.names]
        state = ServerState(store=options.store, folders=options.folders, choice=options.choice)
        try:
            app = build_application(state, host=options.host, names=options.names, token=token)
            server = uvicorn.Server(_configure(app))
            # It warns of damaged forms, which are the clients' affair.
            logging.getLogger(python_multipart.__name__).setLevel(logging.CRITICAL)
            say(f"vrt-lite serves at {here} (Ctrl-C ends it)")
            for address in others:
                say(f"and from elsewhere at {address}")
            if options.open_browser:
                webbrowser.open(here)
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


def _check_judge(choice: JudgeChoice) -> None:
    """Find the model's files, so that what is wrong with them is told before anything is served."""
    settings, backend = choice.settings, choice.backend
    Judge(choice.model, projector=choice.projector, settings=settings, backend=backend, jobs=choice.jobs).close()
