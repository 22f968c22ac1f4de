"""Reads a streamed reply: server-sent events in, text and the odds of its digits out. All of it bounded.

Total but for its two errors: what a server sends is data to distrust. Knows the format; refuses to know HTTP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from vrt_lite.backends.http.faults import Fault, fault_in
from vrt_lite.protocol.messages import Odds, StopReason

LONGEST_LINE_BYTES = 4 * 2**20
_DIGITS = ("0", "1", "2")
# Of one token a server tells its text, and up to twenty others' with their probabilities.
_BYTES_A_TOKEN = 16 * 2**10
_SPARE_BYTES = 16 * 2**20
_SPARE_EVENTS = 2_000


class NonsenseError(Exception):
    """What arrived is not what such a server sends; `str` completes "The server …". Asking again is no use."""


class FailedError(Exception):
    """The server said in its stream that it failed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Lines:
    """Bytes in any pieces to lines, of bounded length."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that are complete now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES or any(len(line) > LONGEST_LINE_BYTES for line in whole):
            raise NonsenseError(f"sent a line of more than {LONGEST_LINE_BYTES // 2**20} MiB")
        yield from (line.rstrip(b"\r").decode(errors="replace") for line in whole)


@dataclass(slots=True)
class Written:
    """A reply as far as it has arrived."""

    most_tokens: int
    text: str = ""
    odds: dict[int, Odds] = field(default_factory=dict[int, Odds])
    stop: StopReason | None = None
    done: bool = False
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    thinking: bool = False
    _bytes: int = 0
    _events: int = 0
    _lines: Lines = field(default_factory=Lines)

    def feed(self, data: bytes) -> None:
        """Take what arrived. Raises NonsenseError, FailedError."""
        self._bytes += len(data)
        if self._bytes > self.most_tokens * _BYTES_A_TOKEN + _SPARE_BYTES:
            raise NonsenseError(f"sent {self._bytes // 2**20} MiB for a reply of at most {self.most_tokens} tokens")
        for line in self._lines.feed(data):
            if self.done or not line.startswith("data:"):
                continue  # Comments keep a connection alive; names of events tell nothing here.
            self._events += 1
            if self._events > 2 * self.most_tokens + _SPARE_EVENTS:
                raise NonsenseError(f"sent {self._events} events for a reply of at most {self.most_tokens} tokens")
            payload = line.removeprefix("data:").strip()
            if payload == "[DONE]":
                self.done = True
            elif payload:
                self._event(_object(payload))

    def _event(self, event: Mapping[str, Any]) -> None:
        if "error" in event:
            raise FailedError(fault_in(event))
        self._count(event.get("usage"))
        choices = event.get("choices")
        if not isinstance(choices, list):
            raise NonsenseError("sent an event without choices")
        for choice in cast(list[Any], choices)[:1]:
            if not isinstance(choice, dict):
                raise NonsenseError("sent a choice that is no object")
            self._choice(cast(dict[str, Any], choice))

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        parts: Mapping[str, Any] = cast(dict[str, Any], delta) if isinstance(delta, dict) else {}
        if parts.get("tool_calls"):
            raise NonsenseError("reads the judge's tool calls itself: start it without a tool-call parser")
        thought = parts.get("reasoning_content") or parts.get("reasoning")
        if isinstance(thought, str):
            # A server with a reasoning parser takes the tags away; the protocol needs them.
            self.text += thought if self.thinking else f"<think>{thought}"
            self.thinking = True
        content = parts.get("content")
        if content is not None and not isinstance(content, str):
            raise NonsenseError("sent content that is no text")
        if content:
            if self.thinking:
                self.text, self.thinking = self.text + "</think>", False
            start = len(self.text)
            self.text += content
            self._note(choice.get("logprobs"), start)
        if (reason := choice.get("finish_reason")) is not None:
            self.stop = "limit" if reason == "length" else "end"

    def _note(self, logprobs: object, start: int) -> None:
        """The odds of the digits among the tokens that came with text[start:], as far as they are told."""
        told = cast(dict[str, Any], logprobs).get("content") if isinstance(logprobs, dict) else None
        entries = cast(list[Any], told) if isinstance(told, list) else []
        self.tokens += max(len(entries), 1)
        for entry in entries:
            token = cast(dict[str, Any], entry).get("token") if isinstance(entry, dict) else None
            if not isinstance(token, str) or not token:
                continue
            at = self.text.find(token, start)
            if at < 0:
                continue
            start = at + len(token)
            if token in _DIGITS and (found := odds_of(cast(dict[str, Any], entry))):
                self.odds[at] = found

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        told = cast(dict[str, Any], usage)
        details = told.get("prompt_tokens_details")
        cached = cast(dict[str, Any], details).get("cached_tokens") if isinstance(details, dict) else 0
        self.prompt_tokens, self.cached_tokens = _count_of(told.get("prompt_tokens")), _count_of(cached)
        self.tokens = max(self.tokens, _count_of(told.get("completion_tokens")))


def odds_of(entry: Mapping[str, Any]) -> Odds | None:
    """Probabilities of (tie, video 1, video 2) at a digit, renormalised over what the server told of the three.

    A digit that is not among the likeliest is told of by none: it has no chance worth a number, 0.
    """
    likely = entry.get("top_logprobs")
    weights = dict.fromkeys(_DIGITS, 0.0)
    for other in [entry, *(cast(list[Any], likely) if isinstance(likely, list) else [])]:
        if not isinstance(other, dict):
            continue
        named = cast(dict[str, Any], other)
        token, value = named.get("token"), named.get("logprob")
        if token in weights and isinstance(value, int | float) and not math.isnan(value):
            weights[token] = max(weights[token], math.exp(min(float(value), 0.0)))
    total = sum(weights.values())
    if not isinstance(likely, list) or not total > 0:
        return None
    tie, one, two = (weights[digit] / total for digit in _DIGITS)
    return (tie, one, two)


def _object(payload: str) -> Mapping[str, Any]:
    try:
        event: object = json.loads(payload)
    except (ValueError, RecursionError):
        raise NonsenseError("sent an event that is not JSON") from None
    if not isinstance(event, dict):
        raise NonsenseError("sent an event that is no object")
    return cast(dict[str, Any], event)


def _count_of(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0
