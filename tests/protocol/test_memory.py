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


@pytest.mark.parametrize("window", [0, 1, 5])
@pytest.mark.parametrize("outcomes", [0, 1, 4])
def test_only_frames_of_old_outcomes_go_and_a_stand_in_takes_their_place(window: int, outcomes: int) -> None:
    seen = apply_window(transcript(outcomes), window=window, stand_in="(gone)")
    gone = outcomes - min(window, outcomes)
    for number, (before, after) in enumerate(zip(transcript(outcomes), seen, strict=True)):
        hidden = before.tool_outcome and number < 2 + 2 * gone
        assert after.parts == ((Text("frames:"), Text("(gone)")) if hidden else before.parts)


def test_an_empty_stand_in_is_no_part() -> None:
    assert apply_window(transcript(2), window=1, stand_in="")[3].parts == (Text("frames:"),)
