"""Sends requests to one server on an asyncio event loop, in a background thread that all callers share.

This is the only module that uses httpx. Its errors become `ExchangeError`. The key is read from the environment here,
and goes into one header.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import threading
from concurrent.futures import wait
from typing import Any
from urllib.parse import urlsplit

import httpx

from vrt_lite.backends.http.faults import ExchangeError, explain_status
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.errors import ShortageError, UsageError
from vrt_lite.interfaces import Observe, Wrote, check_stops
from vrt_lite.settings import Remote

_KEY_VARIABLES = ("VRT_LITE_API_KEY", "OPENAI_API_KEY")
_MOST_BODY_BYTES = 4 * 2**20
_TICK_SECONDS = 0.05


class Client:
    """Connections to one server, to be closed. Any thread may send a request and wait for its answer."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.key = _read_key()
        is_here = _is_loopback(urlsplit(remote.url).hostname or "")
        self.sends_key_openly = bool(self.key) and not is_here and remote.url.startswith("http://")
        headers = {"User-Agent": "vrt-lite", "Accept-Encoding": "identity"}
        self._client = httpx.AsyncClient(
            headers=headers | ({"Authorization": f"Bearer {self.key}"} if self.key else {}),
            # httpx limits the time for a connection, `_exchange` the silence and the whole.
            timeout=httpx.Timeout(None, connect=remote.connect_seconds),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            # A redirect would send the key and the clips to an unknown server.
            follow_redirects=False,
            # The proxies of the environment, except for a server on this machine.
            trust_env=not is_here,
            # Loading the certificates takes 40 ms, which plain http:// without a proxy does not need.
            verify=not is_here or remote.url.startswith("https:"),
        )
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        # A daemon, so that the process can end while a server does not answer.
        self._thread = threading.Thread(target=self._serve, daemon=True, name="vrt-lite http")
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ShortageError("threads") from error

    def close(self) -> None:
        """Cancel all requests, and close the connections."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._runner.close()  # here: the thread that closes a client may run a loop of its own, as a notebook does

    def get(self, url: str, *, until: float, observe: Observe) -> object:
        """The JSON at a URL. Raises ExchangeError."""
        body = self._send(self._client.build_request("GET", url), None, until, observe)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            hint = "Is it an OpenAI-compatible server, ending in /v1?"
            raise ExchangeError("lasting", "did not answer with JSON", hint=hint) from None

    def stream(self, body: dict[str, Any], reply: StreamedReply, *, until: float, observe: Observe) -> None:
        """Request a chat completion, and feed its stream to `reply`. Raises ExchangeError."""
        url, headers = f"{self._remote.url}/chat/completions", {"Content-Type": "application/json"}
        request = self._client.build_request("POST", url, content=json.dumps(body).encode(), headers=headers)
        self._send(request, reply, until, observe)
        if not reply.complete:
            raise ExchangeError("cut_off", "broke off in the middle of a reply")

    def _send(self, request: httpx.Request, reply: StreamedReply | None, until: float, observe: Observe) -> bytes:
        """The answer's first _MOST_BODY_BYTES, or nothing if it is fed to `reply`. `until` is of time.monotonic.

        `observe` is called in this thread with what is new. An exception from it, or a stop in force, cancels the
        request.
        """
        work = asyncio.run_coroutine_threadsafe(self._exchange(request, reply, until), self._loop)
        try:
            done = False
            while not done:
                done = bool(wait([work], timeout=_TICK_SECONDS).done)
                check_stops()
                if reply and (text := reply.take(self.key)):
                    observe(Wrote(text))
            return work.result()
        finally:
            work.cancel()

    async def _exchange(self, request: httpx.Request, reply: StreamedReply | None, until: float) -> bytes:
        silence, now = self._remote.silence_seconds, self._loop.time
        try:
            async with asyncio.timeout_at(min(until, now() + silence)) as limit:
                response = await self._client.send(request, stream=True)
                async with contextlib.aclosing(response):
                    await _check(response, is_stream=reply is not None)
                    if reply is None:
                        return await _read_body(response)
                    async for piece in response.aiter_raw():
                        if reply.feed(piece):  # comments alone are as good as silence
                            limit.reschedule(min(until, now() + silence))
                        if reply.done:
                            break
        except ExchangeError:
            raise
        except Exception as error:
            if reply is None or not reply.complete:
                late = f"said nothing for {silence:g} s" if now() < until else "did not finish in the time allowed"
                raise _explain(error, late) from error
        return b""


async def _check(response: httpx.Response, *, is_stream: bool) -> None:
    """Raise ExchangeError for an error status, or another type or encoding than asked for."""
    status, headers = response.status_code, response.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ExchangeError("lasting", "sent its answer in an encoding that was not asked for")
    if status >= 300:
        raise explain_status(status, await _read_body(response), retry_after=headers.get("retry-after", ""))
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower() or "no content type"
    if is_stream and content_type != "text/event-stream":
        hint = "Is the URL an OpenAI-compatible server's, ending in /v1?"
        raise ExchangeError("lasting", f"answered with {content_type} instead of a stream of events", hint=hint)


async def _read_body(response: httpx.Response) -> bytes:
    body = b""
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > _MOST_BODY_BYTES:
            break
    return body[:_MOST_BODY_BYTES]


def _explain(error: Exception, late: str) -> ExchangeError:
    """The error for an answer that did not arrive. It omits the address: a proxy's may hold a password."""
    if isinstance(error, TimeoutError):
        return ExchangeError("passing", late)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        why = str(error)[:120] or "no connection in time"
        return ExchangeError("unreachable", f"cannot be reached: {why}", hint="Is it running, and is the URL right?")
    return ExchangeError("cut_off", f"broke off the connection ({type(error).__name__})")


def _read_key() -> str:
    """The key from the environment, "" if there is none. UsageError, which does not show it, if it is not valid."""
    for name in _KEY_VARIABLES:
        if key := os.environ.get(name, "").strip():
            if not key.isascii() or not key.isprintable():
                raise UsageError(f"{name} holds characters that a key cannot have. Set it again.")
            return key
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
