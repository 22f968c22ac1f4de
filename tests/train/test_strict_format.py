"""The strict format: what the prompt asks for conforms, and each loose form that inference can read does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from train.strict_format import conforms, find_flaw
from vrt_lite.judge import Round
from vrt_lite.protocol.messages import FrameRef, Reply
from vrt_lite.protocol.tags import FORMAT, Malformed, parse

SNAPSHOT, THINK = "<snapshot>\nVideo 1: a fox.\n</snapshot>\n", "<think>\nIt jumps.\n</think>\n"
RECOMMEND = "<recommend answer>TA=0, VQ=1, MQ=0, OA=1, CF=2</recommend answer>\n"
CALL = '<tool_call>\n{"name": "select_frames", "arguments": {"target_frames": [3]}}\n</tool_call>'
FINAL = "<final answer>TA=1, VQ=1, MQ=0, OA=1</final answer>"
CALLING, CONCLUDING = SNAPSHOT + THINK + RECOMMEND + CALL, SNAPSHOT + THINK + FINAL
NEW = (FrameRef(0, 0),)


def rounds(*texts: str) -> list[Round]:
    return [Round(number, NEW, Reply(text), parse(text)) for number, text in enumerate(texts, start=1)]


@pytest.mark.parametrize(
    "texts",
    [
        (CONCLUDING,),
        (CALLING, CONCLUDING),
        (CALLING, CALLING, CONCLUDING),
        (f"\n {CALLING}\n\n", CONCLUDING.replace("\n", "")),
        (SNAPSHOT + THINK + "<final answer> OA = 1,TA=1 , MQ=0, VQ=2 </final answer>",),
        (CALLING.replace("CF=2", "CF=5"), CONCLUDING.replace("fox", "fox < 3 > 2, <b>bold</b>")),
    ],
)
def test_what_the_prompt_asks_for_conforms(texts: tuple[str, ...]) -> None:
    assert find_flaw(rounds(*texts)) == ""
    assert conforms(rounds(*texts))


@pytest.mark.parametrize(
    ("reply", "flaw"),
    [
        (FINAL, "it has <final answer>, not <snapshot>, <think>, <final answer>"),
        (THINK + FINAL, "it has <think>, <final answer>"),
        (SNAPSHOT + FINAL, "it has <snapshot>, <final answer>"),
        (THINK + SNAPSHOT + FINAL, "it has <think>, <snapshot>"),
        ("", "it has no tag"),
        (f"Surely. {CONCLUDING}", "'Surely.' is outside of the tags"),
        (f"{CONCLUDING} That is all.", "'That is all.' is outside of the tags"),
        (f"{SNAPSHOT}So: {THINK}{FINAL}", "'So:' is outside of the tags"),
        (SNAPSHOT + "<think>\nIt jumps.\n" + FINAL, "<think> is not a tag with its own end"),
        (SNAPSHOT.replace("</", "<") + THINK + FINAL, "<snapshot> is not a tag with its own end"),
        (CONCLUDING.removesuffix("</final answer>"), "<final answer> is not a tag with its own end"),
        (f"{CONCLUDING}</think>", "</think> is not a tag with its own end"),
        (CONCLUDING.replace("</think>", "</ think>"), "<think> is not a tag with its own end"),
        (CONCLUDING.replace("final answer", "Final Answer"), "is outside of the tags"),
        (CONCLUDING.replace("final answer", "answer"), "is outside of the tags"),
        (CONCLUDING.replace("<think>", "<think><final answer>"), "<think> is not a tag with its own end"),
        (SNAPSHOT + CONCLUDING, "<snapshot> is there twice"),
        (CONCLUDING + FINAL, "<final answer> is there twice"),
        ("<snapshot> </snapshot>" + THINK + FINAL, "<snapshot> is empty"),
        (SNAPSHOT + "<think>\n</think>" + FINAL, "<think> is empty"),
        (CONCLUDING.replace("OA=1", "OA=1, CF=5"), "has not TA, VQ, MQ, OA, each once"),
        (CONCLUDING.replace(", MQ=0", ""), "has not TA, VQ, MQ, OA, each once"),
        (CONCLUDING.replace("MQ=0", "TA=1"), "has not TA, VQ, MQ, OA, each once"),
        (CONCLUDING.replace("MQ=0", "MQ=3"), "is not an answer"),
        (CONCLUDING.replace("MQ=0", "MQ=tie"), "is not an answer"),
        (CONCLUDING.replace("OA=1", "OA=1."), "is not an answer"),
    ],
)
def test_a_loose_conclusion_is_refused(reply: str, flaw: str) -> None:
    found = find_flaw(rounds(CALLING, reply))
    assert found.startswith("reply 2: ")
    assert flaw in found
    assert not conforms(rounds(reply))


@pytest.mark.parametrize(
    ("reply", "flaw"),
    [
        (CALL, "it has <tool_call>"),
        (RECOMMEND + CALL, "it has <recommend answer>, <tool_call>"),
        (THINK + RECOMMEND + CALL, "it has <think>, <recommend answer>"),
        (SNAPSHOT + THINK + CALL, "it has <snapshot>, <think>, <tool_call>"),
        (SNAPSHOT + THINK + RECOMMEND, "it has <snapshot>, <think>, <recommend answer>"),
        (SNAPSHOT + THINK + CALL + RECOMMEND, "it has <snapshot>, <think>, <tool_call>, <recommend answer>"),
        (CALLING + CALL, "<tool_call> is there twice"),
        (CALLING.replace("CF=2", "CF=9"), "is not an answer"),
        (CALLING.replace("CF=2", "CF=0"), "is not an answer"),
        (CALLING.replace(", CF=2", ""), "has not TA, VQ, MQ, OA, CF, each once"),
        (CALLING.replace("}}", "}"), "the tool call is not JSON"),
        (CALLING.removesuffix("</tool_call>"), "<tool_call> is not a tag with its own end"),
        (CONCLUDING, "it has <snapshot>, <think>, <final answer>"),
    ],
)
def test_a_loose_call_is_refused(reply: str, flaw: str) -> None:
    found = find_flaw(rounds(reply, CONCLUDING))
    assert found.startswith("reply 1: ")
    assert flaw in found


def test_a_trace_without_an_end_or_with_a_correction_is_refused() -> None:
    assert find_flaw([]) == "there is no reply"
    assert "reply 1: it has" in find_flaw(rounds(CALLING))
    first, last = rounds(CALLING, CONCLUDING)
    assert find_flaw([replace(first, correction="the tool call names frame 99"), last]).endswith("names frame 99")


def test_a_snapshot_is_of_new_frames() -> None:
    [last] = rounds(THINK + FINAL)
    assert not conforms([last])
    assert conforms([replace(last, shown=())])
    assert conforms([replace(last, shown=(), reply=Reply(CONCLUDING))])


def test_a_long_reply_of_tags_takes_no_time() -> None:
    for text in ("<think>" * 50_000, "<" * 200_000, SNAPSHOT * 20_000, "<final answer>" + "TA=1, " * 50_000):
        assert not conforms(rounds(text)) and isinstance(parse(text), Malformed)


def test_the_format_that_inference_begins_replies_with_conforms() -> None:
    begun = FORMAT[0] + " a fox.\n" + FORMAT[1] + "It jumps.\n"
    assert find_flaw(rounds(begun + FORMAT[3], begun + FORMAT[4])) == ""
