"""The HTTP back end: a judge on an OpenAI-compatible server, such as vLLM, SGLang, llama-server or llama-cpp-python's.

In each round the whole visible conversation is sent and text streams in. The reply has the odds of its digits where the
server gives them. Threads may share the back end: it keeps nothing of a conversation. Requests run on one asyncio event
loop, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import itertools
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from vrt_lite.backends.http.faults import NO_SERVER, ExchangeError, explain_failure, explain_status, shorten
from vrt_lite.backends.http.request import LIKELIEST, ServerInfo, build_body, find_server
from vrt_lite.backends.http.sse import StreamedReply, hide
from vrt_lite.errors import BackendError, ContextFullError, ShortageError, UsageError, Warned
from vrt_lite.interfaces import (
    Encoding,
    Event,
    FrameStore,
    Loading,
    Observe,
    Sampling,
    Waiting,
    Wrote,
    check_stops,
    ignore,
)
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, Usage
from vrt_lite.settings import Remote

_T = TypeVar("_T")
_KEY_VARIABLES = ("VRT_LITE_API_KEY", "OPENAI_API_KEY")
_MOST_DOUBLINGS = 5
_MOST_BODY_BYTES = 4 * 2**20
_TICK_SECONDS = 0.1


class HttpBackend:
    """A judge on a server; a context manager. Sends nothing before its first use. Raises BackendError, UsageError.

    Causes are not chained to errors: they hold the server's own words, which may repeat the key, or a proxy's password.
    """

    def __init__(self, remote: Remote, *, profile: Profile) -> None:
        self._remote = remote
        self._profile = profile
        self._key = _read_key()
        self._server: ServerInfo | None = None
        self._with_odds = True
        self._warnings: dict[Warned, None] = {}
        is_here = _is_loopback(urlsplit(remote.url).hostname or "")
        is_encrypted = remote.url.startswith("https:")
        if self._key and not is_here and not is_encrypted:
            text = "The key is sent to the back end unencrypted (http://): others on the network can read it. Use https://."
            self._warnings[Warned("key_unencrypted", text)] = None
        headers = {"User-Agent": "vrt-lite", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        self._client = httpx.AsyncClient(
            headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            # httpx limits the time for a connection, `_exchange` the silence and the whole.
            timeout=httpx.Timeout(None, connect=remote.connect_seconds),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            # A redirect would send the key and the clips to an unknown server.
            follow_redirects=False,
            # The proxies of the environment, except for a server on this machine.
            trust_env=not is_here,
            # Loading the certificates takes 40 ms. A proxy's are checked in any case.
            verify=is_encrypted,
        )
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        # A daemon, so that the process can end while a server does not answer.
        self._thread = Thread(target=self._serve, daemon=True, name="vrt-lite http")
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ShortageError("threads") from error

    def __enter__(self) -> HttpBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel all requests, and close the connections."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._runner.close()  # here: the thread that closes a back end may run a loop of its own, as a notebook does

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What a reader of a verdict must know about the requests, as far as it is known."""
        return tuple(self._warnings)

    def connect(self, observe: Observe = ignore) -> ServerInfo:
        """Ask for the server's kind and model, unless it is known; `observe` is told of waits."""
        seconds = min(self._remote.total_seconds, 2 * self._remote.silence_seconds)

        def find(tell: Observe) -> Coroutine[Any, Any, ServerInfo]:
            return find_server(self._remote, lambda path: self._try(functools.partial(self._get, path), seconds, tell))

        self._server = self._server or self._run(find, observe)
        return self._server

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        began = time.monotonic()
        server = self.connect(observe)
        observe(Loading(f"an answer of {server.model}"))
        if new := _count_new_frames(conversation):
            observe(Encoding(0, new))
        body = build_body(conversation, frames, sampling, server=server, profile=self._profile)
        reply = self._run(functools.partial(self._request, body, sampling, server), observe)
        if not self._with_odds:
            text = "The server gives no probabilities: the verdict has choices alone."
            self._warnings[Warned("no_probabilities", text)] = None
        if server.warning and any(message.frames for message in conversation):
            self._warnings[server.warning] = None
        ended = time.monotonic()
        first = max(reply.first_text_at or began, began)
        usage = Usage(
            tokens_prefilled=max(reply.prompt_tokens - reply.cached_tokens, 0),
            tokens_reused=reply.cached_tokens,
            tokens_generated=reply.tokens,
            frames_encoded=new,
            prefill_seconds=first - began,
            generate_seconds=ended - first,
        )
        return Reply(reply.text, (), reply.stop or "end", reply.odds, usage)

    def _run(self, start: Callable[[Observe], Coroutine[Any, Any, _T]], observe: Observe) -> _T:
        """Do some work on the loop, and return its result. What it tells is told here, in this thread.

        An exception of `observe`, or a stop in force, cancels it.
        """
        told: SimpleQueue[Event | None] = SimpleQueue()
        work = asyncio.run_coroutine_threadsafe(start(told.put), self._loop)
        work.add_done_callback(lambda _: told.put(None))
        try:
            while not work.done() or not told.empty():
                with contextlib.suppress(Empty):
                    if event := told.get(timeout=_TICK_SECONDS):
                        observe(event)
                check_stops()
            return work.result()
        finally:
            work.cancel()

    async def _try(self, attempt: Callable[[float], Awaitable[_T]], seconds: float, tell: Observe) -> _T:
        """Try until it succeeds, with growing pauses, or those that the server asks for. `attempt` gets its end.

        Raises BackendError where no try can help, after the last one allowed, and if the next would come after so many
        seconds or, for a server that takes no connection, after `connect_seconds`.
        """
        r, now = self._remote, time.monotonic
        until = last = now() + seconds
        for number in itertools.count(1):
            began = now()
            try:
                return await attempt(until)
            except ExchangeError as failed:
                error = failed
            reason, hint = self._clean(error.reason), error.hint
            if error.kind == "lasting":
                raise BackendError(f"The back end {r.url} {reason}. {hint}".rstrip())
            if error.kind == "unreachable":
                last = min(last, began + r.connect_seconds)
            pause = error.pause_seconds
            if pause is None:
                pause = r.pause_seconds * 2 ** min(number - 1, _MOST_DOUBLINGS) * random.uniform(0.5, 1.0)
            if number == r.tries or now() + pause >= last:
                if error.pause_seconds and number < r.tries:
                    hint = (
                        f"It asks to wait {pause:.0f} s, and a reply may take {r.total_seconds:g} s: try again later."
                    )
                tries = "1 try" if number == 1 else f"{number} tries"
                ending = f"{hint or 'Look at the server.'} What is judged already is kept."
                raise BackendError(f"The back end {r.url} {reason} ({tries}). {ending}")
            tell(Waiting(f"the server at {r.url} ({reason})", number + 1))
            await asyncio.sleep(pause)
        raise AssertionError

    async def _request(
        self, body: dict[str, Any], sampling: Sampling, server: ServerInfo, tell: Observe
    ) -> StreamedReply:
        """Request a chat completion, with odds if the server gives them. What was told of it is not told again."""
        shown = 0

        async def attempt(until: float) -> StreamedReply:
            nonlocal shown
            for likeliest in (LIKELIEST, {}) if self._with_odds else ({},):
                reply = StreamedReply(sampling.max_new_tokens, sampling.concluded, shown, sampling.openings, self._key)
                try:
                    await self._exchange("/chat/completions", until, body | likeliest, reply, tell)
                except ExchangeError as error:
                    shown = reply.shown
                    if error.context_full:
                        why = self._clean(error.reason)
                        raise ContextFullError(
                            f"The conversation does not fit into the server's context: {why}"
                        ) from None
                    # llama-cpp-python without --logits_all breaks off before the first word instead of refusing them.
                    breaks_off = server.kind == "llama" and error.kind == "cut_off" and not reply.text
                    if not (likeliest and (error.without_odds or breaks_off)):
                        raise
                else:
                    self._with_odds = bool(likeliest)
                    return reply
            raise AssertionError

        return await self._try(attempt, self._remote.total_seconds, tell)

    async def _get(self, path: str, until: float) -> object:
        """The JSON at a path, without the key."""
        try:
            return json.loads(hide(self._key, await self._exchange(path, until)))
        except (ValueError, RecursionError):
            raise ExchangeError("lasting", "did not answer with JSON", hint=NO_SERVER) from None

    async def _exchange(
        self, path: str, until: float, body: object = None, reply: StreamedReply | None = None, tell: Observe = ignore
    ) -> str:
        """Send a request. Returns the answer, or "" where it is fed to `reply`. Raises ExchangeError."""
        silence, now = self._remote.silence_seconds, self._loop.time
        url = self._remote.url + path
        request = self._client.build_request("POST" if body else "GET", url, content=json.dumps(body) if body else None)
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
                        if text := reply.take():
                            tell(Wrote(text))
                        if reply.done:
                            break
        except ExchangeError:
            raise
        except Exception as error:
            if reply is None or not reply.complete:
                late = f"said nothing for {silence:g} s" if now() < until else "did not finish in the time allowed"
                raise explain_failure(error, late) from error
        if reply and not reply.complete:
            raise ExchangeError("cut_off", "broke off in the middle of a reply")
        return ""

    def _clean(self, text: str) -> str:
        """A server's text as users may see it: one line, printable, short, and without the key."""
        return shorten(hide(self._key, text))


async def _check(response: httpx.Response, *, is_stream: bool) -> None:
    """Raise ExchangeError for an error status, or another type or encoding than asked for."""
    status, headers = response.status_code, response.headers
    if headers.get("content-encoding", "identity") != "identity":
        raise ExchangeError("lasting", "sent its answer in an encoding that was not asked for")
    if status >= 300:
        raise explain_status(status, await _read_body(response), retry_after=headers.get("retry-after", ""))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower() or "no content type"
    if is_stream and kind != "text/event-stream":
        raise ExchangeError("lasting", f"answered with {kind} instead of a stream of events", hint=NO_SERVER)


async def _read_body(response: httpx.Response) -> str:
    body = b""
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > _MOST_BODY_BYTES:
            break
    return body[:_MOST_BODY_BYTES].decode(errors="replace")


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


def _count_new_frames(conversation: Conversation) -> int:
    """The frames since the judge's last turn: earlier ones were sent before, and the server may still hold them."""
    latest = itertools.takewhile(lambda message: message.role != "assistant", reversed(conversation))
    return sum(len(message.frames) for message in latest)
