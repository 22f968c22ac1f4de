"""What a server says went wrong: its fields, its whole message, and what kind of failure that is.

Kinds follow from the HTTP status and the error's own fields first, and from words of the whole message last. What is
shown to users is separate: `brief` shortens a message for them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

_HEAD, _TAIL = 140, 200
# A run of numbers and brackets: the pixels of an array, which servers print in the middle of a message.
_NUMBERS = re.compile(r"[\s\[\]().,\d-]{100,}")
_FULL_FIELDS = frozenset({"context_length_exceeded", "exceed_context_size_error", "input_tokens"})
_FULL_WORDS = re.compile(r"context (?:length|window|size)|context_length|context_size|maximum model length", re.I)
_ODDS_FIELDS = frozenset({"logprobs", "top_logprobs"})


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a server tells it: the HTTP status, or the error's own code in a stream; "" for what it omits."""

    status: int
    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""

    @property
    def refuses(self) -> bool:
        """Whether the request itself is at fault: asking for the same again is no use, asking otherwise may be."""
        return self.status in {400, 415, 422, 501}

    @property
    def context_full(self) -> bool:
        """Whether the conversation is too long for the server."""
        fields = {self.type, self.code, self.param} & _FULL_FIELDS
        return self.status in {400, 413, 422} and bool(fields or _FULL_WORDS.search(self.message))

    @property
    def without_odds(self) -> bool:
        """Whether it is the probabilities that the server cannot give."""
        return bool({self.code, self.param} & _ODDS_FIELDS) or "logprob" in self.message.lower()


def fault_of(status: int, body: bytes) -> Fault:
    """The fault that an answer's body tells: the fields of its JSON, or its text unless that is a page."""
    text = body.decode(errors="replace")
    try:
        return fault_in(json.loads(text), status)
    except (ValueError, RecursionError):
        page = "<html" in text.lower() or "<!doctype" in text.lower()
        return Fault(status, "" if page else text)


def fault_in(answer: object, status: int = 0) -> Fault:
    """The fault in a server's error, in any of the usual forms. Without a status it is the error's own code."""
    kind = code = param = ""
    for _ in range(3):
        if not isinstance(answer, dict):
            break
        table = cast(dict[str, Any], answer)
        kind, code, param = (_word(table.get(name)) or old for name, old in _fields(kind, code, param))
        answer = table.get("error") or table.get("message") or table.get("detail")
    told = int(code) if code.isdecimal() and len(code) == 3 else 0
    return Fault(status or told, answer if isinstance(answer, str) else "", kind, code, param)


def brief(message: str) -> str:
    """A message's head and tail in one printable line, without the numbers of arrays: reasons stand at the ends."""
    text = _NUMBERS.sub(" … ", "".join(c if c.isprintable() else " " for c in message))
    text = " ".join(text.split())
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD].rstrip()} … {text[-_TAIL:].lstrip()}"


def _fields(kind: str, code: str, param: str) -> tuple[tuple[str, str], ...]:
    return (("type", kind), ("code", code), ("param", param))


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
