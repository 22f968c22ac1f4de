"""HTTP as uvicorn speaks it, which ends a connection that does not send its next request in time."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """One connection. Without a whole request head in time, at its begin and after each answer, it is closed.

    uvicorn's own time limit, for a connection that is kept open, ends with the first byte. How slowly a body may come
    is up to who reads it.
    """

    HEAD_SECONDS: ClassVar[float] = 15.0
    """Longer than clients keep an idle connection, which is 5 s in httpx. With equal times a client may send a request
    while the server closes the connection."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as uvicorn does
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_request()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._deadline:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self.HEAD_SECONDS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if getattr(self.cycle, "response_complete", True):  # there is no cycle before the first request
            self.transport.close()
