"""How a request can fail, and the error that a server reports.

A fault is recognised by the HTTP status and the error's fields first, and by words of the whole message last.
`shorten` cuts a message to what users are shown.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Literal, cast

_HEAD, _TAIL = 140, 200
# A run of numbers and brackets: the pixels of an array, which servers print in the middle of a message.
_NUMBERS = re.compile(r"[\s\[\]().,\d-]{100,}")
_CODES = ("type", "code", "param")
_FULL_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "input_tokens"})
_FULL_WORDS = re.compile(r"context (?:length|window|size)|context_length|context_size|maximum model length", re.I)
_ODDS_CODES = frozenset({"logprobs", "top_logprobs"})
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_KEY_HINT = "Set its key in the environment: VRT_LITE_API_KEY."
_HINTS = {401: _KEY_HINT, 403: _KEY_HINT, 404: "Does the URL end in /v1, and is --served-model a name it serves?"}

ExchangeKind = Literal["unreachable", "timeout", "cut_off", "busy", "failed", "refused", "nonsense"]
"""How a request failed: no connection; no time left; an answer that ends early; a temporary status; an error in the
stream; a permanent status; an answer that no such server sends. For the last two, another try does not help."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a server reports it: the HTTP status, or the error's own code in a stream; `codes` name the cause."""

    status: int = 0
    message: str = ""
    codes: frozenset[str] = frozenset()

    @property
    def refuses(self) -> bool:
        """Whether the request itself is wrong: another form of it may help, but the same request will not."""
        return self.status in {400, 415, 422, 501}

    @property
    def context_full(self) -> bool:
        """Whether the conversation is too long for the server."""
        return self.status in {400, 413, 422} and bool(self.codes & _FULL_CODES or _FULL_WORDS.search(self.message))

    @property
    def without_odds(self) -> bool:
        """Whether the server cannot give probabilities."""
        return bool(self.codes & _ODDS_CODES) or "logprob" in self.message.lower()


class ExchangeError(Exception):
    """A request failed: `kind` says how, `str` completes "The server …", `hint` is what a user can do.

    `fault` is what the server reported; `pause_seconds` is the wait that it requested, if any.
    """

    def __init__(
        self,
        kind: ExchangeKind,
        reason: str,
        *,
        hint: str = "",
        fault: Fault | None = None,
        pause_seconds: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.kind: ExchangeKind = kind
        self.hint = hint
        self.fault = fault or Fault()
        self.pause_seconds = pause_seconds


def explain_status(status: int, body: bytes, *, retry_after: str) -> ExchangeError:
    """The error for an answer with another status than success."""
    if status < 400:
        hint = "Give the final URL."
        return ExchangeError("refused", "redirects elsewhere, which is not followed", hint=hint)
    fault = read_fault(status, body)
    reason = f"answered {status}: {fault.message}" if shorten(fault.message) else f"answered {status}"
    if status in _PASSING:
        return ExchangeError("busy", reason, fault=fault, pause_seconds=_read_retry_after(retry_after))
    return ExchangeError("refused", reason, hint=_HINTS.get(status, ""), fault=fault)


def read_fault(status: int, body: bytes) -> Fault:
    """Read the fault in an answer's body: the fields of its JSON, or its text unless that is a page."""
    text = body.decode(errors="replace")
    try:
        return find_fault(json.loads(text), status)
    except (ValueError, RecursionError):
        page = "<html" in text.lower() or "<!doctype" in text.lower()
        return Fault(status, "" if page else text)


def find_fault(answer: object, status: int = 0) -> Fault:
    """Find the fault in a server's error, in any of the usual forms. Without a status it is the error's own code."""
    codes: list[str] = []
    for _ in range(3):
        if not isinstance(answer, dict):
            break
        table = cast(dict[str, Any], answer)
        codes += [str(code) for name in _CODES if isinstance(code := table.get(name), str | int)]
        answer = table.get("error") or table.get("message") or table.get("detail")
    own = next((int(code) for code in reversed(codes) if code.isdecimal() and len(code) == 3), 0)
    return Fault(status or own, answer if isinstance(answer, str) else "", frozenset(codes))


def shorten(message: str) -> str:
    """Cut a message to one printable line: its head and tail, where the reason usually is, without long arrays."""
    text = _NUMBERS.sub(" … ", "".join(c if c.isprintable() else " " for c in message))
    text = " ".join(text.split())
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD].rstrip()} … {text[-_TAIL:].lstrip()}"


def _read_retry_after(header: str) -> float | None:
    """The seconds of a Retry-After header, which may be a number or a date; None if it is neither."""
    if header.strip().isdecimal():
        return float(header[:9])
    try:
        return max(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
