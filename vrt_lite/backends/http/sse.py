"""Reads a streamed reply: server-sent events in, text and the odds of its digits out. All sizes are limited.

A server is not trusted: input that cannot be read raises ExchangeError, and nothing else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec

from vrt_lite.backends.http.faults import ExchangeError, find_message
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
_T = TypeVar("_T")


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Likely(msgspec.Struct):
    token: str
    logprob: float


class _Token(_Likely):
    top_logprobs: list[_Likely]


class _Logprobs(msgspec.Struct):
    content: list[_Token]


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = 0


class _Counts(msgspec.Struct):
    prompt_tokens: _Count | None = 0
    completion_tokens: _Count | None = 0
    prompt_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    logprobs: Any = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


@dataclass(slots=True)
class StreamedReply:
    """A reply as far as it has arrived.

    `concluded` tells whether nothing that follows a text will be read. `shown` counts the characters that were taken,
    by an earlier try too. `openings` are those of `Sampling`.
    """

    most_tokens: int
    concluded: Callable[[str], bool] = never
    shown: int = 0
    openings: tuple[str, str] | None = None
    text: str = ""
    odds: dict[int, Odds] = field(default_factory=dict[int, Odds])
    stop: StopReason | None = None
    done: bool = False
    """Whether nothing that follows will be read."""
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
        return self.done or self.stop is not None

    def take(self, secret: str) -> str:
        """The text that is new since the last call, without the secret, which may have arrived in part."""
        end = len(self.text) - (0 if self.complete or not secret else len(secret) - 1)
        begin = max(self.shown - len(secret), 0)  # where the end of what was taken may lie within a secret
        new = hide(secret, self.text[begin:])[self.shown - begin : max(end, self.shown) - begin]
        self.shown += len(new)
        return new

    def feed(self, data: bytes) -> bool:
        """Read some bytes; returns whether an event was among them. Raises ExchangeError."""
        self._bytes += len(data)
        if self._bytes > self.most_tokens * _BYTES_PER_TOKEN + _SPARE_BYTES:
            raise _nonsense(f"sent {self._bytes // 2**20} MiB for a reply of at most {self.most_tokens} tokens")
        *lines, self._line = (self._line + data).split(b"\n")
        if max(map(len, (*lines, self._line))) > LONGEST_LINE_BYTES:
            raise _nonsense(f"sent a line of more than {LONGEST_LINE_BYTES // 2**20} MiB")
        # Comments keep a connection alive; names of events are of no use here.
        data_lines = (line.removeprefix(b"data:").decode(errors="replace") for line in lines if line[:5] == b"data:")
        events = [event for line in data_lines if (event := line.strip())]
        self._events += len(events)
        if self._events > 2 * self.most_tokens + _SPARE_EVENTS:
            raise _nonsense(f"sent {self._events} events for a reply of at most {self.most_tokens} tokens")
        for event in events:
            if not self.done:
                self._read_event(event)
        if self.text and self.first_text_at is None:
            self.first_text_at = time.monotonic()
        if len(self.text) >= self._check_at:
            # A check reads all of the text, so the text must grow for the next.
            self._check_at = max(len(self.text) + _STEP, len(self.text) * _GROWTH)
            if self.concluded(self.text):
                self.stop, self.done = "end", True
        return bool(events)

    def _read_event(self, payload: str) -> None:
        if payload == "[DONE]":
            self.done = True
            return
        try:
            event: object = json.loads(payload)
        except (ValueError, RecursionError):
            raise _nonsense("sent an event that is not JSON") from None
        if isinstance(event, dict) and "error" in event:
            reason = f"failed: {find_message(payload) or 'no reason given'}"
            raise ExchangeError("passing", reason, words=payload)
        try:
            chunk = msgspec.convert(event, _Chunk)
        except msgspec.ValidationError as error:
            raise _nonsense(f"sent an event of another form: {error}") from None
        self._read_chunk(chunk)

    def _read_chunk(self, chunk: _Chunk) -> None:
        if counts := read_as(chunk.usage, _Counts):
            self.prompt_tokens = counts.prompt_tokens or 0
            self.cached_tokens = (counts.prompt_tokens_details or _Details()).cached_tokens or 0
            self.tokens = max(self.tokens, counts.completion_tokens or 0)
        for choice in chunk.choices[:1]:
            delta = choice.delta or _Delta()
            if delta.tool_calls:
                raise _nonsense("reads the judge's tool calls itself: start it without a tool-call parser")
            if (thought := delta.reasoning_content or delta.reasoning) is not None:
                # A server with a reasoning parser removes the tags; the protocol needs them.
                self._append(thought if self._thinking else f"<think>{thought}")
                self._thinking = True
            if delta.content:
                if self._thinking:
                    self._append("</think>")
                    self._thinking = False
                start = len(self.text)
                self._append(delta.content)
                self._read_odds(choice.logprobs, start)
            if choice.finish_reason is not None:
                self.stop = "limit" if choice.finish_reason == "length" else "end"

    def _append(self, text: str) -> None:
        """Append text. Raises ExchangeError for half of a surrogate pair: JSON can hold one, and no file can."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _nonsense("sent text that is not Unicode") from None
        self.text += text
        if len(self.text) > self.most_tokens * _CHARACTERS_PER_TOKEN + _SPARE_CHARACTERS:
            raise _nonsense(f"sent {len(self.text)} characters for a reply of at most {self.most_tokens} tokens")

    def _read_odds(self, logprobs: object, start: int) -> None:
        """Keep the odds of the digits and openings among the tokens of text[start:], as far as they are given."""
        tokens = found.content if (found := read_as(logprobs, _Logprobs)) else []
        self.tokens += max(len(tokens), 1)
        for token in tokens:
            at = self.text.find(token.token, start)
            if at >= 0:
                start = at + len(token.token)
                likely = [token, *token.top_logprobs]
                if token.token in _DIGITS:
                    odds = read_odds(likely)
                else:
                    odds = read_odds_of_opening(likely, self.openings) if self.openings else None
                if odds:
                    self.odds[start - len(token.token.lstrip())] = odds


