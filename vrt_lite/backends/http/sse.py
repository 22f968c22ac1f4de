"""Reads a streamed reply: server-sent events in, text and the odds of its digits out. All sizes are limited.

A server is not trusted: input that cannot be read raises ExchangeError, and nothing else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from vrt_lite.backends.http.faults import ExchangeError, find_fault
from vrt_lite.interfaces import never
from vrt_lite.protocol.messages import Odds, StopReason

LONGEST_LINE_BYTES = 4 * 2**20
_DIGITS = ("0", "1", "2")
# For each token a server sends its text, and up to twenty other tokens with their probabilities.
_BYTES_PER_TOKEN = 16 * 2**10
_SPARE_BYTES = 16 * 2**20
_SPARE_EVENTS = 2_000
_CHARACTERS_PER_TOKEN = 64
_SPARE_CHARACTERS = 64 * 2**10
_STEP = 32
_GROWTH = 1.05
_LEAST_LOGPROB = -1_000.0


@dataclass(slots=True)
class StreamedReply:
    """A reply as far as it has arrived.

    `concluded` tells whether nothing that follows a text will be read. `shown` counts the characters that an
    earlier try has shown.
    """

    most_tokens: int
    concluded: Callable[[str], bool] = never
    shown: int = 0
    text: str = ""
    odds: dict[int, Odds] = field(default_factory=dict[int, Odds])
    stop: StopReason | None = None
    needs: Literal["more", "end", "nothing"] = "more"
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_text_at: float | None = None
    """When the first text arrived, on time.monotonic's clock."""
    _thinking: bool = False
    _bytes: int = 0
    _events: int = 0
    _line: bytes = b""
    _check_at: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether the whole reply is here."""
        return self.stop is not None or self.needs != "more"

    def feed(self, data: bytes) -> str:
        """Read some bytes; returns the text that was not shown yet. Raises ExchangeError."""
        self._bytes += len(data)
        if self._bytes > self.most_tokens * _BYTES_PER_TOKEN + _SPARE_BYTES:
            raise _nonsense(f"sent {self._bytes // 2**20} MiB for a reply of at most {self.most_tokens} tokens")
        for line in self._split(data):
            # Comments keep a connection alive; names of events are of no use here.
            if line.startswith(b"data:") and self.needs == "more":
                self._read_event(line.removeprefix(b"data:").decode(errors="replace").strip())
        if self.text and self.first_text_at is None:
            self.first_text_at = time.monotonic()
        new = self.text[self.shown :]
        self.shown = max(self.shown, len(self.text))
        if len(self.text) >= self._check_at:
            # A check reads all of the text, so the text must grow for the next.
            self._check_at = max(len(self.text) + _STEP, len(self.text) * _GROWTH)
            if self.concluded(self.text):
                self.stop, self.needs = "end", "nothing"
        return new

    def _split(self, data: bytes) -> list[bytes]:
        """The lines that are complete now."""
        *lines, self._line = (self._line + data).split(b"\n")
        if max(map(len, (*lines, self._line))) > LONGEST_LINE_BYTES:
            raise _nonsense(f"sent a line of more than {LONGEST_LINE_BYTES // 2**20} MiB")
        return lines

    def _read_event(self, payload: str) -> None:
        self._events += 1
        if self._events > 2 * self.most_tokens + _SPARE_EVENTS:
            raise _nonsense(f"sent {self._events} events for a reply of at most {self.most_tokens} tokens")
        if payload == "[DONE]":
            self.needs = "end"
            return
        if not payload:
            return
        try:
            parsed: object = json.loads(payload)
        except (ValueError, RecursionError):
            raise _nonsense("sent an event that is not JSON") from None
        if not isinstance(parsed, dict):
            raise _nonsense("sent an event that is no object")
        event = cast(dict[str, Any], parsed)
        if "error" in event:
            fault = find_fault(event)
            raise ExchangeError("failed", f"failed: {fault.message or 'no reason given'}", fault=fault)
        self._read_usage(_table(event, "usage"))
        choices = event.get("choices")
        if not isinstance(choices, list):
            raise _nonsense("sent an event without choices")
        for choice in cast(list[Any], choices)[:1]:
            if not isinstance(choice, dict):
                raise _nonsense("sent a choice that is no object")
            self._read_choice(cast(dict[str, Any], choice))

    def _read_choice(self, choice: Mapping[str, Any]) -> None:
        delta = _table(choice, "delta")
        if delta.get("tool_calls"):
            raise _nonsense("reads the judge's tool calls itself: start it without a tool-call parser")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            _check_unicode(thought)
            # A server with a reasoning parser removes the tags; the protocol needs them.
            self.text += thought if self._thinking else f"<think>{thought}"
            self._thinking = True
        content = delta.get("content")
        if content is not None and not isinstance(content, str):
            raise _nonsense("sent content that is no text")
        if len(self.text) > self.most_tokens * _CHARACTERS_PER_TOKEN + _SPARE_CHARACTERS:
            raise _nonsense(f"sent {len(self.text)} characters for a reply of at most {self.most_tokens} tokens")
        if content:
            _check_unicode(content)
            if self._thinking:
                self.text, self._thinking = self.text + "</think>", False
            start = len(self.text)
            self.text += content
            self._read_odds(_list(_table(choice, "logprobs"), "content"), start)
        if (reason := choice.get("finish_reason")) is not None:
            self.stop = "limit" if reason == "length" else "end"

    def _read_odds(self, tokens: list[Any], start: int) -> None:
        """Keep the odds of the digits among the tokens that came with text[start:], as far as they are given."""
        self.tokens += max(len(tokens), 1)
        for entry in tokens:
            token = cast(dict[str, Any], entry).get("token") if isinstance(entry, dict) else None
            if not isinstance(token, str) or not token:
                continue
            at = self.text.find(token, start)
            if at < 0:
                continue
            start = at + len(token)
            if token in _DIGITS and (odds := read_odds(cast(dict[str, Any], entry))):
                self.odds[at] = odds

    def _read_usage(self, usage: Mapping[str, Any]) -> None:
        if usage:
            self.prompt_tokens = _count(usage, "prompt_tokens")
            self.cached_tokens = _count(_table(usage, "prompt_tokens_details"), "cached_tokens")
            self.tokens = max(self.tokens, _count(usage, "completion_tokens"))


def read_odds(entry: Mapping[str, Any]) -> Odds | None:
    """Probabilities of (tie, video 1, video 2) at a digit, renormalised over what the server gave of the three.

    A digit that is not among the likeliest tokens is not given; its probability counts as 0.
    """
    weights = dict.fromkeys(_DIGITS, 0.0)
    for other in [entry, *_list(entry, "top_logprobs")]:
        if not isinstance(other, dict):
            continue
        token, value = (cast(dict[str, Any], other).get(name) for name in ("token", "logprob"))
        if isinstance(token, str) and token in weights and isinstance(value, int | float):
            # In this order of arguments, NaN becomes the least.
            weights[token] = max(weights[token], math.exp(min(0.0, max(_LEAST_LOGPROB, value))))
    total = sum(weights.values())
    if not isinstance(entry.get("top_logprobs"), list) or not total > 0:
        return None
    tie, one, two = (weights[digit] / total for digit in _DIGITS)
    return (tie, one, two)


def _check_unicode(text: str) -> None:
    """Raise ExchangeError for a half of a surrogate pair: JSON can hold one, and no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _nonsense("sent text that is not Unicode") from None


def _nonsense(reason: str) -> ExchangeError:
    return ExchangeError("nonsense", reason, hint="Is it an OpenAI-compatible server?")


def _table(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name)
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _list(parent: Mapping[str, Any], name: str) -> list[Any]:
    value = parent.get(name)
    return cast(list[Any], value) if isinstance(value, list) else []


def _count(parent: Mapping[str, Any], name: str) -> int:
    value = parent.get(name)
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0
