"""One request and its answer, received in a thread of its own: the taker bounds every wait and may leave at any time.

A blocking read in the taker's own thread could be ended by nothing: not by an interrupt, not by a second clock. The
only place that names httpx's requests and errors; refuses to know what is asked and what an answer means.
"""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import httpx

_TICK_SECONDS = 0.1
_PIECES_WAITING = 64
_MOST_ERROR_BYTES = 64 * 2**10


Missing = Literal["connection", "rest", "time"]
"""What an exchange lacked: a connection; what should have followed; time."""


class UnreachedError(Exception):
    """No whole answer arrived: `str` completes "The server …"."""

    def __init__(self, reason: str, *, missing: Missing = "time") -> None:
        super().__init__(reason)
        self.missing: Missing = missing


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer."""

    status: int
    content_type: str
    retry_after: str


class Exchange:
    """A request under way; a context manager. Leaving it ends the connection, whatever it was doing."""

    def __init__(self, client: httpx.Client, method: str, url: str, *, body: Mapping[str, Any] | None = None) -> None:
        self._arrived: queue.Queue[Head | bytes | Exception | None] = queue.Queue(_PIECES_WAITING)
        self._left = threading.Event()
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._asked = (client, method, url, body)
        # A daemon: a server that says nothing must not keep the process from ending.
        self._thread = threading.Thread(target=self._receive, daemon=True, name="vrt-lite request")

    def __enter__(self) -> Exchange:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._left.set()
        with self._lock:
            if self._socket is not None:
                # Wakes the thread out of its read. Where the system does not, the read's own timeout does.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def take(self, *, silence_seconds: float, until: float, tick: Callable[[], None]) -> Head | bytes | None:
        """What arrives next; None at the end. UnreachedError when nothing does, for so long or `until` that time.

        `until` is on time.monotonic's clock. `tick` is called several times a second, and may raise.
        """
        began = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= until:
                raise UnreachedError("did not finish in the time allowed")
            if now - began >= silence_seconds:
                raise UnreachedError(f"said nothing for {silence_seconds:g} s")
            try:
                piece = self._arrived.get(timeout=min(_TICK_SECONDS, until - now))
            except queue.Empty:
                tick()
                continue
            if isinstance(piece, Exception):
                raise UnreachedError(_reason(piece), missing=_missing(piece)) from piece
            return piece

    def whole(self, *, silence_seconds: float, until: float, most: int = _MOST_ERROR_BYTES) -> bytes:
        """What is left of the body, cut at `most` bytes: an error's message, or a short answer."""
        found = b""
        while len(found) <= most:
            piece = self.take(silence_seconds=silence_seconds, until=until, tick=_nothing)
            if piece is None:
                break
            found += piece if isinstance(piece, bytes) else b""
        return found[: most + 1]

    def _receive(self) -> None:
        client, method, url, body = self._asked
        try:
            with client.stream(method, url, json=body) as response:
                stream = response.extensions.get("network_stream")
                self._socket = stream.get_extra_info("socket") if stream is not None else None
                headers = response.headers
                kind = headers.get("content-type", "").partition(";")[0].strip().lower()
                self._put(Head(response.status_code, kind, headers.get("retry-after", "")))
                for piece in self._pieces(response):
                    self._put(piece)
                self._forget_socket()
            self._put(None)
        except _LeftError:
            pass
        except Exception as error:
            with contextlib.suppress(_LeftError):
                self._put(error)

    def _pieces(self, response: httpx.Response) -> Iterator[bytes]:
        if "content-encoding" in response.headers:
            # A small body that unpacks to a huge one comes in pieces as well, and the taker counts them.
            self._forget_socket()
            yield from response.iter_bytes(64 * 2**10)
        else:
            # Not iter_raw, which gives the connection to the next request before its end is known here.
            yield from cast(httpx.SyncByteStream, response.stream)

    def _forget_socket(self) -> None:
        """It is another request's from here on, which must not lose it."""
        with self._lock:
            self._socket = None

    def _put(self, piece: Head | bytes | Exception | None) -> None:
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                self._arrived.put(piece, timeout=_TICK_SECONDS)
                return
        raise _LeftError


class _LeftError(Exception):
    """Nobody takes what arrives any more."""


def _nothing() -> None:
    """No one to tell."""


def _missing(error: Exception) -> Missing:
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return "connection"
        case httpx.TimeoutException():
            return "time"
        case _:
            return "rest"


def _reason(error: Exception) -> str:
    """Why an exchange broke off, without the address: the caller names it, and a proxy's may hold a password."""
    match error:
        case httpx.ConnectTimeout():
            return "cannot be reached: no connection in the time allowed"
        case httpx.ConnectError():
            cause = error.__cause__ or error
            return f"cannot be reached: {_first_words(cause)}"
        case httpx.TimeoutException():
            return "said nothing for too long"
        case httpx.ProxyError():
            return "cannot be reached: the proxy refuses"
        case httpx.DecodingError() | httpx.RemoteProtocolError() | httpx.NetworkError():
            return "broke off the connection" if not isinstance(error, httpx.DecodingError) else "sent broken data"
        case _:
            return f"gave no answer ({type(error).__name__})"


def _first_words(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__)[:120]
