"""A stream is read in time that is linear in its length, and the pieces in which it arrives change nothing."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_judge import PAIR, NoFrames

from vrt_lite.backends.http.faults import ExchangeError
from vrt_lite.backends.http.sse import StreamedReply
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import NoVerdictError
from vrt_lite.judge import Round, judge_with
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import Reply
from vrt_lite.protocol.tags import AFTERWORD, concluded

ANSWER = "<final answer>TA=1, VQ=1, MQ=2, OA=1</final answer>"


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def test_the_characters_that_are_parsed_grow_with_the_text() -> None:
    parsed: list[int] = []

    def count(text: str) -> bool:
        parsed.append(len(text))
        return False

    for events in (500, 1000, 2000):
        reply, parsed[:] = StreamedReply(1024, count), []
        for _ in range(events):
            reply.feed(event("<tool_call></answer>"))
        assert sum(parsed) < 25 * len(reply.text)
        assert len(parsed) > 32


def test_an_answer_after_many_tags_still_ends_the_request() -> None:
    reply = StreamedReply(1024, concluded)
    for _ in range(20):
        reply.feed(event("<think>a > b</think>\n"))
    assert not reply.done
    reply.feed(event(ANSWER))
    assert not reply.done
    for _ in range(20):
        reply.feed(event("It is better in every way. "))
    assert reply.done


def test_a_reply_of_more_characters_than_its_tokens_can_have_is_refused() -> None:
    reply = StreamedReply(16, concluded)
    with pytest.raises(ExchangeError, match="sent far more than a reply of at most 16 tokens"):
        for _ in range(1000):
            reply.feed(event("<think>" * 200))


CALL = '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'
PARTS = st.sampled_from(
    [
        *[ANSWER, ANSWER.replace("1", "2"), ANSWER.replace("final ", ""), CALL, "<think>", "</think>", "</answer>"],
        *["<", ">", " so ", "x" * (AFTERWORD // 2), "y" * AFTERWORD, "é😀"],
    ]
)


def first_round(reply: Reply) -> Round:
    """The first round of a judge that writes this."""
    rounds: list[Round] = []
    with contextlib.suppress(NoVerdictError):
        judge_with(PAIR, default_profile(), ScriptedBackend([reply]), NoFrames(), on_round=rounds.append)
    return rounds[0]


@settings(deadline=None)
@given(st.lists(PARTS, max_size=12).map("".join), st.data())
def test_the_pieces_of_a_reply_change_nothing(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=12)))
    arriving = StreamedReply(4096, concluded)
    for start, end in pairwise([0, *cuts, max(len(text), *cuts, 1)]):
        if not arriving.complete:
            arriving.feed(event(text[start:end]))
    whole, pieces = first_round(Reply(text)), first_round(Reply(arriving.text))
    assert (pieces.reply.text, pieces.parsed, pieces.outcome) == (whole.reply.text, whole.parsed, whole.outcome)


@pytest.mark.parametrize("step", (1, 2, 3, 7, 19, 20, 24))
def test_a_secret_is_hidden_wherever_the_text_is_cut(step: int) -> None:
    secret = "sk-secret-0123456789"
    whole = f"Your key is {secret}, {secret}{secret}."
    reply, taken = StreamedReply(100, secret=secret), ""
    for begin in range(0, len(whole), step):
        reply.feed(event(whole[begin : begin + step]))
        taken += reply.take()
        assert secret not in taken
    reply.feed(b"data: [DONE]\n")
    assert taken + reply.take() == whole.replace(secret, "*" * len(secret))