def hide(secret: str, text: str) -> str:
    """The text without the secret, which a server may repeat; it keeps its length."""
    return text.replace(secret, "*" * len(secret)) if secret else text


def read_odds(likely: Sequence[_Likely]) -> Odds | None:
    """Probabilities of (tie, video 1, video 2) at a digit, renormalised over what the server gave of the three.

    A digit that is not among the likeliest tokens is not given; its probability counts as 0.
    """
    weights = dict.fromkeys(_DIGITS, 0.0)
    for other in likely:
        if other.token in weights:
            weights[other.token] = max(weights[other.token], _probability(other))
    total = sum(weights.values())
    tie, one, two = weights.values()
    return (tie / total, one / total, two / total) if total > 0 else None


def read_odds_of_opening(likely: Sequence[_Likely], openings: tuple[str, str]) -> Odds | None:
    """As `read_odds`, where the first of `likely` begins a winner's word or a tie's. Which video wins is not known."""
    winner, tie = (
        max((_probability(other) for other in likely if _begins(word, other)), default=0.0) for word in openings
    )
    if not any(_begins(word, likely[0]) for word in openings) or not winner + tie:
        return None
    share = winner / (winner + tie)
    return (1 - share, share / 2, share / 2)


def _begins(word: str, token: _Likely) -> bool:
    return bool(token.token.strip()) and word.startswith(token.token.strip())


def _probability(token: _Likely) -> float:
    # In this order of arguments, NaN becomes the least.
    return math.exp(min(0.0, max(_LEAST_LOGPROB, token.logprob)))


def read_as(value: object, kind: type[_T]) -> _T | None:
    """The value as this kind; None if it is not of it."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, OverflowError):
        return None


def _nonsense(reason: str) -> ExchangeError:
    return ExchangeError("lasting", reason, hint="Is it an OpenAI-compatible server?")
