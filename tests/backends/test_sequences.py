"""Several conversations at once in one context: each gets the reply that it gets alone, and shares what is common."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from backends.test_llamacpp import FILES, SHORT, Drawn, grown, open_backend

from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.interfaces import ignore
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
        for reply, other in zip(mine, theirs, strict=True):
            for at, odds in reply.odds.items():
                assert odds == pytest.approx(other.odds[at], abs=0.01)
