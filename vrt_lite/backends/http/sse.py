"""Reads a streamed reply: server-sent events in, text and the odds of its digits out. Its size is limited.

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

from vrt_lite.backends.http.faults import NO_SERVER, ExchangeError, find_message
from vrt_lite.interfaces import never
from vrt_lite.protocol.messages import Odds, StopReason
from vrt_lite.reading import read_plain

_DIGITS = ("0", "1", "2")
_COST_PER_TOKEN, _SPARE_COST = 32 * 2**10, 32 * 2**20
"""What a reply may cost. For each token a server sends its text, and up to twenty others with their probabilities."""
_EVENT_COST, _CHARACTER_COST = 8 * 2**10, 256
"""What is read costs these, and a byte costs one."""
_STEP, _GROWTH = 32, 1.05
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
    cached_tokens: _Count | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
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
    by an earlier try too. `openings` are those of `Sampling`. Where a server repeats the `secret` are stars.
    """

    most_tokens: int
    concluded: Callable[[str], bool] = never
    shown: int = 0
    openings: tuple[str, str] | None = None
    secret: str = ""
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
    _cost: int = 0
    _line: bytearray = field(default_factory=bytearray)
    _check_at: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether the whole reply is here."""
        return self.done or self.stop is not None

    def take(self) -> str:
        """The text that is new since the last call, but for the end, where a secret may begin."""
        end = len(self.text) - (0 if self.complete else max(len(self.secret) - 1, 0))
        new = self.text[self.shown : max(end, self.shown)]
        self.shown += len(new)
        return new

    def feed(self, data: bytes) -> bool:
        """Read some bytes; returns whether an event was among them. Raises ExchangeError."""
        self._spend(len(data))
        self._line += data
        if b"\n" not in data:
            return False
        *lines, self._line = self._line.split(b"\n")
        # Comments keep a connection alive; names of events are of no use here.
        events = [event for line in lines if line.startswith(b"data:") and (event := line[5:].strip())]
        for event in events:
            self._spend(_EVENT_COST)
            if not self.done:
                self._read_event(event.decode(errors="replace"))
        if self.text and self.first_text_at is None:
            self.first_text_at = time.monotonic()
        if len(self.text) >= self._check_at:
            # A check reads all of the text, so the text must grow for the next.
            self._check_at = max(len(self.text) + _STEP, len(self.text) * _GROWTH)
            if self.concluded(self.text):
                self.stop, self.done = "end", True
        return bool(events)

    def _spend(self, cost: int) -> None:
        self._cost += cost
        if self._cost > self.most_tokens * _COST_PER_TOKEN + _SPARE_COST:
            raise _nonsense(f"sent far more than a reply of at most {self.most_tokens} tokens can be")

    def _read_event(self, payload: str) -> None:
        if payload == "[DONE]":
            self.done = True
            return
        try:
            event: object = json.loads(payload)
            if isinstance(event, dict) and "error" in event:
                reason = f"failed: {find_message(payload) or 'no reason given'}"
                raise ExchangeError("passing", reason, words=payload)
            chunk = read_plain(event, _Chunk)
        except msgspec.ValidationError as error:
            raise _nonsense(f"sent an event of another form: {error}") from None
        except (ValueError, RecursionError):
            raise _nonsense("sent an event that is not JSON") from None
        if counts := read_as(chunk.usage, _Counts):
            self.prompt_tokens = counts.prompt_tokens or 0
            self.cached_tokens = (counts.prompt_tokens_details or _Details()).cached_tokens or 0
            self.tokens = max(self.tokens, counts.completion_tokens or 0)
        for choice in chunk.choices[:1]:
            self._read_choice(choice, choice.delta or _Delta())

    def _read_choice(self, choice: _Choice, delta: _Delta) -> None:
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
        self._spend(len(text) * _CHARACTER_COST)
        self.text = hide(self.secret, self.text + text)

    def _read_odds(self, logprobs: object, start: int) -> None:
        """Keep the odds at the digits and openings among the tokens of text[start:], as far as they are given."""
        tokens = found.content if (found := read_as(logprobs, _Logprobs)) else []
        self.tokens += max(len(tokens), 1)
        for token in tokens:
            at = self.text.find(token.token, start)
            if at >= 0:
                start = at + len(token.token)
                if odds := read_odds([token, *token.top_logprobs], self.openings):
                    self.odds[start - len(token.token.lstrip())] = odds


def hide(secret: str, text: str) -> str:
    """The text without the secret, which a server may repeat; it keeps its length."""
    return text.replace(secret, "*" * len(secret)) if secret else text


def read_odds(likely: Sequence[_Likely], openings: tuple[str, str] | None = None) -> Odds | None:
    """Probabilities of (tie, video 1, video 2) where the first of `likely` is a digit or begins an opening, else None.

    They are renormalised over what the server gave of the three: what is not among the likeliest counts as 0. At an
    opening it is not known which video wins.
    """

    def weigh(word: str) -> float:
        given = (other.logprob for other in likely if _begins(word, other))
        # In this order of arguments, NaN becomes the least.
        return max((math.exp(min(0.0, max(_LEAST_LOGPROB, each))) for each in given), default=0.0)

    if likely[0].token in _DIGITS:
        tie, one, two = (weigh(digit) for digit in _DIGITS)
    elif openings and any(_begins(word, likely[0]) for word in openings):
        winner, tie = (weigh(word) for word in openings)
        one = two = winner / 2
    else:
        return None
    total = tie + one + two
    return (tie / total, one / total, two / total) if total > 0 else None


def _begins(word: str, token: _Likely) -> bool:
    return bool(token.token.strip()) and word.startswith(token.token.strip())


def read_as(value: object, kind: type[_T]) -> _T | None:
    """The value as this kind; None if it is not of it."""
    try:
        return read_plain(value, kind)
    except (msgspec.ValidationError, OverflowError):
        return None


def _nonsense(reason: str) -> ExchangeError:
    return ExchangeError("lasting", reason, hint=NO_SERVER)
