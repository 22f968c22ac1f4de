from __future__ import annotations

import json
from itertools import groupby, pairwise
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrt_lite.protocol.messages import KEYS, FrameRef
from vrt_lite.protocol.tags import (
    AFTERWORD,
    FORMAT,
    Answer,
    FrameCall,
    Granted,
    Malformed,
    PartReader,
    Refused,
    concluded,
    find_end,
    parse,
    read_call,
)

FINAL = "<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>"
RECOMMEND = "<recommend answer>TA=0, VQ=1, MQ=0, OA=1, CF=2</recommend answer>"
OTHER = "<final answer>TA=2, VQ=2, MQ=0, OA=2</final answer>"
BARE = "<answer> TA = 1, VQ = 1, MQ = 0, OA = 1, CF = 2 </ answer>"
CALL = '<tool_call>\n{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'


def test_final_answer_with_notes() -> None:
    text = f"<snapshot>two foxes</snapshot>\n<think>1 is sharper</think>\n{FINAL}"
    parsed = parse(text)
    assert isinstance(parsed, Answer)
    assert (parsed.notes.snapshot, parsed.notes.thought) == ("two foxes", "1 is sharper")
    assert [text[parsed.marks.offsets[key]] for key in KEYS] == ["1", "2", "0", "1"]


@pytest.mark.parametrize(
    ("text", "kind", "choices", "confidence"),
    [
        # Variants of the paper's samples.
        ("<Final Answer>OA = 1 , MQ = 0, VQ = 2, TA = 1</ final answer>", Answer, [1, 2, 0, 1], None),
        ("<FINAL ANSWER>\nTA=1\nVQ=2\nMQ=0\nOA=1\n</FINAL ANSWER>", Answer, [1, 2, 0, 1], None),
        ("< final answer >ta=1;vq=2;mq=0;oa=1.< / final answer >", Answer, [1, 2, 0, 1], None),
        ("<final answer>TA=1, VQ=2, MQ=0, OA=1, CF=5</ answer>", Answer, [1, 2, 0, 1], 5),
        (FINAL + "\n" + FINAL, Answer, [1, 2, 0, 1], None),
        (f"<think>never closed {FINAL}", Answer, [1, 2, 0, 1], None),
        (BARE + FINAL, Answer, [1, 2, 0, 1], None),
        (FINAL + BARE, Answer, [1, 2, 0, 1], None),
        # Its Figure 2 ends with a bare answer, confidence and all.
        (f"<think>t</think>{BARE}", Answer, [1, 1, 0, 1], 2),
        (RECOMMEND + BARE, Answer, [1, 1, 0, 1], 2),
        # A call is run whatever was said before.
        (f"<snapshot>s</snapshot><think>t</think>{RECOMMEND}{CALL}", FrameCall, [0, 1, 0, 1], 2),
        (BARE + CALL, FrameCall, [1, 1, 0, 1], 2),
        (f"{FINAL} I want to be sure: let me look again.\n{CALL}", FrameCall, [1, 2, 0, 1], None),
        (f"{FINAL}<think>Look again.</think>{CALL}", FrameCall, [1, 2, 0, 1], None),
        # The format is read as it is written.
        ("<think>" + FORMAT[3], FrameCall, [0, 0, 0, 0], 1),
        ("<think>" + FORMAT[4], Answer, [0, 0, 0, 0], None),
    ],
)
def test_what_can_be_used(
    text: str, kind: type[Answer | FrameCall], choices: list[int], confidence: int | None
) -> None:
    parsed = parse(text)
    assert isinstance(parsed, kind)
    marks = parsed.marks if isinstance(parsed, Answer) else parsed.recommendation
    assert marks and [marks.choices[key] for key in KEYS] == choices
    assert marks.confidence == confidence
    assert isinstance(parsed, Answer) or '"select_frames"' in parsed.payload


