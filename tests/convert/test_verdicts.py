"""Judging pairs by the loop: every pair is given to the back end as it wants its frames, and verdicts are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from convert.clip_pairs import EXAMPLE
from convert.verdicts import agreement, judge_pairs
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.profile import PIXELS_PER_TOKEN, default_profile
from vrt_lite.protocol.messages import Conversation, Reply

CALL = '<think>look</think><tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 49]}}</tool_call>'
ANSWER = "<think>done</think><final answer>TA=1, VQ=0, MQ=2, OA=1</final answer>"


@dataclass
class Scripted:
    """Says its turns in order and notes the sizes of the frames that each showed."""

    turns: Sequence[str]
    sizes: list[set[tuple[int, ...]]] = field(default_factory=list)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        shown = [frame for message in conversation for frame in message.frames]
        self.sizes.append({picture.shape for picture in frames.pixels(shown)})
        return Reply(self.turns[len(self.sizes) - 1])


def test_pairs_are_judged_by_the_real_loop() -> None:
    profile = default_profile()
    script = Scripted([CALL, ANSWER, ANSWER.replace("TA=1", "TA=2"), *["nothing"] * (profile.retries + 1)])
    first, second, third = judge_pairs([EXAMPLE] * 3, profile, script, size="displayed")
    assert first == {"TA": 1, "VQ": 0, "MQ": 2, "OA": 1}
    assert second == {**first, "TA": 2}
    assert third is None
    assert script.sizes == [{(140, 252, 3)}] * len(script.turns)


def test_frames_come_at_the_models_size_where_that_is_asked() -> None:
    profile = replace(default_profile(), max_pixels=24 * PIXELS_PER_TOKEN)
    script = Scripted([ANSWER, ANSWER])
    assert len(list(judge_pairs([EXAMPLE], profile, script, size="displayed"))) == 1
    assert len(list(judge_pairs([EXAMPLE], profile, script, size="fitted"))) == 1
    assert script.sizes == [{(140, 252, 3)}, {(84, 168, 3)}]


def test_agreement_counts_judgements() -> None:
    one = {"TA": 1, "VQ": 0, "MQ": 2, "OA": 1}
    assert agreement([one], [one]) == "4 of 4 on 1 pair"
    assert agreement([one, one], [one, {**one, "VQ": 2}]) == "7 of 8 on 2 pairs"
    assert agreement([one, one], [None, one]) == "4 of 8 on 2 pairs"
    assert agreement([one, None], [one, one]) == "4 of 4 on 1 of 2 pairs"
    assert agreement([None, None], [one, None]) == "none by the reference on 2 pairs"
