"""Sends requests on one asyncio event loop, in a background thread that all callers share.

This is the only module that uses httpx. Its errors become `ExchangeError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import ssl
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import cast

import httpx

from vrt_lite.backends.http.faults import ExchangeError, explain_status
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.errors import ShortageError
from vrt_lite.interfaces import Event, Observe, Wrote, check_stops
from vrt_lite.settings import Remote

MOST_BODY_BYTES = 4 * 2**20
_MOST_ERROR_BYTES = 64 * 2**10
_PIECE_BYTES = 64 * 2**10
_TICK_SECONDS = 0.1
_LINGER_SECONDS = 0.5

_Events = queue.SimpleQueue[Event | None]


class Client:
    """Connections to one server, to be closed. Any thread may send a request and wait for its answer."""

    def __init__(self, remote: Remote, *, headers: Mapping[str, str], use_proxies: bool) -> None:
        self._remote = remote
        self._client = httpx.AsyncClient(
            headers=dict(headers),
            # httpx limits the time for a connection, `_exchange` the silence and the whole.
            timeout=httpx.Timeout(None, connect=remote.connect_seconds),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            # A redirect would send the key and the clips to an unknown server.
            follow_redirects=False,
            trust_env=use_proxies,
            # Loading the certificates takes 40 ms, which plain http:// without a proxy does not need.
            verify=use_proxies or remote.url.startswith("https:"),
        )
        self._loop = asyncio.new_event_loop()
        # A daemon, so that the process can end while a server does not answer.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="vrt-lite http")
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ShortageError("threads") from error

    def close(self) -> None:
        """Cancel all requests, and close the connections."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._cancel_and_close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def send(
        self,
        url: str,
        *,
        until: float,
        observe: Observe,
        content: bytes | None = None,
        reply: StreamedReply | None = None,
    ) -> bytes:
        """Get a URL, or post JSON to it. A stream of events is fed to `reply`. Raises ExchangeError.

        Returns the body, at most one byte more than MOST_BODY_BYTES, or nothing if it went to `reply`. `until` is a
        time of time.monotonic. `observe` is called in this thread; an exception from it, or a stop in force that is
        set, cancels the request.
        """
        events: _Events = queue.SimpleQueue()
        future = asyncio.run_coroutine_threadsafe(self._exchange(url, content, reply, until, events), self._loop)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while True:
                try:
                    event = events.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    check_stops()
                    continue
                if event is None:
                    return future.result()
                observe(event)
        finally:
            future.cancel()

    async def _exchange(
        self, url: str, content: bytes | None, reply: StreamedReply | None, until: float, events: _Events
    ) -> bytes:
        method, headers = ("POST", {"Content-Type": "application/json"}) if content else ("GET", {})
        silence, now = self._remote.silence_seconds, self._loop.time
        try:
            async with (
                asyncio.timeout_at(min(until, now() + silence)) as limit,
                self._client.stream(method, url, content=content, headers=headers) as response,
            ):
                limit.reschedule(min(until, now() + silence))
                await self._check(response, is_stream=reply is not None)
                if reply is None:
                    return await _read_body(response, MOST_BODY_BYTES)
                async for piece in _read_pieces(response):
                    if text := reply.feed(piece):
                        events.put(Wrote(text))
                    if reply.needs == "nothing":
                        break
                    if reply.needs == "end":
                        until = min(until, now() + _LINGER_SECONDS)
                    limit.reschedule(min(until, now() + silence))
        except ExchangeError:
            raise
        except Exception as error:
            if reply is None or reply.needs == "more":
                raise _explain(error, silence_seconds=silence if now() < until else None) from error
        return b""

    async def _check(self, response: httpx.Response, *, is_stream: bool) -> None:
        """Raise ExchangeError for an error status or a wrong content type. Waits only briefly for an explanation."""
        status, headers = response.status_code, response.headers
        if status >= 300:
            body = b""
            with contextlib.suppress(httpx.HTTPError, TimeoutError, zlib.error):
                async with asyncio.timeout(min(self._remote.connect_seconds, self._remote.silence_seconds)):
                    body = await _read_body(response, _MOST_ERROR_BYTES)
            raise explain_status(status, body, retry_after=headers.get("retry-after", ""))
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower() or "no content type"
        if is_stream and content_type != "text/event-stream":
            hint = "Is the URL an OpenAI-compatible server's, ending in /v1?"
            raise ExchangeError("nonsense", f"answered with {content_type} instead of a stream of events", hint=hint)

    async def _cancel_and_close(self) -> None:
        await _cancel_other_tasks()
        await self._client.aclose()
        await self._loop.shutdown_asyncgens()
        await _cancel_other_tasks()


async def _cancel_other_tasks() -> None:
    """Cancel every other task of this loop, and those that its generators need to be closed."""
    await asyncio.sleep(0)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _read_body(response: httpx.Response, most: int) -> bytes:
    body = b""
    async for piece in _read_pieces(response):
        body += piece
        if len(body) > most:
            break
    return body[: most + 1]


async def _read_pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body in pieces. A small body that unpacks to a huge one also comes in small pieces."""
    encoding = response.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding not in {"identity", "gzip", "deflate"}:
        raise ExchangeError("nonsense", "sent its answer in an encoding that was not asked for")
    unpack = zlib.decompressobj(32 + zlib.MAX_WBITS) if encoding != "identity" else None
    async for piece in response.aiter_raw():
        if unpack is None:
            yield piece
            continue
        packed = piece
        while packed:
            yield unpack.decompress(packed, _PIECE_BYTES)
            packed = unpack.unconsumed_tail


def _explain(error: Exception, *, silence_seconds: float | None) -> ExchangeError:
    """The error for an answer that did not arrive. It omits the address: a proxy's may hold a password.

    `silence_seconds` is how long the server may send nothing; None if the whole time is over.
    """
    match error:
        case TimeoutError() if silence_seconds is None:
            return ExchangeError("timeout", "did not finish in the time allowed")
        case TimeoutError():
            return ExchangeError("timeout", f"said nothing for {silence_seconds:g} s")
        case httpx.ConnectTimeout():
            return ExchangeError("unreachable", "cannot be reached: no connection in the time allowed")
        case httpx.ConnectError():
            return ExchangeError("unreachable", f"cannot be reached: {_find_cause(error)}")
        case httpx.ProxyError():
            return ExchangeError("cut_off", "cannot be reached: the proxy refuses")
        case zlib.error():
            return ExchangeError("cut_off", "sent broken data")
        case httpx.RemoteProtocolError() | httpx.NetworkError():
            return ExchangeError("cut_off", "broke off the connection")
        case _:
            return ExchangeError("cut_off", f"gave no answer ({type(error).__name__})")


def _find_cause(error: BaseException) -> str:
    """The system's reason for a connection that failed."""
    if isinstance(error, BaseExceptionGroup):
        return _find_cause(cast(BaseExceptionGroup[BaseException], error).exceptions[0])
    if error.__cause__:
        return _find_cause(error.__cause__)
    if isinstance(error, OSError) and error.errno and error.strerror:
        # asyncio's own text repeats the address. For Windows, TLS and name servers the text says more than the number.
        other = sys.platform == "win32" or isinstance(error, ssl.SSLError | socket.gaierror)
        return error.strerror if other else os.strerror(error.errno)
    return str(error)[:120] or type(error).__name__