@pytest.mark.parametrize(
    ("text", "reason", "recommends"),
    [
        ("   \n", "is empty", False),
        ("Video 1 is better.", "neither a final answer nor a tool call", False),
        (RECOMMEND, "neither calls the tool", True),
        (CALL + FINAL, "a final answer after a tool call", True),
        (FINAL + CALL + CALL, "more than one tool call", True),
        (FINAL + OTHER, "contradict", False),
        (FINAL + OTHER + CALL, "contradict", False),
        (RECOMMEND + '<tool_call>{"name": 1', "does not close its tool call", True),
        ("<final answer>TA=1, VQ=2, MQ=0</final answer>", "leaves out OA", False),
        ("<final answer>TA=1, VQ=2, MQ=0, OA=3</final answer>", "OA with something other than", False),
        ("<final answer>TA=-1, VQ=2, MQ=0, OA=1</final answer>", "TA with something other than", False),
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
def test_far_more_than_a_reply_can_be_ends(piece: str) -> None:
    # A quadratic path would not come back from this within a test run's patience.
    parsed = parse(piece * (250_000 // len(piece)))
    assert not isinstance(parsed, Answer)


LONG = "x" * AFTERWORD


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (FINAL + LONG[1:], None),
        (FINAL + LONG, FINAL),
        (f"<think>Done.</think>{FINAL} That was all.{LONG}{CALL}", f"<think>Done.</think>{FINAL}"),
        (f"{FINAL} That was all.{CALL}{LONG}", None),
        (f"{FINAL}<think>Sure?</think>{FINAL}{LONG}", f"{FINAL}<think>Sure?</think>{FINAL}"),
        (f"{FINAL}{LONG}{OTHER}", FINAL),
        (f"{FINAL}{OTHER}{LONG}", None),
        (f"{CALL}{FINAL}{LONG}", None),
        (f"<think>I might say {FINAL}{LONG}", None),
        (f"<think>I might say {FINAL}{LONG}</think>{OTHER}{LONG}", f"<think>I might say {FINAL}{LONG}</think>{OTHER}"),
        (RECOMMEND + LONG, None),
        (f"<answer>TA=1, VQ=1, MQ=0, OA=1, CF=2</answer>{LONG}", None),
        ("", None),
    ],
)
def test_a_reply_is_over_when_nothing_follows_its_answer(text: str, kept: str | None) -> None:
    end = find_end(text)
    assert (None if end is None else text[:end]) == kept
    assert concluded(text) == (kept is not None)


@settings(deadline=None)  # the first text takes as long as the machine is busy
@given(st.lists(PIECES | st.sampled_from([LONG, LONG[:150], OTHER]), max_size=20).map("".join), st.data())
def test_where_a_reply_is_over_does_not_change_as_it_grows(text: str, data: st.DataObject) -> None:
    end, cut = find_end(text), data.draw(st.integers(0, len(text)))
    earlier = find_end(text[:cut])
    assert earlier in (None, end)
    if end is not None:
        assert find_end(text[:end] + LONG) == end
        assert isinstance(parse(text), Answer)
        assert parse(text) == parse(text[:end])
    if earlier is not None:
        assert parse(text) == parse(text[:cut])


WORDS = ("<think>", "</ think>", "<Final Answer>", "</answer>", "<tool_call>", "a < b", "x\n")


@given(st.lists(st.sampled_from(WORDS)), st.data())
def test_parts_are_the_same_wherever_the_writing_is_cut(written: list[str], data: st.DataObject) -> None:
    text = "".join(written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    reader = PartReader()
    found = [part for a, b in pairwise([0, *cuts, len(text)]) for part in reader.read(text[a:b])]
    joined = [(kind, "".join(part for _, part in of)) for kind, of in groupby(found, key=itemgetter(0))]
    [*whole] = PartReader().read(text)
    assert joined == [(kind, "".join(part for _, part in of)) for kind, of in groupby(whole, key=itemgetter(0))]
    plain = "".join(word for word in written if not word.startswith("<"))
    assert plain.startswith("".join(part for _, part in found)), "what may be a tag waits"


def call(targets: object, name: object = "select_frames") -> str:
    return json.dumps({"name": name, "arguments": {"target_frames": targets}})


def test_frames_are_granted_in_the_order_asked_and_as_often() -> None:
    granted = read_call(call([50, 1, 96, 50]), workspace=48, limit=8)
    assert granted == Granted((FrameRef(1, 1), FrameRef(0, 0), FrameRef(1, 47), FrameRef(1, 1)))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 10_000, "not valid JSON"),
        ("[1, 2]", "not a JSON object"),
        (call([1], name="delete_files"), "does not name the one tool"),
        ('{"name": "select_frames", "arguments": [1]}', "no list of integers"),
        (call("1, 2"), "no list of integers"),
        (call([]), "no list of integers"),
        (call([0]), "outside 1 to 96"),
        (call([97]), "outside 1 to 96"),
        (call([10**30]), "outside 1 to 96"),
        (call([1.0]), "not an integer"),
        (call([float("nan")]), "not an integer"),
        (call([True]), "not an integer"),
        (call(["1"]), "not an integer"),
        (call(list(range(1, 10))), "asks for 9 frames; at most 8"),
        (call([1] * 1_000_000), "asks for 1000000 frames"),
    ],
)
def test_refusals(payload: str, reason: str) -> None:
    refused = read_call(payload, workspace=48, limit=8)
    assert isinstance(refused, Refused)
    assert reason in refused.reason


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_read_is_total(payload: str) -> None:
    assert isinstance(read_call(payload, workspace=48, limit=8), Granted | Refused)
