"""Requests to an OpenAI-compatible server: its address, the key, and asking again when that can help.

The key is read from the environment here, goes into one header, and is cut out of whatever is shown. Knows statuses,
tries and pauses; refuses to know conversations.
"""

from __future__ import annotations

import email.utils
import ipaddress
import json
import os
import random
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from vrt_lite.backends.http.exchange import Exchange, Head, UnreachedError
from vrt_lite.backends.http.reading import message_in
from vrt_lite.backends.settings import Remote
from vrt_lite.errors import BackendError, ContextFullError, UsageError

KEY_VARIABLES = ("VRT_LITE_API_KEY", "OPENAI_API_KEY")
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_PAUSE_SECONDS = 60.0
_LINGER_SECONDS = 0.5
_LONGEST_MESSAGE = 300
MOST_JSON_BYTES = 4 * 2**20
_FULL = re.compile(r"context (?:length|window|size)|context_length|context_size|maximum model length", re.IGNORECASE)


class RefusedError(BackendError):
    """The server answered with a status that says no, and would again."""


class RetryError(Exception):
    """This try failed in a way that another may not. `pause_seconds`: what the server asked to wait, if it did."""

    def __init__(self, reason: str, *, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds


class Service:
    """Connections to one server, shared by threads; a context manager. No request is made before the first use."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._key = _key()
        self._loopback = _is_loopback(urlsplit(remote.url).hostname or "")
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
        self, body: dict[str, Any], *, until: float, tick: Callable[[], None], done: Callable[[], bool]
    ) -> Generator[Iterator[bytes]]:
        """The body of a chat completion's stream, in pieces; raises RetryError, BackendError, ContextFullError.

        Once it is `done`, its end is waited for a moment only: then the connection can be used again.
        """
        with Exchange(self._client, "POST", f"{self.remote.url}/chat/completions", body=body) as exchange:
            head = self._head(exchange, until, tick)
            if head.content_type != "text/event-stream":
                raise BackendError(
                    f"{self.name} answered with {self.shown(head.content_type) or 'no content type'} instead of a "
                    "stream of events. Is the URL an OpenAI-compatible server's, ending in /v1?"
                )
            yield self._pieces(exchange, until, tick, done)

    def persist(self, attempt: Callable[[], None], *, until: float, tick: Callable[[], None]) -> None:
        """Try until it goes well, with growing pauses; BackendError after so many tries or `until` that time."""
        for number in range(1, self.remote.tries + 1):
            try:
                attempt()
                return
            except RetryError as again:
                grown = self.remote.pause_seconds * 2 ** (number - 1) * random.uniform(0.5, 1.0)
                pause = min(grown if again.pause_seconds is None else again.pause_seconds, _LONGEST_PAUSE_SECONDS)
                late = time.monotonic() + pause >= until
                if number == self.remote.tries or late:
                    raise BackendError(
                        f"{self.name} {again} ({number} {'try' if number == 1 else 'tries'}). "
                        "Look at the server; what is judged already is kept."
                    ) from again
                _wait(pause, tick)

    def shown(self, text: str) -> str:
        """A server's words fit to show: one line, printable, cut, and without the key."""
        if self._key:
            text = text.replace(self._key, "(the key)")
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"

    @property
    def name(self) -> str:
        """The server in a message."""
        return f"The back end {self.remote.url}"

    def _pieces(
        self, exchange: Exchange, until: float, tick: Callable[[], None], done: Callable[[], bool]
    ) -> Iterator[bytes]:
        try:
            while isinstance(piece := self._take(exchange, until, tick), bytes):
                yield piece
                if done():
                    until = min(until, time.monotonic() + _LINGER_SECONDS)
        except RetryError:
            if not done():
                raise

    def _take(self, exchange: Exchange, until: float, tick: Callable[[], None]) -> Head | bytes | None:
        try:
            return exchange.take(silence_seconds=self.remote.silence_seconds, until=until, tick=tick)
        except UnreachedError as error:
            raise RetryError(str(error)) from error

    def _head(self, exchange: Exchange, until: float, tick: Callable[[], None]) -> Head:
        """The beginning of a good answer; what any other means, raised."""
        head = self._take(exchange, until, tick)
        if not isinstance(head, Head):
            raise RetryError("gave no answer")
        if 200 <= head.status < 300:
            return head
        if 300 <= head.status < 400:
            raise BackendError(f"{self.name} redirects elsewhere, which is not followed. Give the final URL.")
        try:
            limit = min(until, time.monotonic() + self.remote.connect_seconds)
            said = self.shown(_message(exchange.whole(silence_seconds=self.remote.silence_seconds, until=limit)))
        except UnreachedError:
            said = ""
        told = f": {said}" if said else ""
        if head.status in _AGAIN:
            raise RetryError(f"answered {head.status}{told}", pause_seconds=_seconds(head.retry_after))
        if head.status in {400, 413, 422} and _FULL.search(said):
            raise ContextFullError(f"The conversation does not fit into the server's context: {said}")
        hints = {
            401: f" Set its key in the environment: {KEY_VARIABLES[0]}.",
            403: f" Set its key in the environment: {KEY_VARIABLES[0]}.",
            404: " Does the URL end in /v1, and is --served-model a name it serves?",
        }
        raise RefusedError(f"{self.name} answered {head.status}{told}.{hints.get(head.status, '')}")

    def get(self, url: str, *, once: bool = False) -> object:
        """The JSON at a URL, asked for again where that can help unless `once`; BackendError."""
        most = MOST_JSON_BYTES
        until = time.monotonic() + min(self.remote.total_seconds, 2 * self.remote.silence_seconds)
        found: list[object] = []

        def attempt() -> None:
            with Exchange(self._client, "GET", url) as exchange:
                self._head(exchange, until, _nothing)
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
            self.persist(attempt, until=until, tick=_nothing)
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


def _message(body: bytes) -> str:
    """What an error's body says: the message of its JSON, or its text unless that is a page."""
    text = body.decode(errors="replace")
    try:
        return message_in(json.loads(text))
    except (ValueError, RecursionError):
        return "" if "<html" in text.lower() or "<!doctype" in text.lower() else text


def _seconds(retry_after: str) -> float | None:
    """The seconds of a Retry-After header, which may be a number or a date; None if it is neither."""
    if retry_after.strip().isdecimal():
        return float(retry_after[:9])
    try:
        return max(email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


def _wait(seconds: float, tick: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        tick()
        time.sleep(min(left, 0.1))


def _nothing() -> None:
    """No one to tell."""
