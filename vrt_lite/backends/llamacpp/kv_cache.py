"""The KV cache and the list of items that it holds. The list is correct after every evaluation, cut and failure.

For a new list it keeps the common prefix, drops the rest, and evaluates what is new. The engine's state after a
conversation's first video is saved before that video is dropped, so that a clip that is shown as video 1 again is not
evaluated again. What another sequence of the context holds already is copied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context, Tokens
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item
from vrt_lite.errors import OutOfMemoryError
from vrt_lite.interfaces import Observe, Prefill

Embeddings = Callable[[str], NDArray[np.float32]]
"""A patch's embeddings, shape (rows·columns, width), by its key."""
MOST_STATE_BYTES = 256 * 2**20
STATES_OF_A_PAIR = 2
MOST_WRITTEN = 7
"""Tokens that replies write in one evaluation, guesses included. On a CPU seven take as long as 3.5 single ones; with
eight the engine changes to a kernel for K-quants that takes twice as long."""


class PrefixCache:
    """Engine states by the items they hold: `most` of them, the least recently used are dropped first.

    A state is as large as the keys and values of its tokens: 83 MB for one clip of a 7B at default settings. Beyond the
    two that one pair can make, all together take at most `MOST_STATE_BYTES`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._states: OrderedDict[tuple[Item, ...], NDArray[np.uint8]] = OrderedDict()

    def clear(self) -> None:
        """Drop all states."""
        self._states.clear()

    def find_longest(self, items: Sequence[Item]) -> tuple[tuple[Item, ...], NDArray[np.uint8]] | None:
        """The longest prefix of `items` that has a state, with that state. It is shorter than `items`."""
        prefixes = [held for held in self._states if len(held) < len(items) and _common(held, items) == len(held)]
        if not prefixes:
            return None
        best = max(prefixes, key=len)
        self._states.move_to_end(best)
        return best, self._states[best]

    def lacks(self, items: Sequence[Item]) -> bool:
        """Whether states are kept, and the one of these items is not."""
        return self._most > 0 and tuple(items) not in self._states

    def add(self, items: Sequence[Item], state: NDArray[np.uint8]) -> None:
        """Keep a state."""
        self._states[tuple(items)] = state
        while len(self._states) > self._most or (
            len(self._states) > STATES_OF_A_PAIR and self._bytes() > MOST_STATE_BYTES
        ):
            self._states.popitem(last=False)

    def _bytes(self) -> int:
        return sum(state.nbytes for state in self._states.values())


class KvCache:
    """One sequence of a context, and the items that it holds. The caller closes `context`."""

    def __init__(self, context: Context, embeddings: Embeddings, prefixes: PrefixCache, *, sequence: int = 0) -> None:
        self.context = context
        self.sequence = sequence
        self.items: list[Item] = []
        self.position = 0
        self._tokens = 0
        self._embeddings = embeddings
        self._prefixes = prefixes

    def move(self, context: Context) -> None:
        """Use another context, which holds nothing yet."""
        self.context, self.items, self.position, self._tokens = context, [], 0, 0

    @property
    def free_tokens(self) -> int:
        """Tokens that still fit, less one: a single token may be evaluated as two."""
        return self.context.size - self._tokens - 1

    def prefill(self, items: list[Item], observe: Observe, *, others: Sequence[KvCache] = ()) -> int:
        """Make the cache hold `items`; returns how many of them were not evaluated.

        The last item is always evaluated, for its logits. If a kept state, or one of the `others` of the context, has
        more of the items than this cache, it is restored or copied.
        """
        kept = _common(self.items, items[:-1])
        if kept < (end := _end_of_first_video(self.items)):
            self._keep_state(end)
        prefix = self._prefixes.find_longest(items)
        shared, source = max(
            ((_common(other.items, items[:-1]), other) for other in others), key=itemgetter(0), default=(0, self)
        )
        if prefix and len(prefix[0]) > max(kept, shared):
            self.restore(*prefix)
            kept = len(self.items)
        self.truncate(kept)
        done, total = 0, count_tokens(items[max(kept, shared) :])
        observe(Prefill(0, total))
        if shared > kept:
            kept = shared
            self._copy(source, kept)
        for run in split_runs(items[kept:]):
            if isinstance(run, FrameBlock):
                for fed in self._feed_block(run):
                    observe(Prefill(done + fed, total))
                done += run.tokens
                continue
            for fed in self.context.feed(run, self.position, sequence=self.sequence):
                observe(Prefill(done + fed, total))
            done += len(run)
            self.extend(run)
        return kept

    def _copy(self, source: KvCache, count: int) -> None:
        """Hold the first `count` items of another cache. Evaluate something at once: only then the engine copies."""
        self.truncate(0)
        self.context.copy(source.sequence, self.sequence)
        self.extend(source.items)
        self.truncate(count)

    def _keep_state(self, count: int) -> None:
        """Save the state of the first `count` items, if it is not kept yet; drops the others."""
        if self._prefixes.lacks(self.items[:count]):
            self.truncate(count)
            self._prefixes.add(self.items, self.state())

    def restore(self, items: Sequence[Item], state: NDArray[np.uint8]) -> None:
        """Hold `items` again, from the `state` of a context with the same settings that held them."""
        self.truncate(0)
        self.context.restore(state, sequence=self.sequence)
        self.extend(items)

    def state(self) -> NDArray[np.uint8]:
        """The engine's state of this sequence, for `restore`."""
        return self.context.state(sequence=self.sequence)

    def append_block(self, block: FrameBlock) -> None:
        """Evaluate a video, or an image, after the items held."""
        for _ in self._feed_block(block):
            pass

    def _feed_block(self, block: FrameBlock) -> Iterator[int]:
        """The same patch by patch; yields how many tokens are done. After the last patch the items have the block."""
        before, start = -1, self.position
        for number, key in enumerate(block.patches):
            planes = block.planes(number, start)
            step = int(planes[0, 0])
            feed = self.context.feed_patch_in_order if step == before else self.context.feed_patch
            try:
                feed(self._embeddings(key), planes, sequence=self.sequence)
            except OutOfMemoryError:
                self.truncate(0)  # a state that could not be restored leaves nothing
                raise
            before = step
            if number + 1 == len(block.patches):
                self.extend([block])
            yield (number + 1) * block.tokens // len(block.patches)

    def append_tokens(self, tokens: list[int]) -> list[NDArray[np.float32]]:
        """Evaluate tokens after the items held; returns the logits after each."""
        return take_steps([Step(self, len(self.items), tokens)])[0]

    def append_for_state(self, token: int) -> NDArray[np.float32]:
        """Evaluate a token after the items held; returns the model's state there, shape (width,)."""
        state = self.context.feed_for_state(token, self.position, sequence=self.sequence)
        self.extend([token])
        return state

    def truncate(self, count: int) -> None:
        """Keep the first `count` items."""
        cut = self.items[count:]
        del self.items[count:]
        self.position -= _count_positions(cut)
        self._tokens -= count_tokens(cut)
        self.context.cut(self.position, sequence=self.sequence)

    def extend(self, items: Sequence[Item]) -> None:
        """Note that the context holds these items after those held."""
        self.items.extend(items)
        self.position += _count_positions(items)
        self._tokens += count_tokens(items)


