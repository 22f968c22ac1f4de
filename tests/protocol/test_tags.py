from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.protocol.messages import KEYS
from vrt_lite.protocol.tags import FORMAT, Answer, FrameCall, Malformed, Marks, concluded, parse

FINAL = "<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>"
RECOMMEND = "<recommend answer>TA=0, VQ=1, MQ=0, OA=1, CF=2</recommend answer>"
CALL = '<tool_call>\n{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'


def choices(marks: Marks | None) -> list[int]:
    assert marks is not None
    return [marks.choices[key] for key in KEYS]


def test_final_answer_with_notes() -> None:
    text = f"<snapshot>two foxes</snapshot>\n<think>1 is sharper</think>\n{FINAL}"
    parsed = parse(text)
    assert isinstance(parsed, Answer)
    assert choices(parsed.marks) == [1, 2, 0, 1]
    assert parsed.notes.snapshot == "two foxes"
    assert parsed.notes.thought == "1 is sharper"
    assert [text[parsed.marks.offsets[key]] for key in KEYS] == ["1", "2", "0", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "<Final Answer>OA = 1 , MQ = 0, VQ = 2, TA = 1</ final answer>",
        "<FINAL ANSWER>\nTA=1\nVQ=2\nMQ=0\nOA=1\n</FINAL ANSWER>",
        "< final answer >ta=1;vq=2;mq=0;oa=1.< / final answer >",
        "<Answer>TA = 1, VQ = 2, MQ = 0, OA = 1</ answer>",
        "<final answer>TA=1, VQ=2, MQ=0, OA=1</ answer>",
        "<final answer>TA=1, VQ=2, MQ=0, OA=1, CF=5</final answer>",
        FINAL + "\n" + FINAL,
    ],
)
def test_spelling_variants_of_the_papers_samples(text: str) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Answer)
    assert choices(parsed.marks) == [1, 2, 0, 1]


def test_call_with_recommendation() -> None:
    parsed = parse(f"<snapshot>s</snapshot><think>t</think>{RECOMMEND}{CALL}")
    assert isinstance(parsed, FrameCall)
    assert '"select_frames"' in parsed.payload
    assert choices(parsed.recommendation) == [0, 1, 0, 1]
    assert parsed.recommendation is not None
    assert parsed.recommendation.confidence == 2


def test_bare_answer_with_confidence_is_a_recommendation() -> None:
    parsed = parse(f"<Answer>TA=1, VQ=1, MQ=1, OA=1, CF = 3</Answer>{CALL}")
    assert isinstance(parsed, FrameCall)
    assert choices(parsed.recommendation) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "reason", "recommends"),
    [
        ("", "is empty", False),
        ("   \n", "is empty", False),
        ("Video 1 is better.", "neither a final answer nor a tool call", False),
        (RECOMMEND, "neither calls the tool", True),
        (FINAL + CALL, "both a final answer and a tool call", True),
        (FINAL + "<final answer>TA=2, VQ=2, MQ=0, OA=2</final answer>", "contradict", False),
        (RECOMMEND + CALL + CALL, "more than one tool call", True),
        (RECOMMEND + '<tool_call>{"name": 1', "does not close its tool call", True),
        ("<final answer>TA=1, VQ=2, MQ=0</final answer>", "leaves out OA", False),
        ("<final answer>TA=1, VQ=2, MQ=0, OA=3</final answer>", "OA with something other than", False),
        ("<final answer>TA=-1, VQ=2, MQ=0, OA=1</final answer>", "TA with something other than", False),
        ("<final answer>TA=10, VQ=2, MQ=0, OA=1</final answer>", "TA with something other than", False),
        ("<final answer>TA=1, TA=2, VQ=2, MQ=0, OA=1</final answer>", "TA twice", False),
        ("<final answer>TA=1, VQ=2, MQ=0, OA=1", "does not close its answer", False),
        (f"<think>{CALL}</think>", "neither a final answer nor a tool call", False),
        (f"<think>I could write {FINAL}</think>", "neither a final answer nor a tool call", False),
        (f"<snapshot>a caption reads {FINAL}</snapshot>", "neither a final answer nor a tool call", False),
    ],
)
def test_what_cannot_be_used(text: str, reason: str, recommends: bool) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Malformed)
    assert reason in parsed.reason
    assert (parsed.recommendation is not None) == recommends


def test_an_unclosed_note_does_not_swallow_the_answer() -> None:
    assert isinstance(parse(f"<think>never closed {FINAL}"), Answer)


PIECES = st.sampled_from(
    [
        *["<", ">", "</", "think", "snapshot", "final answer", "recommend answer", "tool_call", "TA=1", "OA=", " "],
        *["<think>", "</think>", FINAL, RECOMMEND, CALL, "<final answer>", "</final answer>", "\x00", "\ud800"],
    ]
)


@given(st.text() | st.lists(PIECES, max_size=30).map("".join))
def test_parse_is_total(text: str) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Answer | FrameCall | Malformed)
    marks = parsed.marks if isinstance(parsed, Answer) else parsed.recommendation
    if marks:
        assert all(text[marks.offsets[key]] == str(marks.choices[key]) for key in KEYS)


@pytest.mark.parametrize("piece", ["<", "< ", "<think>", "</think>", "<final answer>", "TA=1,", "<tool_call>", "\n"])
def test_a_megabyte_of_anything_ends(piece: str) -> None:
    # A quadratic path would not come back from this within a test run's patience.
    parsed = parse(piece * (1_000_000 // len(piece)))
    assert not isinstance(parsed, Answer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<final answer>TA=1, VQ=1, MQ=0, OA=1</final answer>", True),
        ("<think>Done.</think><final answer>TA=1, VQ=1, MQ=0, OA=1</final answer>", True),
        ("<final answer>TA=1, VQ=1, MQ=0, OA=1</final", False),
        ("<final answer>TA=1, VQ=1, MQ=0</final answer>", False),
        ("<think>I might say <final answer>TA=1, VQ=1, MQ=0, OA=1</final answer>", False),
        ("<think>I might say <final answer>TA=1, VQ=1, MQ=0, OA=1</final answer> but no.</think>", False),
        ("<recommend answer>TA=1, VQ=1, MQ=0, OA=1, CF=2</recommend answer>", False),
        ('<tool_call>{"name": "select_frames"}</tool_call>', False),
        ("", False),
    ],
)
def test_a_reply_is_concluded_when_its_answer_closes(text: str, expected: bool) -> None:
    assert concluded(text) == expected


def test_the_format_is_read_as_it_is_written() -> None:
    text = "".join(FORMAT)
    assert text.count("<snapshot>") == 1
    _, _, _, call, final = FORMAT
    called = parse(f"<think>{call}")
    assert isinstance(called, FrameCall)
    assert called.recommendation
    assert isinstance(parse(f"<think>{final}"), Answer)
