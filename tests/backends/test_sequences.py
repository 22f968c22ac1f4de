"""Several conversations at once in one context: each gets the reply that it gets alone, and shares what is common."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from backends.test_llamacpp import FILES, SHORT, Drawn, grown, open_backend

from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.backends.llamacpp.engine import llama
from vrt_lite.backends.llamacpp.kv_cache import Step, take_steps
from vrt_lite.interfaces import Event, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.protocol.messages import FrameRef, Image, Reply

CAPTIONS = ("A red circle moving down.", "A blue star moving up.", "Nothing moves.", "A green square.")


def judge_rounds(backend: LlamaCppBackend, caption: str, store: Drawn) -> list[Reply]:
    """Two replies, with frames between them."""
    conversation = opening(Pair(caption, (3.0, 3.0)), FILES.profile)
    first = backend.reply(conversation, store, sampling=SHORT, observe=ignore)
    more = grown(conversation, first, Image(FrameRef(0, 8)), Image(FrameRef(1, 8)))
    return [first, backend.reply(more, store, sampling=SHORT, observe=ignore)]


def test_each_conversation_gets_the_reply_that_it_gets_alone() -> None:
    with open_backend() as alone:
        expected = [judge_rounds(alone, caption, Drawn()) for caption in CAPTIONS]
    with open_backend(sequences=4) as together, ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda caption: judge_rounds(together, caption, Drawn()), CAPTIONS))
    for mine, theirs in zip(got, expected, strict=True):
        assert [reply.tokens for reply in mine] == [reply.tokens for reply in theirs]
        assert [reply.odds for reply in mine] == [reply.odds for reply in theirs]


def test_a_larger_context_keeps_what_the_others_hold() -> None:
    with open_backend(sequences=2) as backend, ThreadPoolExecutor(2) as pool:
        first = list(pool.map(lambda caption: judge_rounds(backend, caption, Drawn()), CAPTIONS[:2]))
        assert backend._context
        size = backend._context.size
        backend._open_context(backend._lanes[0], size + 1024)
        assert backend._context.size == size + 1024
        again = list(pool.map(lambda caption: judge_rounds(backend, caption, Drawn()), CAPTIONS[:2]))
    assert [[reply.tokens for reply in mine] for mine in again] == [[reply.tokens for reply in mine] for mine in first]
    assert sum(reply.usage.tokens_reused for mine in again for reply in mine) > 0


def test_a_reply_waits_for_a_free_sequence() -> None:
    conversation = opening(Pair(CAPTIONS[0], (3.0, 3.0)), FILES.profile)
    with open_backend() as backend, ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(backend.reply, conversation, Drawn(), sampling=SHORT, observe=ignore) for _ in range(2)]
        one, other = (task.result() for task in tasks)
    assert (one.text, one.tokens, one.odds) == (other.text, other.tokens, other.odds)


def test_a_reply_that_waits_for_a_sequence_can_be_stopped() -> None:
    conversation = opening(Pair(CAPTIONS[0], (3.0, 3.0)), FILES.profile)

    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    with open_backend() as backend, backend._lanes.take(ignore), pytest.raises(KeyboardInterrupt):
        backend.reply(conversation, Drawn(), sampling=SHORT, observe=stop)
    with open_backend() as backend:
        assert backend.reply(conversation, Drawn(), sampling=SHORT, observe=ignore).tokens


def test_what_another_sequence_has_read_is_not_read_again() -> None:
    """The system prompt and both videos: the captions differ. No state of a first video is kept here."""
    one, other = (opening(Pair(caption, (3.0, 3.0)), FILES.profile) for caption in CAPTIONS[:2])
    with open_backend() as alone:
        expected = alone.reply(other, Drawn(), sampling=SHORT, observe=ignore)
    with open_backend(sequences=2, prefixes=0) as backend:
        first = backend.reply(one, Drawn(), sampling=SHORT, observe=ignore)
        with backend._lanes.take(ignore):
            second = backend.reply(other, Drawn(), sampling=SHORT, observe=ignore)
    assert first.usage.tokens_reused == 0
    assert second.usage.tokens_reused > second.usage.tokens_prefilled
    assert second.usage.tokens_reused + second.usage.tokens_prefilled == expected.usage.tokens_prefilled
    assert (second.tokens, second.odds) == (expected.tokens, expected.odds)


def test_steps_are_one_evaluation_in_whatever_order_they_come() -> None:
    """The engine evaluates only sequences with consecutive numbers together; others it evaluates one by one."""
    nodes = Counter[tuple[int, ...]]()
    order: tuple[int, ...] = ()

    def count(node: int, ask: bool, data: object) -> bool:
        nodes[order] += 1
        return not ask

    conversation = opening(Pair(CAPTIONS[0], (3.0, 3.0)), FILES.profile)
    callback = llama.ggml_backend_sched_eval_callback(count)
    with open_backend(sequences=3, on_eval=callback) as backend:
        for lane in backend._lanes:
            backend._reply(lane, conversation, Drawn(), SHORT, ignore)
        caches = [lane.cache for lane in backend._lanes if lane.cache]
        rows = {}
        for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
            found = take_steps([Step(caches[number], 0, [40 + number]) for number in order])
            rows[order] = [found[order.index(number)][0] for number in range(3)]
            for cache in caches:
                cache.truncate(len(cache.items) - 1)
    assert len({nodes[order] for order in rows}) == 1
    for mixed in rows.values():
        for mine, plain in zip(mixed, rows[0, 1, 2], strict=True):
            assert np.array_equal(mine, plain)
    assert not np.array_equal(rows[0, 1, 2][0], rows[0, 1, 2][1])
