"""Sends requests to one OpenAI-compatible server, with its key, and retries with pauses where that can help.

The key is read from the environment here, goes into one header, and is removed from all text that users see. Causes are
not chained to errors: they hold the server's own words, which may repeat the key, or a proxy's password.
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from vrt_lite.backends.http.client import MOST_BODY_BYTES, Client
from vrt_lite.backends.http.faults import ExchangeError, shorten
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.errors import BackendError, ContextFullError, UsageError
from vrt_lite.interfaces import Event, Observe, Waiting, Wrote, check_stops
from vrt_lite.settings import Remote, ServerKind

KEY_VARIABLES = ("VRT_LITE_API_KEY", "OPENAI_API_KEY")
_LONGEST_PAUSE_SECONDS = 60.0

_T = TypeVar("_T")
_NAMES_SHOWN = 8
# The owner in the answer of /models, for vLLM, SGLang, llama-server and llama-cpp-python.
_OWNERS: dict[str, ServerKind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama", "me": "llama"}
_VERSION = "/version"
# Addresses next to /v1 that only one kind has, and a field of the answer.
_SIGNS: tuple[tuple[str, str, ServerKind], ...] = (
    (_VERSION, "version", "vllm"),
    ("/model_info", "is_generation", "sglang"),
    ("/props", "default_generation_settings", "llama"),
)
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.\d|$)")


class Service:
    """One server, for any number of threads, to be closed. Sends no request before its first use."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._key = _read_key()
        self._loopback = _is_loopback(urlsplit(remote.url).hostname or "")
        self._gone_since: float | None = None
        headers = {"User-Agent": "vrt-lite", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # The proxies of the environment, except for a server on this machine.
        self._client = Client(remote, headers=headers, use_proxies=not self._loopback)

    def close(self) -> None:
        """Cancel all requests, and close the connections."""
        self._client.close()

    @property
    def name(self) -> str:
        """The server's name in a message."""
        return f"The back end {self.remote.url}"

    @property
    def sends_key_openly(self) -> bool:
        """Whether the key travels unencrypted over a network."""
        return bool(self._key) and not self._loopback and self.remote.url.startswith("http://")

    def stream(self, body: dict[str, Any], reply: StreamedReply, *, until: float, observe: Observe) -> None:
        """Request a chat completion once, and feed its stream to `reply`. Raises ExchangeError, ContextFullError."""
        url, content = f"{self.remote.url}/chat/completions", json.dumps(body).encode()
        try:
            self._client.send(url, content=content, reply=reply, until=until, observe=observe)
        except ExchangeError as error:
            if error.fault.context_full:
                words = self._redact(error.fault.message)
                raise ContextFullError(f"The conversation does not fit into the server's context: {words}") from None
            raise
        if not reply.complete:
            raise ExchangeError("cut_off", "broke off in the middle of a reply")

    def get(self, url: str, *, observe: Observe) -> object:
        """The JSON at a URL, with retries. Raises BackendError."""
        until = time.monotonic() + min(self.remote.total_seconds, 2 * self.remote.silence_seconds)
        return self.retry(lambda: self._get(url, until, observe), until=until, observe=observe)

    def get_once(self, url: str, *, observe: Observe) -> object:
        """The JSON at a URL, without retries; None if the request fails."""
        try:
            return self._get(url, time.monotonic() + self.remote.connect_seconds, observe)
        except ExchangeError:
            return None

    def retry(self, attempt: Callable[[], _T], *, until: float, observe: Observe) -> _T:
        """Try until it succeeds, with growing pauses. Raises BackendError after the last try allowed, or at `until`.

        A server that takes no connection is given up after `connect_seconds`, counted over all callers and tries.
        """
        number = 1
        while True:
            began = time.monotonic()
            try:
                result = attempt()
            except ExchangeError as error:
                pause = self._plan_pause(error, number, began, until)
                number += 1
                observe(Waiting(f"the server at {self.remote.url} ({self._redact(str(error))})", number))
                _wait(pause)
            else:
                self._gone_since = None
                return result

    def _plan_pause(self, error: ExchangeError, number: int, began: float, until: float) -> float:
        """How long to wait after this failure of try `number`. Raises BackendError if no other try can help."""
        failed = f"{self.name} {self._redact(str(error))}"
        if error.kind in {"refused", "nonsense"}:
            raise BackendError(f"{failed}. {error.hint}".strip()) from None
        gone = error.kind == "unreachable"
        if gone:
            self._gone_since = began if self._gone_since is None else self._gone_since
            until = min(until, self._gone_since + self.remote.connect_seconds)
        grown = self.remote.pause_seconds * 2 ** (number - 1) * random.uniform(0.5, 1.0)
        pause = min(grown if error.pause_seconds is None else error.pause_seconds, _LONGEST_PAUSE_SECONDS)
        if number == self.remote.tries or time.monotonic() + pause >= until:
            if gone:
                self._gone_since = -math.inf  # Each next caller gets one try, until one succeeds.
            tries = "1 try" if number == 1 else f"{number} tries"
            hint = "Is it running, and is the URL right?" if gone else "Look at the server."
            raise BackendError(f"{failed} ({tries}). {hint} What is judged already is kept.") from None
        return pause

    def _redact(self, text: str) -> str:
        """A server's text as users may see it: one line, printable, short, and without the key."""
        return shorten(text.replace(self._key, "(the key)") if self._key else text)

    def hide_key(self, text: str) -> str:
        """What the model wrote, without the key, which it may have been told; the text keeps its length."""
        return text.replace(self._key, "*" * len(self._key)) if self._key else text

    def hide_key_from(self, observe: Observe) -> KeyHider:
        """Return what observes in the place of `observe`, and hides the key from it."""
        return KeyHider(self._key, observe)

    def holds_key(self, text: str) -> bool:
        """Whether the key is in a text."""
        return bool(self._key) and self._key in text

    def _get(self, url: str, until: float, observe: Observe) -> object:
        body = self._client.send(url, until=until, observe=observe)
        try:
            if len(body) > MOST_BODY_BYTES:
                raise ValueError
            return json.loads(body)
        except (ValueError, RecursionError):
            hint = "Is it an OpenAI-compatible server, ending in /v1?"
            raise ExchangeError("nonsense", "did not answer with JSON", hint=hint) from None


class KeyHider:
    """Passes events on to `observe`, without the key in the text that the model writes.

    The key may come in pieces: text that may be its beginning is kept back until more comes, or until the end.
    """

    def __init__(self, key: str, observe: Observe) -> None:
        self._key = key
        self._observe = observe
        self._kept = ""

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        if self._key and isinstance(event, Wrote):
            text = (self._kept + event.text).replace(self._key, "*" * len(self._key))
            begun = next(n for n in range(len(self._key) - 1, -1, -1) if text.endswith(self._key[:n]))
            shown, self._kept = text[: len(text) - begun], text[len(text) - begun :]
            event = Wrote(shown)
        self._observe(event)

    def end(self) -> None:
        """Pass on what was kept back."""
        shown, self._kept = self._kept, ""
        self._observe(Wrote(shown))


def _read_key() -> str:
    """The key from the environment, "" if there is none. UsageError, which does not show it, if it is not valid."""
    for name in KEY_VARIABLES:
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


def _wait(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check_stops()
        time.sleep(min(left, 0.1))


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server is, and the model that it serves. `version` is vLLM's, (0, 0) for a build between releases."""

    kind: ServerKind
    model: str
    version: tuple[int, int] = (0, 0)


def find_server(service: Service, *, observe: Observe) -> ServerInfo:
    """Ask for the server's kind and model. Raises BackendError, UsageError for a name it lacks."""
    owners = _list_models(service, observe)
    chosen = service.remote.served_model
    if chosen is None and len(owners) != 1:
        raise UsageError(f"The server serves {_join(list(owners))}: choose with --served-model NAME.")
    model = next(iter(owners)) if chosen is None else chosen
    if service.holds_key(model):
        raise BackendError(f"{service.name} lists a model whose name holds the key. Do not trust it; change the key.")
    if model not in owners:
        raise UsageError(f"The server has no model {model!r}; it serves {_join(list(owners))}.")
    kind = _find_kind(service, owners[model], observe)
    return ServerInfo(kind, model, _find_version(service, observe) if kind == "vllm" else (0, 0))


def _list_models(service: Service, observe: Observe) -> dict[str, str]:
    """The owner of every model that the server lists, by name."""
    answer = service.get(f"{service.remote.url}/models", observe=observe)
    rows = cast(dict[str, Any], answer).get("data") if isinstance(answer, dict) else None
    owners: dict[str, str] = {}
    for row in cast(list[Any], rows) if isinstance(rows, list) else []:
        entry = cast(dict[str, Any], row) if isinstance(row, dict) else {}
        if isinstance(name := entry.get("id"), str) and name:
            owners[name] = str(entry.get("owned_by", ""))
    if not owners:
        raise BackendError(f"{service.name} lists no models at /models. Is it an OpenAI-compatible server?")
    return owners


def _find_kind(service: Service, owner: str, observe: Observe) -> ServerKind:
    """The kind of server: what the user says, else by the owner it names, else by an address that only one kind has."""
    if service.remote.kind != "auto":
        return service.remote.kind
    if owner in _OWNERS:
        return _OWNERS[owner]
    for path, sign, kind in _SIGNS:
        if sign in _get_beside(service, path, observe):
            return kind
    return "openai"


def _find_version(service: Service, observe: Observe) -> tuple[int, int]:
    """The first two numbers of vLLM's version. (0, 0) for a build between releases, which calls itself 0.1.dev."""
    release = _RELEASE.match(str(_get_beside(service, _VERSION, observe).get("version", "")))
    return (int(release[1]), int(release[2])) if release else (0, 0)


def _get_beside(service: Service, path: str, observe: Observe) -> dict[str, Any]:
    """The answer at an address next to /v1; empty if it is not a JSON object."""
    answer = service.get_once(f"{service.remote.url.removesuffix('/v1')}{path}", observe=observe)
    return cast(dict[str, Any], answer) if isinstance(answer, dict) else {}


def _join(names: list[str]) -> str:
    shown = ", ".join(repr(name[:200]) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
