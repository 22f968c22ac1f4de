from __future__ import annotations

from itertools import groupby, pairwise
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrt_lite.protocol.messages import KEYS
from vrt_lite.protocol.tags import (
    AFTERWORD,
    FORMAT,
    Answer,
    FrameCall,
    Malformed,
    Marks,
    PartReader,
    concluded,
    find_end,
    parse,
)

FINAL = "<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>"
RECOMMEND = "<recommend answer>TA=0, VQ=1, MQ=0, OA=1, CF=2</recommend answer>"
OTHER = "<final answer>TA=2, VQ=2, MQ=0, OA=2</final answer>"
BARE = "<answer> TA = 1, VQ = 1, MQ = 0, OA = 1, CF = 2 </ answer>"
CALL = '<tool_call>\n{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'


def choices(marks: Marks | None) -> list[int]:
    assert marks is not None
    return [marks.choices[key] for key in KEYS]


def test_final_answer_with_notes() -> None:
    text = f"<snapshot>two foxes</snapshot>\n<think>1 is sharper</think>\n{FINAL}"
    parsed = parse(text)
    assert isinstance(parsed, Answer)
    assert choices(parsed.marks) == [1, 2, 0, 1]
    assert (parsed.notes.snapshot, parsed.notes.thought) == ("two foxes", "1 is sharper")
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
        f"<think>never closed {FINAL}",
        BARE + FINAL,
        FINAL + BARE,
    ],
)
def test_variants_of_the_papers_samples(text: str) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Answer)
    assert choices(parsed.marks) == [1, 2, 0, 1]


@pytest.mark.parametrize("before", ["<think>t</think>", RECOMMEND])
def test_a_bare_answer_is_final_where_no_call_follows(before: str) -> None:
    """The paper's Figure 2 ends with one, confidence and all."""
    parsed = parse(before + BARE)
    assert isinstance(parsed, Answer)
    assert (choices(parsed.marks), parsed.marks.confidence) == ([1, 1, 0, 1], 2)


@pytest.mark.parametrize(
    ("text", "recommended"),
    [
        (f"<snapshot>s</snapshot><think>t</think>{RECOMMEND}{CALL}", [0, 1, 0, 1]),
        (BARE + CALL, [1, 1, 0, 1]),
        (FINAL + CALL, [1, 2, 0, 1]),
        (f"{FINAL} I want to be sure: let me look again.\n{CALL}", [1, 2, 0, 1]),
        (f"{FINAL}<think>Look again.</think>{CALL}", [1, 2, 0, 1]),
    ],
)
def test_a_call_is_run_whatever_was_said_before(text: str, recommended: list[int]) -> None:
    parsed = parse(text)
    assert isinstance(parsed, FrameCall)
    assert '"select_frames"' in parsed.payload
    assert choices(parsed.recommendation) == recommended
    assert parsed.recommendation and parsed.recommendation.confidence == (None if FINAL in text else 2)


@pytest.mark.parametrize(
    ("text", "reason", "recommends"),
    [
        ("", "is empty", False),
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
def test_a_megabyte_of_anything_ends(piece: str) -> None:
    # A quadratic path would not come back from this within a test run's patience.
    parsed = parse(piece * (1_000_000 // len(piece)))
    assert not isinstance(parsed, Answer)


LONG = "x" * AFTERWORD


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (FINAL, None),
        (FINAL + LONG[1:], None),
        (FINAL + LONG, FINAL),
        (f"<think>Done.</think>{FINAL} That was all.{LONG}{CALL}", f"<think>Done.</think>{FINAL}"),
        (f"{FINAL} That was all.{CALL}{LONG}", None),
        (f"{FINAL}<think>Sure?</think>{FINAL}{LONG}", f"{FINAL}<think>Sure?</think>{FINAL}"),
        (f"{FINAL}<think>Sure?{LONG}", None),
        (f"{FINAL}{LONG}{OTHER}", FINAL),
        (f"{FINAL}{OTHER}{LONG}", None),
        (f"{CALL}{FINAL}{LONG}", None),
        (f"<think>I might say {FINAL}{LONG}", None),
        (f"<think>I might say {FINAL}{LONG}</think>{OTHER}{LONG}", f"<think>I might say {FINAL}{LONG}</think>{OTHER}"),
        (f"<final answer>TA=1, VQ=1, MQ=0</final answer>{LONG}", None),
        (RECOMMEND + LONG, None),
        (f"<answer>TA=1, VQ=1, MQ=0, OA=1, CF=2</answer>{LONG}", None),
        (LONG, None),
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


def test_the_format_is_read_as_it_is_written() -> None:
    assert "".join(FORMAT).count("<snapshot>") == 1
    called, answered = (parse(f"<think>{text}") for text in FORMAT[3:])
    assert isinstance(called, FrameCall) and called.recommendation
    assert isinstance(answered, Answer)


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
