"""Replies for the other order: as the world's own script has them, and as a person would write them."""

from __future__ import annotations

import pytest

from train.exchanged_replies import exchange_replies
from train.world import TRAIN, World
from train.world.values import TICKS


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_the_worlds_scripts_become_those_of_the_exchanged_scenes(hidden: float) -> None:
    """What the world writes about a scene with exchanged clips is what comes of exchanging what it wrote."""
    calls = 0
    for case in World(TRAIN, 150, hidden=hidden)[:]:
        assert case.exchanged
        assert exchange_replies(case.script, TICKS) == case.exchanged().script
        calls += sum("tool_call" in reply for reply in case.script)
    assert calls > 50


@pytest.mark.parametrize(
    ("text", "exchanged"),
    [
        ("TA=1, VQ = 2, MQ: 0, OA=1, CF=2", "TA=2, VQ = 1, MQ: 0, OA=2, CF=2"),
        ("Video 1 is sharper than video 2.", "Video 2 is sharper than video 1."),
        ("Videos 1 and 2 differ; clip A, not Clip B.", "Videos 2 and 1 differ; clip B, not Clip A."),
        ("The first video; the second one. First clip.", "The second video; the first one. Second clip."),
        ("The former moves, the Latter does not.", "The latter moves, the Former does not."),
        ("Video 1: a.\nVideo 2: b.", "Video 1: b.\nVideo 2: a."),
        ("video 12, a video a fox sees, first frames, a second later", None),
        ("frames 1-4 and 12", None),
        ("videos one can see; 2 videos; CF=1; TA=0", None),
    ],
)
def test_words_for_clips(text: str, exchanged: str | None) -> None:
    expected = text if exchanged is None else exchanged
    assert exchange_replies((text,), 48) == (expected,)
    assert exchange_replies((expected,), 48) == (text,)


def test_numbers_of_frames_that_were_called_for() -> None:
    call = '{"name": "select_frames", "arguments": {"target_frames": [3, 51, 4]}}'
    first, second = exchange_replies((call, "Frame 3 and frames 51, 4 are sharp; frames 3 to 9, frames 1-4 not."), 48)
    assert first == call.replace("[3, 51, 4]", "[3, 51, 52]")
    assert second == "Frame 51 and frames 3, 52 are sharp; frames 3 to 9, frames 1-4 not."


def test_a_frame_that_is_not_there_stays_so() -> None:
    """A call for frame 99 of 96 cannot be granted in either order."""
    assert exchange_replies(('"target_frames": [99, 0, 1]',), 48) == ('"target_frames": [0, 99, 49]',)
