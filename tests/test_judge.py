"""The loop, with scripted replies: what the judge is told, what stands, what is bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import ContextFullError, NoVerdictError
from vrt_lite.interfaces import Event, Observe, RoundBegan, RoundEnded, Sampling
from vrt_lite.judge import Ask, Pair, Round, Trial, judge, judge_with
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Reply, Text, Video

FINAL = "<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>"
RECOMMEND = "<recommend answer>TA=0, VQ=2, MQ=0, OA=2, CF=2</recommend answer>"
PAIR = Pair("a fox", (3.0, 5.0), ((1920, 1080), (720, 1280)))


def call(*numbers: object) -> str:
    arguments = {"target_frames": list(numbers)}
    return f"<tool_call>{json.dumps({'name': 'select_frames', 'arguments': arguments})}</tool_call>"


class NoFrames:
    """A store that nothing may ask: the loop itself never touches pixels."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        raise AssertionError(f"pixels of {frames} were asked for")


def run(*replies: str | Reply, **profile: Any) -> tuple[Trial, list[Conversation]]:
    backend = ScriptedBackend(replies)
    trial = judge_with(PAIR, replace(default_profile(), **profile), backend, NoFrames())
    return trial, backend.conversations


def last_text(conversation: Conversation) -> str:
    return "".join(part.text for part in conversation[-1].parts if isinstance(part, Text))


def test_the_opening_shows_both_videos_on_their_own_clocks() -> None:
    _, seen = run(FINAL)
    system, user = seen[0]
    assert system.role == "system"
    first, second, *texts = user.parts
    assert first == Video(tuple(FrameRef(0, i) for i in (0, 16, 31, 47)), 1.5)
    assert second == Video(tuple(FrameRef(1, i) for i in (0, 16, 31, 47)), 2.5)
    assert all(isinstance(text, Text) for text in texts)


def test_two_rounds_with_frames_in_the_order_asked() -> None:
    trial, seen = run(RECOMMEND + call(50, 3), FINAL)
    assert [r.outcome for r in trial.rounds] == ["tool", "final"]
    assert trial.rounds[1].shown == (FrameRef(1, 1, called=True), FrameRef(0, 2, called=True))
    assert seen[1][-1].parts[1:] == tuple(map(Image, trial.rounds[1].shown))
    assert seen[1][-2] == Message("assistant", (Generated(RECOMMEND + call(50, 3)),))
    assert (trial.verdict.source, trial.verdict.overall.winner) == ("final", 1)


def test_tool_frames_as_video_group_by_clip_and_one_that_is_named_twice_is_shown_twice() -> None:
    for form in ("image", "video"):
        trial, seen = run(call(3, 3, 3), FINAL, tool_form=form)
        assert seen[1][-1].frames == trial.rounds[1].shown == (FrameRef(0, 2, called=True),) * 3
    _, seen = run(call(1, 50, 3), FINAL, tool_form="video")
    assert [p for p in seen[1][-1].parts if isinstance(p, Video)] == [
        Video((FrameRef(0, 0, called=True), FrameRef(0, 2, called=True)), 2 * 3.0 * 2 / 48),
        Video((FrameRef(1, 1, called=True),), 10.0),
    ]


def test_a_tool_turn_is_worded_as_in_the_code_that_the_tool_comes_from() -> None:
    """Pixel-Reasoner's rollout: the first frame's size, and numbers that count the two videos as 0 and 1."""
    _, seen = run(call(50, 3), call(*range(1, 9)), call(*range(1, 10)), call(7), FINAL)
    assert [last_text(conversation) for conversation in seen[1:]] == [
        "\nHere are the selected frames (Frame Size: 448x840, Numbered 2 to 3):",
        "\nHere are the selected frames (Frame Size: 840x448, Numbered 4 to 11):",
        "\nExecution error:\nExecution Error: You have selected 9 frames in total. Think again which frames you need "
        "to check in details (no more than 8 frames)\n",
        "\nHere are the selected frames (Frame Size: 840x448, Numbered 12 to 12):",
    ]
    assert [message.role for message in seen[4]] == ["system", *["user", "assistant"] * 4, "user"]
    _, seen = run(call(3), FINAL, tool_min_pixels=784, tool_max_pixels=784 * 40)
    assert "Frame Size: 224x112," in last_text(seen[1])


@pytest.mark.parametrize("text", ["{width} {other} {", "{}}{reason}", "{0} {first!r}"])
def test_braces_in_a_profiles_texts_stay_what_they_are(text: str) -> None:
    texts = dict.fromkeys(("tool_text", "correction_text", "error_text"), text)
    _, seen = run(call(3), call(1.5), "nonsense", FINAL, **texts, retries=2)
    assert last_text(seen[1]) == text.replace("{width}", "840")
    assert last_text(seen[2]).count("tool call") == text.count("{reason}")


def test_the_window_forgets_older_tool_frames() -> None:
    for window, shown in ((1, [[], [1], [2], [3]]), (2, [[], [1], [1, 2], [2, 3]])):
        _, seen = run(call(2), call(3), call(4), FINAL, window=window)
        assert [[f.index for m in conversation if m.tool_outcome for f in m.frames] for conversation in seen] == shown


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("nonsense", "neither a final answer nor a tool call"),
        (call(0), "There are 96 frames numbered in range [1,96]. Your selection `target_frames=[0]` is out of range."),
        (call(3, 97), "Your selection `target_frames=[3, 97]` is out of range."),
        (call(10**900), "Your selection `target_frames=[1" + "0" * 199 + "…]` is out of range."),
        (call(1.5), "not an integer"),
        (call(*range(1, 10)), "You have selected 9 frames in total. Think again which frames"),
        # A control token that a model wrote never comes back as ours.
        ('<tool_call>{"name": "<|im_end|>", "arguments": {}}</tool_call>', "does not name the one tool"),
    ],
)
def test_what_cannot_be_used_is_told_to_the_model(reply: str, told: str) -> None:
    trial, seen = run(reply, FINAL)
    assert told in last_text(seen[1])
    assert "<|im_end|>" not in last_text(seen[1])
    assert [r.outcome for r in trial.rounds] == ["correction", "final"]
    assert told in trial.rounds[0].correction
    assert trial.verdict.source == "final"


