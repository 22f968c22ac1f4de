"""Generates a reply token by token, or several tokens at once where the text can be guessed.

The sampler picks each token from the model's logits, greedily or drawn at a temperature. Prompt lookup guesses the next
tokens from what has followed the same few tokens before: a reply is prose between fixed text (tags, the answer's keys,
the tool call's JSON). A guess costs one batch, right or wrong, and only makes logits available sooner. The sampler
chooses every token, so no guess changes one. After A. Saxena, "Prompt Lookup Decoding" (2023), with two changes,
because prose repeats itself just enough to mislead. Tokens must have followed twice. Digits are never guessed, and all
digits count as the same token in the text before.

Several replies share the engine, each in a lane. Each reads alone, and what all write next is evaluated as one batch:
four tokens take about as long as two single ones, because the weights are read once.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from threading import Condition, Lock, get_ident, local
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.kv_cache import MOST_WRITTEN, KvCache, Step
from vrt_lite.interfaces import Observe, Wrote, ignore
from vrt_lite.protocol.messages import Odds

_Step = TypeVar("_Step")
_Result = TypeVar("_Result")
MOST_GUESSED = MOST_WRITTEN - 1
"""Tokens guessed at once."""
_KEY_TOKENS = 4
_MIN_TIMES = 2
_MOST_KEYS = 2**16
_DIGIT = -1
"""Replaces every digit in the text that was read; no token has this id."""
_LONGEST_CYCLE = 64
_LEAST_SPAN = 96
_LEAST_REPEATS = 6
_TICK_SECONDS = 0.2


def generate_tokens(
    cache: KvCache,
    logits: NDArray[np.float32],
    sampler: Sampler,
    lookup: PromptLookup,
    batcher: StepBatcher[Step, list[NDArray[np.float32]]],
    *,
    guesses: int = MOST_GUESSED,
) -> Generator[tuple[int, NDArray[np.float32]]]:
    """Yield tokens without end, each with the logits (vocabulary,) it was picked from; the first from `logits`.

    At most `guesses` tokens are guessed at once. When the caller stops, the cache holds all tokens before the last one
    that was yielded.
    """
    rows = [logits]
    guessed: list[int] = []
    try:
        while True:
            logits = rows.pop(0)
            token = sampler.pick(logits)
            yield token, logits
            lookup.add(token)
            if guessed and guessed[0] == token:
                guessed.pop(0)
                continue
            wrong = len(guessed)
            guessed = lookup.guess(min(guesses, cache.free_tokens + wrong - 1))
            rows = batcher.take(Step(cache, wrong, [token, *guessed]))
            del guessed[len(rows) - 1 :]
    finally:
        with batcher.alone():
            cache.truncate(len(cache.items) - len(guessed))


@dataclass
class Lane:
    """One sequence of the context: the conversation that it holds, and what a reply in it needs.

    `patches` are those of the last conversation. `observe` is told of the reply in progress. `thread` used it last,
    until `used`.
    """

    lookup: PromptLookup
    cache: KvCache | None = None
    patches: frozenset[str] = frozenset()
    observe: Observe = ignore
    thread: int | None = None
    used: float = 0.0
    busy: bool = False


class Lanes(tuple[Lane, ...]):
    """The lanes of a context, for one reply each."""

    def __init__(self, lanes: Iterable[Lane] = (), /) -> None:
        self._changed = Condition()

    @contextlib.contextmanager
    def take(self, observe: Observe) -> Generator[Lane]:
        """Wait for a free lane, and take it; the one that this thread had before, if that is free.

        It holds the conversation that goes on. `observe` is called while it waits, and may raise.
        """
        thread = get_ident()
        with self._changed:
            while not (free := [lane for lane in self if not lane.busy]):
                self._changed.wait(_TICK_SECONDS)
                observe(Wrote(""))
            lane = next((lane for lane in free if lane.thread == thread), min(free, key=lambda lane: lane.used))
            lane.busy, lane.thread, lane.observe = True, thread, observe
        try:
            yield lane
        finally:
            with self._changed:
                lane.busy, lane.used, lane.observe = False, time.monotonic(), ignore
                self._changed.notify()


class _Waits(local):
    seconds = 0.0


class StepBatcher(Generic[_Step, _Result]):
    """The order in which threads use the engine. `evaluate` gets the steps of several replies, each with its result.

    While a thread is in `alone`, or steps are evaluated, no other thread uses the engine.
    """

    def __init__(self, evaluate: Callable[[Sequence[_Step]], Sequence[_Result]]) -> None:
        self._evaluate = evaluate
        self._engine = Condition()
        self._counting = Lock()
        self._replies = 0
        self._waits = _Waits()
        self._waiting: list[_Request[_Step, _Result]] = []

    @property
    def waited_seconds(self) -> float:
        """Seconds of this thread's reply in which the engine worked for others. Of a batch each has an equal part."""
        return self._waits.seconds

    @contextlib.contextmanager
    def reply(self) -> Generator[None]:
        """Take part in steps: the steps of others wait for this thread."""
        self._waits.seconds = 0.0
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            with self._engine:
                self._engine.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Use the engine alone."""
        began = time.perf_counter()
        with self._engine:
            self._waits.seconds += time.perf_counter() - began
            yield

    def take(self, step: _Step) -> _Result:
        """Evaluate a step with those of all other replies; returns its result. Raises what the evaluation raised."""
        request, began = _Request[_Step, _Result](step), time.perf_counter()
        with self._engine:
            self._waiting.append(request)
            while not request.done:
                if len(self._waiting) < self._replies:
                    self._engine.wait()
                else:
                    self._evaluate_all()
        self._waits.seconds += time.perf_counter() - began - request.seconds
        return request.result()

    def _evaluate_all(self) -> None:
        requests, self._waiting, began = self._waiting, [], time.perf_counter()
        try:
            results = self._evaluate([request.step for request in requests])
            for request, result in zip(requests, results, strict=True):
                request.results.append(result)
        except BaseException as error:  # each thread must end its own reply
            for request in requests:
                request.error = error
        for request in requests:
            request.seconds = (time.perf_counter() - began) / len(requests)
        self._engine.notify_all()

    def _count(self, change: int) -> None:
        # Not under the engine's lock, which is held for seconds: steps must wait for a reply that waits for the lock.
        with self._counting:
            self._replies += change


class _Request(Generic[_Step, _Result]):
    def __init__(self, step: _Step) -> None:
        self.step = step
        self.results: list[_Result] = []
        self.seconds = 0.0
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return bool(self.results) or self.error is not None

    def result(self) -> _Result:
        if self.error is not None:
            raise self.error
        return self.results[0]


class PromptLookup:
    """Which token has followed which tokens. `digits` are the ids of the tokens 0 to 9."""

    def __init__(self, digits: Iterable[int]) -> None:
        self._digits = frozenset(digits)
        self._following: dict[tuple[int, ...], int] = {}
        self._times: Counter[tuple[int, ...]] = Counter()
        self._last: tuple[int, ...] = ()

    def learn(self, tokens: Iterable[int], *, times: int = 1) -> None:
        """Learn from a separate text, as if it was read `times` times."""
        for _ in range(times):
            self._last = ()
            for token in tokens:
                self.add(token)
        self._last = ()

    def add(self, token: int) -> None:
        """Continue the text with `token`."""
        item = _DIGIT if token in self._digits else token
        if len(self._last) == _KEY_TOKENS:
            if self._following.get(self._last) != item:
                if len(self._following) >= _MOST_KEYS:
                    self._following.clear()
                    self._times.clear()
                self._following[self._last] = item
                self._times[self._last] = 0
            self._times[self._last] += 1
        self._last = (*self._last, item)[-_KEY_TOKENS:]

    def guess(self, most: int) -> list[int]:
        """At most `most` tokens, up to the first that is not certain."""
        guessed: list[int] = []
        key = self._last
        while len(guessed) < most and self._times[key] >= _MIN_TIMES and self._following[key] != _DIGIT:
            guessed.append(self._following[key])
            key = (*key, guessed[-1])[-_KEY_TOKENS:]
        return guessed


class Sampler:
    """Draws tokens; the same seed draws the same ones."""

    def __init__(self, *, temperature: float, seed: int, banned: Sequence[int]) -> None:
        self._temperature = temperature
        self._random = np.random.default_rng(seed)
        self._banned = np.asarray(banned, dtype=np.int64)

    def pick(self, logits: NDArray[np.float32]) -> int:
        """The next token."""
        logits[self._banned] = -np.inf
        if self._temperature <= 0:
            return int(np.argmax(logits))
        cumulative = np.cumsum(softmax(logits.astype(np.float64) / self._temperature))
        return int(np.searchsorted(cumulative, self._random.random() * float(cumulative[-1]), side="right"))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of logits."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def odds(logits: NDArray[np.float32], digits: Sequence[int]) -> Odds:
    """Probabilities of (tie, video 1, video 2) at a digit: those of the tokens "0", "1", "2", renormalised."""
    tie, one, two = softmax(logits[np.asarray(digits)].astype(np.float64)).tolist()
    return (tie, one, two)


def loops(tokens: Sequence[int]) -> bool:
    """Whether the end only repeats a cycle of at most 64 tokens: at least six times, and for at least 96 tokens."""
    for cycle in range(1, _LONGEST_CYCLE + 1):
        span = max(_LEAST_SPAN, _LEAST_REPEATS * cycle)
        if len(tokens) < span + cycle:
            continue
        if tokens[-span:] == tokens[-span - cycle : -cycle]:
            return True
    return False
