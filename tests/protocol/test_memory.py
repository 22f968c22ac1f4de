from __future__ import annotations

import pytest

from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Text, Video, apply_window

FIRST = (FrameRef(0, 0), FrameRef(0, 47))


def transcript(outcomes: int) -> Conversation:
    messages = [Message("system", (Text("s"),)), Message("user", (Video(FIRST, 1.0), Text("task")))]
    for i in range(outcomes):
        messages.append(Message("assistant", (Generated(f"snapshot {i}"),)))
        frames = (Image(FrameRef(0, i + 1)), Image(FrameRef(1, i + 1)))
        messages.append(Message("user", (Text("frames:"), *frames), tool_outcome=True))
    return tuple(messages)


@pytest.mark.parametrize("window", [0, 1, 2, 5])
@pytest.mark.parametrize("outcomes", [0, 1, 2, 4])
def test_the_most_recent_outcomes_and_the_first_frames_stay(window: int, outcomes: int) -> None:
    seen = apply_window(transcript(outcomes), window=window, stand_in="(gone)")
    assert seen[1].frames == FIRST
    shown = [bool(m.frames) for m in seen if m.tool_outcome]
    kept = min(window, outcomes)
    assert shown == [False] * (outcomes - kept) + [True] * kept


def test_all_text_stays_and_one_stand_in_takes_the_frames_place() -> None:
    seen = apply_window(transcript(2), window=1, stand_in="(gone)")
    assert [m.parts for m in seen if m.role == "assistant"] == [(Generated("snapshot 0"),), (Generated("snapshot 1"),)]
    assert seen[3].parts == (Text("frames:"), Text("(gone)"))
    assert apply_window(transcript(2), window=1, stand_in="")[3].parts == (Text("frames:"),)


def test_the_budget_does_not_grow_with_rounds() -> None:
    counts = {sum(len(m.frames) for m in apply_window(transcript(n), window=1, stand_in="")) for n in range(1, 8)}
    assert counts == {len(FIRST) + 2}


def test_it_is_a_function_of_the_transcript() -> None:
    conversation = transcript(3)
    assert apply_window(conversation, window=1, stand_in="x") == apply_window(transcript(3), window=1, stand_in="x")
    assert conversation == transcript(3)
