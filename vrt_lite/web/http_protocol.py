"""HTTP as uvicorn speaks it, around which a connection ends that does not send its next request in time."""

from __future__ import annotations

import asyncio
import copy
from typing import Any, ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(asyncio.Protocol):
    """One connection. Without a whole request head in time, at its begin and after each answer, it is closed.

    uvicorn's own time limit, for a connection that is kept open, ends with the first byte. How slowly a body may come
    is up to who reads it.
    """

    HEAD_SECONDS: ClassVar[float] = 15.0
    """Longer than clients keep an idle connection, which is 5 s in httpx. With equal times a client may send a request
    while the server closes the connection."""

    def __init__(self, config: Config, **given: Any) -> None:
        own = copy.copy(config)
        self._app: ASGIApp = vars(config)["loaded_app"]
        own.loaded_app = self._serve
        self._http = H11Protocol(config=own, **given)
        self.data_received, self.eof_received = self._http.data_received, self._http.eof_received
        self.pause_writing, self.resume_writing = self._http.pause_writing, self._http.resume_writing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as asyncio does
        """Begin to wait for the first request."""
        self._transport = transport
        self._http.connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._deadline.cancel()
        self._http.connection_lost(exc)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose head has arrived, and begin to wait for the next."""
        self._deadline.cancel()
        try:
            await self._app(scope, receive, send)
        finally:
            self._await_request()

    def _await_request(self) -> None:
        if not self._transport.is_closing():
            self._deadline = asyncio.get_running_loop().call_later(self.HEAD_SECONDS, self._transport.close)