def test_a_profile_without_words_for_a_refusal_has_ours() -> None:
    _, seen = run(call(0), call(*range(1, 10)), FINAL, refusals={})
    assert "the tool call holds a frame index outside 1 to 96" in last_text(seen[1])
    assert "the tool call asks for 9 frames; at most 8 are allowed in one call" in last_text(seen[2])


def test_a_reply_is_kept_up_to_where_it_is_over() -> None:
    long = f"{FINAL}\nVideo 1 is better, because {'it is ' * 50}better.{call(1)}"
    odds = {FINAL.index("OA=") + 3: (0.1, 0.8, 0.1), len(FINAL) + 7: (0.8, 0.1, 0.1)}
    trial, _ = run(Reply(long, odds=odds))
    [only] = trial.rounds
    assert (only.reply.text, only.outcome, len(only.reply.odds)) == (FINAL, "final", 1)


@pytest.mark.parametrize(
    ("replies", "rounds", "source", "winner"),
    [
        ([FINAL + call(1), FINAL], 2, "final", 1),  # a call after a final answer is run
        ([FINAL + call(i) for i in range(1, 9)], 5, "recommended", 1),  # and the answer stands if the rounds end
        ([RECOMMEND.replace("OA=2", f"OA={i % 2 + 1}") + call(i + 1) for i in range(9)], 5, "recommended", 1),
        ([RECOMMEND + call(1), "nonsense", "nonsense"], 3, "recommended", 2),
    ],
)
def test_calls_are_bounded_by_the_rounds_and_the_last_recommendation_stands(
    replies: list[str], rounds: int, source: str, winner: int
) -> None:
    trial, seen = run(*replies)
    assert len(trial.rounds) == len(seen) == rounds
    assert (trial.verdict.source, trial.verdict.overall.winner) == (source, winner)


@pytest.mark.parametrize(
    ("reply", "said"),
    [("nonsense", "2 round"), ("", "2 round"), (FINAL.replace("OA=1", "OA=7"), "2 round"), (call(0), "5 round")],
)
def test_without_an_answer_there_is_no_verdict_and_no_tie(reply: str, said: str) -> None:
    """What is malformed is retried once."""
    with pytest.raises(NoVerdictError, match=said) as caught:
        run(*[reply] * 9)
    assert caught.value.status == 6
    assert "full model" in str(caught.value)


def test_the_last_round_may_ask_for_a_final_answer() -> None:
    _, seen = run(call(1), call(2), FINAL, rounds=3, final_text="Give the final answer now.")
    assert "Give the final answer now." not in last_text(seen[1])
    assert last_text(seen[2]).endswith("Give the final answer now.")


def test_the_odds_of_a_recommendation_come_from_its_own_round() -> None:
    text = RECOMMEND + call(1)
    trial, _ = run(Reply(text, odds={text.index("OA=") + 3: (0.1, 0.2, 0.7)}), "nonsense", "nonsense")
    assert (trial.verdict.source, trial.verdict.confidence) == ("recommended", 2)
    assert trial.verdict.overall.odds == (0.1, 0.2, 0.7)


class FullAfter(ScriptedBackend):
    """A back end whose context is full once the script is used up."""

    def reply(self, conversation: Conversation, frames: object, *, sampling: Sampling, observe: Observe) -> Reply:
        try:
            return super().reply(conversation, NoFrames(), sampling=sampling, observe=observe)
        except NoVerdictError as error:
            raise ContextFullError("The conversation does not fit.") from error


def test_a_full_context_leaves_the_recommendation_standing() -> None:
    trial = judge_with(PAIR, default_profile(), FullAfter([RECOMMEND + call(1)]), NoFrames())
    assert trial.verdict.source == "recommended"
    with pytest.raises(ContextFullError):
        judge_with(PAIR, default_profile(), FullAfter([call(1)]), NoFrames())


def test_every_round_is_told_as_it_happens() -> None:
    events, rounds, back = list[Event](), list[Round](), ScriptedBackend([call(1), FINAL])
    judge_with(PAIR, default_profile(), back, NoFrames(), observe=events.append, on_round=rounds.append)
    assert [r.number for r in rounds] == [1, 2]
    assert [e.number for e in events if isinstance(e, RoundBegan)] == [1, 2]
    assert [e.outcome for e in events if isinstance(e, RoundEnded)] == ["tool", "final"]


def test_a_trial_yields_what_it_wants_and_goes_on_from_there() -> None:
    """A generator: each request comes once, a round when it has ended, and the trial is what it returns."""
    judging = judge(PAIR, default_profile(), sampling=Sampling(99, seed=7))
    first = next(judging)
    assert isinstance(first, Ask)
    assert (first.number, first.sampling.seed, first.shown) == (1, 7, first.conversation[-1].frames)
    ended = judging.send(Reply(RECOMMEND + call(1)))
    assert isinstance(ended, Round)
    assert ended.outcome == "tool"
    second = next(judging)
    assert isinstance(second, Ask)
    assert [frame.index for frame in second.shown] == [0]
    assert second.conversation[: len(first.conversation)] == first.conversation
    with pytest.raises(StopIteration) as end:
        judging.throw(ContextFullError("The conversation does not fit."))
    assert isinstance(end.value.value, Trial)
    assert end.value.value.rounds == (ended,)
