"""Each term of the reward against examples worked by hand."""

from __future__ import annotations

import math

import pytest

from train.recipe import Reward
from train.rewards import (
    Terms,
    accuracy,
    advantages,
    answers,
    called,
    explore,
    gain,
    group_terms,
    informative,
)
from vrt_lite.judge import Round
from vrt_lite.protocol.messages import Reply
from vrt_lite.protocol.tags import parse

LABELS = {"TA": 1, "VQ": 2, "MQ": 0, "OA": 1}
CALL = '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [1]}}</tool_call>'
NOTES = "<snapshot>a cat</snapshot><think>it moves</think>"


def _round(text: str, *, correction: str = "") -> Round:
    return Round(1, (), Reply(text), parse(text), correction)


def _final(digits: str) -> Round:
    ta, vq, mq, oa = digits
    return _round(f"{NOTES}<final answer>TA={ta}, VQ={vq}, MQ={mq}, OA={oa}</final answer>")


def _recommend(digits: str) -> Round:
    ta, vq, mq, oa = digits
    return _round(f"{NOTES}<recommend answer>TA={ta}, VQ={vq}, MQ={mq}, OA={oa}, CF=2</recommend answer>{CALL}")


BAD = _round("well", correction="it holds neither a final answer nor a tool call")


@pytest.mark.parametrize(
    ("given", "alpha", "worth"),
    [
        ({"TA": 1, "VQ": 2, "MQ": 0, "OA": 1}, 0.5, 1.0),
        ({"TA": 1, "VQ": 2, "MQ": 0, "OA": 2}, 0.5, 0.5),
        ({"TA": 2, "VQ": 1, "MQ": 1, "OA": 1}, 0.5, 0.5),
        ({"TA": 1, "VQ": 1, "MQ": 1, "OA": 1}, 0.5, 0.5 + 0.5 / 3),
        ({"TA": 1, "VQ": 2, "MQ": 1, "OA": 0}, 0.25, 0.75 * 2 / 3),
        ({"TA": 0, "VQ": 0, "MQ": 1, "OA": 0}, 0.5, 0.0),
    ],
)
def test_accuracy(given: dict[str, int], alpha: float, worth: float) -> None:
    assert accuracy(given, LABELS, alpha=alpha) == pytest.approx(worth)


def test_what_has_no_label_takes_no_part_in_accuracy() -> None:
    given = {"TA": 1, "VQ": 1, "MQ": 1, "OA": 2}
    assert accuracy(given, {"TA": 1, "VQ": 2}, alpha=0.5) == 0.5
    assert accuracy(given, {"OA": 2}, alpha=0.5) == 1.0
    assert accuracy(given, {"OA": 1}, alpha=0.5) == 0.0
    assert accuracy(given, {}, alpha=0.5) == 0.0


@pytest.mark.parametrize(
    ("accuracies", "worth"), [([0.5], 0.0), ([0.0, 1.0], 0.2), ([0.5, 1.0, 0.25], -0.05), ([1.0, 0.0], -0.2), ([], 0.0)]
)
def test_gain_over_successive_answers(accuracies: list[float], worth: float) -> None:
    assert gain(accuracies, k=0.2) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("calls", "worth"),
    [
        ([True] + [False] * 7, [0.2 - 1 / 8] + [0.0] * 7),
        ([True, True] + [False] * 6, [0.0] * 8),
        ([False] * 8, [0.0] * 8),
        ([True] * 8, [0.0] * 8),
        ([], []),
    ],
)
def test_exploring_is_worth_something_while_it_is_rare(calls: list[bool], worth: list[float]) -> None:
    assert explore(calls, omega=0.2) == pytest.approx(worth)


def test_answers_are_recommendations_and_the_final_one() -> None:
    rounds = [_recommend("0000"), BAD, _final("1201")]
    assert [dict(marks.choices) for marks in answers(rounds)] == [
        {"TA": 0, "VQ": 0, "MQ": 0, "OA": 0},
        {"TA": 1, "VQ": 2, "MQ": 0, "OA": 1},
    ]
    assert called(rounds)
    assert not called([BAD, _final("1201")])
    assert not called([_round(CALL, correction="the tool call names a frame twice")])
    right, bad = group_terms([rounds, [BAD]], LABELS, Reward(alpha=0.5))
    assert right.accuracy == 1.0
    assert bad.accuracy == 0.0


def test_the_terms_of_a_group() -> None:
    """Four traces: one call among ... four is a rate of 1/4, beyond omega; with eight it is not."""
    right, wrong = [_final("1201")], [_final("2112")]
    asked = [_recommend("1000"), _final("1201")]
    unfinished = [_recommend("1201"), BAD]
    how = Reward()
    terms = group_terms([asked, *[right] * 4, *[wrong] * 3], LABELS, how)
    # Recommended 1000: TA and MQ right, overall wrong: 0.5 · 2/3. Final: all right.
    assert (terms[0].format, terms[0].accuracy) == (1.0, 1.0)
    assert terms[0].gain == pytest.approx(0.2 * (1 - 1 / 3))
    assert terms[0].explore == pytest.approx(0.5 * (0.2 - 1 / 8))
    assert terms[0].total == pytest.approx(2 + 0.2 * 2 / 3 + 0.5 * 0.075)
    assert (terms[1].total, terms[5].total) == (2.0, 1.0)
    loose = [_round(right[0].reply.text.removeprefix(NOTES))]
    [bare, last] = group_terms([loose, unfinished], LABELS, how)
    assert (bare.format, bare.accuracy) == (0.0, 1.0)
    assert (last.format, last.accuracy, last.gain, last.explore) == (0.0, 1.0, 0.0, 0.0)


def test_a_group_that_is_all_right_or_all_wrong_or_all_alike_teaches_nothing() -> None:
    def group(*accuracies: float, bonus: float = 0.0) -> list[Terms]:
        return [Terms(1.0, value, 0.0, bonus * (number == 0)) for number, value in enumerate(accuracies)]

    assert not informative(group(0.0, 0.0, 0.0, bonus=0.05))
    assert not informative(group(1.0, 1.0, 1.0, bonus=0.05))
    assert not informative(group(0.5, 0.5, 0.5))
    assert informative(group(0.5, 0.5, 0.5, bonus=0.05))
    assert informative(group(0.0, 0.0, 1.0))
    assert not informative(group(0.5))


def test_advantages_within_a_group() -> None:
    found = advantages([1.0, 2.0, 3.0])
    assert found == pytest.approx([-1 / 1.0001, 0.0, 1 / 1.0001])
    assert advantages([2.0] * 8) == [0.0] * 8
    assert advantages([5.0]) == [0.0]
    assert math.isclose(sum(advantages([0.1, 0.7, 0.4])), 0.0, abs_tol=1e-12)
