"""The KV cache as a value: the list of items it holds, true after every evaluation, every cut and every failure.

Given a list it keeps what agrees, cuts the rest by position, and evaluates what is new. Keeps the engine's state after
a conversation's first video, so that a clip shown as video 1 again is not read again. Knows nothing of conversations.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item
from vrt_lite.backends.llamacpp.positions import patch_positions
from vrt_lite.interfaces import Observe, Prefill

Embeddings = Callable[[str], NDArray[np.float32]]
"""A patch's embeddings, shape (rows·columns, width), by its key."""


MOST_STATE_BYTES = 256 * 2**20
_OF_ONE_PAIR = 2


class Prefixes:
    """Engine states by what they hold, as many as `most`, least recently used first out.

    A state is as large as the keys and values of its tokens: 83 MB for one clip of a 7B at default settings. Beyond the
    two that one pair makes, all together take at most `MOST_STATE_BYTES`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._states: OrderedDict[tuple[Item, ...], NDArray[np.uint8]] = OrderedDict()

    def clear(self) -> None:
        """Forget all."""
        self._states.clear()

    def longest(self, items: Sequence[Item]) -> tuple[tuple[Item, ...], NDArray[np.uint8]] | None:
        """The longest that `items` begins with and goes on after."""
        fitting = [held for held in self._states if len(held) < len(items) and _agreed(held, items) == len(held)]
        if not fitting:
            return None
        best = max(fitting, key=len)
        self._states.move_to_end(best)
        return best, self._states[best]

    def wants(self, items: Sequence[Item]) -> bool:
        """Whether this state is worth keeping and not kept yet."""
        return self._most > 0 and tuple(items) not in self._states

    def keep(self, items: Sequence[Item], state: NDArray[np.uint8]) -> None:
        """Remember a state."""
        self._states[tuple(items)] = state
        while len(self._states) > self._most or (len(self._states) > _OF_ONE_PAIR and self._bytes() > MOST_STATE_BYTES):
            self._states.popitem(last=False)

    def _bytes(self) -> int:
        return sum(held.nbytes for held in self._states.values())


class Held:
    """What a context holds. `context` is borrowed."""

    def __init__(self, context: Context, embeddings: Embeddings, prefixes: Prefixes) -> None:
        self.context = context
        self.items: list[Item] = []
        self.position = 0
        self._tokens = 0
        self._embeddings = embeddings
        self._prefixes = prefixes

    @property
    def room(self) -> int:
        """Tokens that still fit. One place stays free: a lone token may be evaluated beside another."""
        return self.context.size - self._tokens - 1

    def read(self, items: list[Item], observe: Observe) -> int:
        """Make the cache hold `items`; how many of them it held before. The last is evaluated: its logits are asked."""
        kept = _agreed(self.items, items[:-1])
        prefix = self._prefixes.longest(items)
        if prefix and len(prefix[0]) > kept:
            self.take_over(*prefix)
            kept = len(self.items)
        self.cut(kept)
        first = _first_video(items)
        done, total = 0, tokens_in(items[kept:])
        observe(Prefill(0, total))
        for run in runs(items[kept:]):
            if isinstance(run, FrameBlock):
                self.show(run)
                done += run.tokens
                observe(Prefill(done, total))
                if len(self.items) == first and self._prefixes.wants(self.items):
                    self._prefixes.keep(self.items, self.context.state())
                continue
            for fed in self.context.feed(run, self.position):
                observe(Prefill(done + fed, total))
            done += len(run)
            self._extend(run)
        return kept

    def take_over(self, items: Sequence[Item], state: NDArray[np.uint8]) -> None:
        """Hold `items`, as another time or another context of the same settings did when its `state` was taken."""
        self.cut(0)
        self.context.restore(state)
        self._extend(items)

    def show(self, block: FrameBlock) -> None:
        """Go on with a video, or an image."""
        before, start = -1, self.position
        for key, step in zip(block.patches, block.steps, strict=True):
            positions = patch_positions(start, step, block.rows, block.columns)
            feed = self.context.feed_patch_in_order if step == before else self.context.feed_patch
            feed(self._embeddings(key), positions)
            before = step
        self._extend([block])

    def write(self, tokens: list[int]) -> list[NDArray[np.float32]]:
        """Go on with tokens; the logits after each."""
        rows = self.context.feed_for_logits(tokens, self.position)
        self._extend(tokens)
        return list(rows)

    def cut(self, count: int) -> None:
        """Keep the first `count` items."""
        cut = self.items[count:]
        del self.items[count:]
        self.position -= positions_in(cut)
        self._tokens -= tokens_in(cut)
        self.context.cut(self.position)

    def _extend(self, items: Sequence[Item]) -> None:
        self.items.extend(items)
        self.position += positions_in(items)
        self._tokens += tokens_in(items)


def tokens_in(items: Sequence[Item]) -> int:
    """Places that items take up in the cache."""
    return sum(1 if isinstance(item, int) else item.tokens for item in items)


def positions_in(items: Sequence[Item]) -> int:
    """Positions that items take up."""
    return sum(1 if isinstance(item, int) else item.positions for item in items)


def runs(items: Sequence[Item]) -> Iterator[list[int] | FrameBlock]:
    """Consecutive tokens as one run, blocks by themselves."""
    run: list[int] = []
    for item in items:
        if isinstance(item, int):
            run.append(item)
            continue
        if run:
            yield run
        yield item
        run = []
    if run:
        yield run


def _agreed(held: Sequence[Item], items: Sequence[Item]) -> int:
    """How many leading items the two have in common."""
    return next((i for i, (a, b) in enumerate(zip(held, items, strict=False)) if a != b), min(len(held), len(items)))


def _first_video(items: Sequence[Item]) -> int:
    """Where a conversation's first video ends, if another follows; else 0."""
    ends = [i + 1 for i, item in enumerate(items) if isinstance(item, FrameBlock)]
    return ends[0] if len(ends) > 1 else 0
