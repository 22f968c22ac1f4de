"""How a request can fail, and what a server says of it. `shorten` cuts its words to what users are shown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

import httpx

_HEAD, _TAIL = 140, 200
# A run of numbers and brackets: the pixels of an array, which servers print in the middle of a message.
_NUMBERS = re.compile(r"[\s\[\]().,\d-]{100,}")
_FULL = re.compile(r"context[ _](?:length|window|size)|maximum model length|\"input_tokens\"", re.IGNORECASE)
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_HINTS = {
    **dict.fromkeys((301, 302, 307, 308), "It redirects elsewhere, which is not followed: give the final URL."),
    **dict.fromkeys((401, 403), "Set its key in the environment: VRT_LITE_API_KEY."),
    404: "Does the URL end in /v1, and is --served-model a name it serves?",
}
NO_SERVER = "Is it an OpenAI-compatible server, and does its URL end in /v1?"

ExchangeKind = Literal["unreachable", "cut_off", "passing", "lasting"]
"""How a request failed: no connection; an answer that ends early; else in a way that may pass, or not."""


@dataclass(eq=False)
class ExchangeError(Exception):
    """A request failed: `kind` says how, `reason` completes "The server …", `hint` is what a user can do.

    `words` are all that the server said of it; `pause_seconds` is the wait that it requested, if any.
    """

    kind: ExchangeKind
    reason: str
    hint: str = ""
    words: str = ""
    pause_seconds: float | None = None

    @property
    def context_full(self) -> bool:
        """Whether the conversation is too long for the server."""
        return bool(_FULL.search(self.words))

    @property
    def without_odds(self) -> bool:
        """Whether the server cannot give probabilities."""
        return "logprob" in self.words.lower()


def explain_failure(error: Exception, late: str) -> ExchangeError:
    """The error for an answer that did not arrive. It omits the address: a proxy's may hold a password."""
    if isinstance(error, TimeoutError):
        return ExchangeError("passing", late)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        why = str(error)[:120] or "no connection in time"
        return ExchangeError("unreachable", f"cannot be reached: {why}", hint="Is it running, and is the URL right?")
    return ExchangeError("cut_off", f"broke off the connection ({type(error).__name__})")


def explain_status(status: int, words: str, *, retry_after: str) -> ExchangeError:
    """The error for an answer with another status than success."""
    message = find_message(words)
    reason = f"answered {status}: {message}" if shorten(message) else f"answered {status}"
    # The header may also be a date, which no server of a model sends; then the pauses are ours.
    pause = float(retry_after[:9]) if retry_after.isdecimal() else None
    kind = "passing" if status in _PASSING else "lasting"
    return ExchangeError(kind, reason, hint=_HINTS.get(status, ""), words=words, pause_seconds=pause)


def find_message(words: str) -> str:
    """The message in a server's error, in any of the usual forms of JSON; other text as it is, unless it is a page."""
    try:
        answer = json.loads(words)
    except (ValueError, RecursionError):
        return "" if re.search("<html|<!doctype", words, re.IGNORECASE) else words
    while isinstance(answer, dict):
        table = cast(dict[str, Any], answer)
        answer = table.get("error") or table.get("message") or table.get("detail")
    return answer if isinstance(answer, str) else ""


def shorten(message: str) -> str:
    """Cut a message to one printable line: its head and tail, where the reason usually is, without long arrays."""
    text = _NUMBERS.sub(" … ", "".join(c if c.isprintable() else " " for c in message))
    text = " ".join(text.split())
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD].rstrip()} … {text[-_TAIL:].lstrip()}"
