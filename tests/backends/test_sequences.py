"""Several conversations at once in one context: each gets the reply that it gets alone, and shares what is common."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from backends.test_llamacpp import FILES, SHORT, Drawn, grown, open_backend

from vrt_lite.backends.llamacpp import Lane, LlamaCppBackend
from vrt_lite.backends.llamacpp.engine import llama
from vrt_lite.backends.llamacpp.kv_cache import Step, take_steps
from vrt_lite.interfaces import Encoding, Event, Prefill, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.protocol.messages import FrameRef, Image, Reply
from vrt_lite.scheduler import Scheduler, Work, run_alone

CAPTIONS = ("A red circle moving down.", "A blue star moving up.", "Nothing moves.", "A green square.")


def judge_rounds(backend: LlamaCppBackend, lane: Lane, caption: str) -> Work[list[Reply]]:
    """Two replies, with frames between them."""
    conversation, store = opening(Pair(caption, (3.0, 3.0)), FILES.profile), Drawn()
    first = yield from backend.answer(lane, conversation, store, sampling=SHORT, observe=ignore)
    more = grown(conversation, first, Image(FrameRef(0, 8)), Image(FrameRef(1, 8)))
    return [first, (yield from backend.answer(lane, more, store, sampling=SHORT, observe=ignore))]


def judge_at_once(backend: LlamaCppBackend, captions: Sequence[str]) -> list[list[Reply]]:
    with closing(Scheduler(len(captions))) as scheduler:
        pairs = zip(backend.lanes, captions, strict=True)
        begun = [scheduler.submit(judge_rounds(backend, lane, caption)) for lane, caption in pairs]
        return [each.result() for each in begun]


def test_each_conversation_gets_the_reply_that_it_gets_alone() -> None:
    with open_backend() as alone:
        expected = [run_alone(judge_rounds(alone, alone.lanes[0], caption)) for caption in CAPTIONS]
    with open_backend(sequences=4) as together:
        got = judge_at_once(together, CAPTIONS)
    for mine, theirs in zip(got, expected, strict=True):
        assert [reply.tokens for reply in mine] == [reply.tokens for reply in theirs]
        assert [reply.odds for reply in mine] == [reply.odds for reply in theirs]


def test_a_larger_context_keeps_what_the_others_hold() -> None:
    with open_backend(sequences=2) as backend:
        first = judge_at_once(backend, CAPTIONS[:2])
        assert backend._context
        size = backend._context.size
        backend._open_context(backend.lanes[0], size + 1024)
        assert backend._context.size == size + 1024
        again = judge_at_once(backend, CAPTIONS[:2])
    assert [[reply.tokens for reply in mine] for mine in again] == [[reply.tokens for reply in mine] for mine in first]
    assert sum(reply.usage.tokens_reused for mine in again for reply in mine) > 0


def test_a_cache_that_changes_while_another_copies_it_is_copied_wrongly() -> None:
    """Why nothing may wait while it reads: no error tells of this."""
    with open_backend(sequences=2, context=512) as backend:
        backend._open_context(backend.lanes[0], 512)
        one, other = (lane.cache for lane in backend.lanes)
        assert one
        assert other
        first, second = (list(range(start, start + 12)) for start in (100, 200))
        wanted = [*first[:-2], 7, 8]
        one.prefill([*first], ignore)
        other.prefill([*wanted], ignore, others=[one])
        assert other.items == wanted
        other.truncate(0)

        def disturb(event: Event) -> None:  # what to copy was found, and told of
            if one.items == first:
                one.prefill([*second], ignore)

        other.prefill([*wanted], disturb, others=[one])
        assert other.items == [*second[:-2], 7, 8]


def test_each_conversation_is_read_without_a_break() -> None:
    told: list[int] = []

    def judged(backend: LlamaCppBackend, number: int) -> Work[Reply]:
        def observe(event: Event) -> None:
            if isinstance(event, Encoding | Prefill):
                told.append(number)

        conversation = opening(Pair(CAPTIONS[number], (3.0, 3.0)), FILES.profile)
        lane, store = backend.lanes[number], Drawn(seed=number)
        return backend.answer(lane, conversation, store, sampling=SHORT, observe=observe)

    with open_backend(sequences=4) as backend, closing(Scheduler(4)) as scheduler:
        begun = [scheduler.submit(judged(backend, number)) for number in range(4)]
        assert all(each.result().tokens for each in begun)
    assert sorted(number for number, _ in itertools.groupby(told)) == [0, 1, 2, 3]


def test_what_another_sequence_has_read_is_not_read_again() -> None:
    """The system prompt and both videos: the captions differ. No state of a first video is kept here."""
    one, other = (opening(Pair(caption, (3.0, 3.0)), FILES.profile) for caption in CAPTIONS[:2])
    with open_backend() as alone:
        expected = alone.reply(other, Drawn(), sampling=SHORT, observe=ignore)
    with open_backend(sequences=2, prefixes=0) as backend:
        first = backend.reply(one, Drawn(), sampling=SHORT, observe=ignore)
        work = backend.answer(backend.lanes[1], other, Drawn(), sampling=SHORT, observe=ignore)
        second = run_alone(work)
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
        for lane in backend.lanes:
            run_alone(backend.answer(lane, conversation, Drawn(), sampling=SHORT, observe=ignore))
        caches = [lane.cache for lane in backend.lanes if lane.cache]
        rows = {}
        for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
            found = take_steps([Step(caches[number], len(caches[number].items), [40 + number]) for number in order])
            rows[order] = [found[order.index(number)][0] for number in range(3)]
            for cache in caches:
                cache.truncate(len(cache.items) - 1)
    assert len({nodes[order] for order in rows}) == 1
    for mixed in rows.values():
        for mine, plain in zip(mixed, rows[0, 1, 2], strict=True):
            assert np.array_equal(mine, plain)
    assert not np.array_equal(rows[0, 1, 2][0], rows[0, 1, 2][1])
