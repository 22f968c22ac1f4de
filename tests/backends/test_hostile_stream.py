"""A stream of endless tags is read in time that is linear in its length."""

from __future__ import annotations

import json

import pytest

from vrt_lite.backends.http.faults import ExchangeError
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.protocol.tags import concluded

ANSWER = "<final answer>TA=1, VQ=1, MQ=2, OA=1</final answer>"


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


@pytest.mark.parametrize("tag", ["</answer>", "<think></think>", "<final answer>", "<tool_call></answer>", "</think>"])
def test_the_characters_that_are_parsed_grow_with_the_text(tag: str) -> None:
    parsed: list[int] = []

    def count(text: str) -> bool:
        parsed.append(len(text))
        return False

    for events in (500, 1000, 2000):
        reply, parsed[:] = StreamedReply(1024, count), []
        for _ in range(events):
            reply.feed(event(tag))
        assert sum(parsed) < 25 * len(reply.text)
        assert len(parsed) > 32


def test_an_answer_after_many_tags_still_ends_the_request() -> None:
    reply = StreamedReply(1024, concluded)
    for _ in range(20):
        reply.feed(event("<think>a > b</think>\n"))
    assert reply.needs == "more"
    reply.feed(event(ANSWER))
    assert reply.needs == "more"
    for _ in range(20):
        reply.feed(event("It is better in every way. "))
    assert reply.needs == "nothing"


def test_a_reply_of_more_characters_than_its_tokens_can_have_is_refused() -> None:
    reply = StreamedReply(16, concluded)
    with pytest.raises(ExchangeError, match="characters for a reply of at most 16 tokens"):
        for _ in range(100):
            reply.feed(event("<think>" * 200))
