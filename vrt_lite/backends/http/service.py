"""Requests to an OpenAI-compatible server: its address, the key, and asking again when that can help.

The key is read from the environment here, goes into one header, and is cut out of whatever is shown. Knows statuses,
tries and pauses; refuses to know conversations.
"""

from __future__ import annotations

import email.utils
import ipaddress
import json
import math
import os
import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from vrt_lite.backends.http.exchange import Exchange, Head, Missing, UnreachedError
from vrt_lite.backends.http.faults import Fault, brief, fault_of
from vrt_lite.backends.settings import Remote
from vrt_lite.errors import BackendError, ContextFullError, UsageError
from vrt_lite.interfaces import Observe, Waiting, Wrote, ignore

KEY_VARIABLES = ("VRT_LITE_API_KEY", "OPENAI_API_KEY")
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_PAUSE_SECONDS = 60.0
_LINGER_SECONDS = 0.5
MOST_JSON_BYTES = 4 * 2**20


class RefusedError(BackendError):
    """The server answered with a status that says no, and would again."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


class RetryError(Exception):
    """This try failed in a way that another may not: `str` completes "The server …".

    `pause_seconds`: what the server asked to wait, if it did. `fault`: what it said, if it did. `missing`: what its
    answer lacked.
    """

    def __init__(
        self,
        reason: str,
        *,
        pause_seconds: float | None = None,
        fault: Fault | None = None,
        missing: Missing | None = None,
    ) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds
        self.fault = fault
        self.missing = missing


class Service:
    """Connections to one server, shared by threads; a context manager. No request is made before the first use."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._key = _key()
        self._loopback = _is_loopback(urlsplit(remote.url).hostname or "")
        self._gone_since: float | None = None
        headers = {"User-Agent": "vrt-lite", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # The taker of an answer is the clock; this one only ends a thread that was left behind.
        patience = 2 * remote.silence_seconds + 1
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(patience, connect=remote.connect_seconds, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            # A redirect would take the key along, or the clips, to who knows whom.
            follow_redirects=False,
            # The proxies of the environment, but never between this machine and itself.
            trust_env=not self._loopback,
        )

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know about the connection."""
        if self._key and not self._loopback and self.remote.url.startswith("http://"):
            return ("The key is sent to the back end unencrypted (http://): who listens can read it. Use https://.",)
        return ()

    @contextmanager
    def streamed(
        self, body: dict[str, Any], *, until: float, observe: Observe, done: Callable[[], bool]
    ) -> Generator[Iterator[bytes]]:
        """The body of a chat completion's stream, in pieces; raises RetryError, BackendError, ContextFullError.

        Once it is `done`, its end is waited for a moment only: then the connection can be used again.
        """
        with Exchange(self._client, "POST", f"{self.remote.url}/chat/completions", body=body) as exchange:
            head = self._head(exchange, until, observe)
            if head.content_type != "text/event-stream":
                raise BackendError(
                    f"{self.name} answered with {self.shown(head.content_type) or 'no content type'} instead of a "
                    "stream of events. Is the URL an OpenAI-compatible server's, ending in /v1?"
                )
            yield self._pieces(exchange, until, observe, done)

    def persist(self, attempt: Callable[[], None], *, until: float, observe: Observe) -> None:
        """Try until it goes well, with growing pauses; BackendError after so many tries or `until` that time.

        A server that takes no connection is given up after `connect_seconds`, whoever asked for it, and as often.
        """
        for number in range(1, self.remote.tries + 1):
            began = time.monotonic()
            try:
                attempt()
            except RetryError as again:
                deadline, look = until, "Look at the server."
                if again.missing == "connection":
                    self._gone_since = began if self._gone_since is None else self._gone_since
                    deadline = min(until, self._gone_since + self.remote.connect_seconds)
                    look = "Is it running, and is the URL right?"
                grown = self.remote.pause_seconds * 2 ** (number - 1) * random.uniform(0.5, 1.0)
                pause = min(grown if again.pause_seconds is None else again.pause_seconds, _LONGEST_PAUSE_SECONDS)
                if number == self.remote.tries or time.monotonic() + pause >= deadline:
                    if again.missing == "connection":
                        self._gone_since = -math.inf  # Who asks next gets one try, until one goes well.
                    tries = "1 try" if number == 1 else f"{number} tries"
                    kept = "What is judged already is kept."
                    raise BackendError(f"{self.name} {again} ({tries}). {look} {kept}") from again
                observe(Waiting(f"the server at {self.remote.url} ({again})", number + 1))
                _wait(pause, observe)
            else:
                self._gone_since = None
                return

    def shown(self, text: str) -> str:
        """A server's words fit to show: one line, printable, brief, and without the key."""
        return brief(text.replace(self._key, "(the key)") if self._key else text)

    def too_long(self, fault: Fault) -> ContextFullError:
        """What to raise for a conversation that outgrew the server."""
        return ContextFullError(f"The conversation does not fit into the server's context: {self.shown(fault.message)}")

    @property
    def name(self) -> str:
        """The server in a message."""
        return f"The back end {self.remote.url}"

    def _pieces(self, exchange: Exchange, until: float, observe: Observe, done: Callable[[], bool]) -> Iterator[bytes]:
        try:
            while isinstance(piece := self._take(exchange, until, observe), bytes):
                yield piece
                if done():
                    until = min(until, time.monotonic() + _LINGER_SECONDS)
        except RetryError:
            if not done():
                raise

    def _take(self, exchange: Exchange, until: float, observe: Observe) -> Head | bytes | None:
        # Nothing new was written, but the observer may want to stop.
        silence = self.remote.silence_seconds
        try:
            return exchange.take(silence_seconds=silence, until=until, tick=lambda: observe(Wrote("")))
        except UnreachedError as error:
            raise RetryError(str(error), missing=error.missing) from error

    def _head(self, exchange: Exchange, until: float, observe: Observe) -> Head:
        """The beginning of a good answer; what any other means, raised."""
        head = self._take(exchange, until, observe)
        if not isinstance(head, Head):
            raise RetryError("gave no answer")
        if 200 <= head.status < 300:
            return head
        if 300 <= head.status < 400:
            raise BackendError(f"{self.name} redirects elsewhere, which is not followed. Give the final URL.")
        limit = min(until, time.monotonic() + self.remote.connect_seconds)
        try:
            body = exchange.whole(silence_seconds=self.remote.silence_seconds, until=limit)
        except UnreachedError:
            body = b""
        fault = fault_of(head.status, body)
        said = self.shown(fault.message)
        told = f": {said}" if said else ""
        if fault.context_full:
            raise self.too_long(fault)
        if head.status in _AGAIN:
            raise RetryError(f"answered {head.status}{told}", pause_seconds=_seconds(head.retry_after), fault=fault)
        hints = {
            401: f" Set its key in the environment: {KEY_VARIABLES[0]}.",
            403: f" Set its key in the environment: {KEY_VARIABLES[0]}.",
            404: " Does the URL end in /v1, and is --served-model a name it serves?",
        }
        raise RefusedError(f"{self.name} answered {head.status}{told}.{hints.get(head.status, '')}", fault)

    def get(self, url: str, *, once: bool = False, observe: Observe = ignore) -> object:
        """The JSON at a URL, asked for again where that can help unless `once`; BackendError."""
        most = MOST_JSON_BYTES
        patience = self.remote.connect_seconds if once else 2 * self.remote.silence_seconds
        until = time.monotonic() + min(self.remote.total_seconds, patience)
        found: list[object] = []

        def attempt() -> None:
            with Exchange(self._client, "GET", url) as exchange:
                self._head(exchange, until, observe)
                try:
                    body = exchange.whole(silence_seconds=self.remote.silence_seconds, until=until, most=most)
                except UnreachedError as error:
                    raise RetryError(str(error)) from error
            try:
                if len(body) > most:
                    raise ValueError
                found.append(json.loads(body))
            except (ValueError, RecursionError):
                raise BackendError(
                    f"{self.name} did not answer with JSON. Is it an OpenAI-compatible server, ending in /v1?"
                ) from None

        if once:
            try:
                attempt()
            except RetryError as error:
                raise BackendError(f"{self.name} {error}.") from error
        else:
            self.persist(attempt, until=until, observe=observe)
        return found[0]


def _key() -> str:
    """The key from the environment, "" if there is none; UsageError, which does not show it, if it can be none."""
    for name in KEY_VARIABLES:
        if key := os.environ.get(name, "").strip():
            if not key.isascii() or not key.isprintable():
                raise UsageError(f"{name} holds characters that a key cannot have. Set it anew.")
            return key
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _seconds(retry_after: str) -> float | None:
    """The seconds of a Retry-After header, which may be a number or a date; None if it is neither."""
    if retry_after.strip().isdecimal():
        return float(retry_after[:9])
    try:
        return max(email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


def _wait(seconds: float, observe: Observe) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        observe(Wrote(""))
        time.sleep(min(left, 0.1))