class Step(NamedTuple):
    """What a reply evaluates next: the first `kept` items of its cache are kept, then the tokens are added.

    A step whose evaluation failed can be taken again.
    """

    cache: KvCache
    kept: int
    tokens: Sequence[int]


def take_steps(steps: Sequence[Step]) -> list[list[NDArray[np.float32]]]:
    """Evaluate steps of several sequences of one context in one batch; for each, the logits after its first tokens.

    A single step is evaluated whole. Of several, each gets as many tokens as all have, so that no row of the batch is
    filled up in vain, and all together at most `MOST_WRITTEN`. The batch has the sequences in the order of their
    numbers: the engine evaluates only consecutive ones together.
    """
    if len(steps) > 1:
        length = min(max(MOST_WRITTEN // len(steps), 1), *(len(step.tokens) for step in steps))
        steps = [step._replace(tokens=step.tokens[:length]) for step in steps]
    for cache, kept, _ in steps:
        cache.truncate(kept)
    parts = sorted(
        (Tokens(step.tokens, step.cache.position, step.cache.sequence) for step in steps), key=attrgetter("sequence")
    )
    found = steps[0].cache.context.feed_for_logits(parts)
    rows = {part.sequence: row for part, row in zip(parts, found, strict=True)}
    for step in steps:
        step.cache.extend(step.tokens)
    return [rows[step.cache.sequence] for step in steps]


def count_tokens(items: Sequence[Item]) -> int:
    """The number of tokens in the items."""
    return sum(1 if isinstance(item, int) else item.tokens for item in items)


def _count_positions(items: Sequence[Item]) -> int:
    return sum(1 if isinstance(item, int) else item.positions for item in items)


def split_runs(items: Sequence[Item]) -> Iterator[list[int] | FrameBlock]:
    """Yield consecutive tokens as one list, and each block by itself."""
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


def _common(held: Sequence[Item], items: Sequence[Item]) -> int:
    """The length of the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(held, items, strict=False)) if a != b), min(len(held), len(items)))


def _end_of_first_video(items: Sequence[Item]) -> int:
    """Where a conversation's first video ends, if another follows; else 0."""
    ends = [i + 1 for i, item in enumerate(items) if isinstance(item, FrameBlock)]
    return ends[0] if len(ends) > 1 else 0
