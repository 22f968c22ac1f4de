"""What is asked, by content, and the light columns of what came of it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from judgements import TWO, call, judgement, sure
from made import JUDGED, question

from vrt_lite.runs.judged import result_of


def test_each_of_the_four_makes_another_key() -> None:
    asked = question()
    assert asked.key == question().key
    others = [replace(asked, **{f.name: "x"}) for f in fields(asked)]
    exchanged = replace(asked, first=asked.second, second=asked.first)
    assert len({q.key for q in (asked, exchanged, *others)}) == 6


def test_no_two_questions_run_together() -> None:
    asked = replace(question(), prompt="a", judge="bc")
    assert asked.key != replace(asked, prompt="ab", judge="c").key
    assert replace(asked, prompt="\udcff").key != replace(asked, prompt="\\udcff").key


def test_the_light_columns() -> None:
    result = result_of(question(), JUDGED)
    assert dict(result.winners) == {"TA": 0, "VQ": 2, "MQ": 1, "OA": 2}
    assert result.odds["OA"] == TWO
    assert list(result.winners) == list(result.odds) == ["TA", "VQ", "MQ", "OA"]
    assert (result.source, result.rounds, result.calls, result.error) == ("final", 1, 0, "")
    assert result.seconds == 0.83


def test_rounds_calls_and_tokens_are_counted() -> None:
    judged = judgement([call(1, 49), sure()]).to_json()
    for r, tokens in zip(judged["orders"][0]["rounds"], ((100, 10), (150, 20)), strict=True):
        r["tokens_in"], r["tokens_out"] = tokens
    result = result_of(question(), judged)
    assert (result.rounds, result.calls, result.tokens) == (2, 1, 280)


def test_without_probabilities_there_are_no_odds() -> None:
    assert set(
        result_of(
            question(), judgement([call(1), "<final answer>TA=1,VQ=1,MQ=1,OA=1</final answer>"]).to_json()
        ).odds.values()
    ) == {None}


def test_one_file_twice_is_a_tie_without_a_round() -> None:
    result = result_of(question(), judgement().to_json())
    assert (set(result.winners.values()), result.source, result.rounds) == ({0}, "identical", 0)


def test_a_failure_has_no_winners() -> None:
    result = result_of(question(), None, error="No verdict.")
    assert (dict(result.winners), dict(result.odds), result.source, result.error) == ({}, {}, "", "No verdict.")
    with pytest.raises(ValueError, match="neither"):
        result_of(question(), None)


def test_both_orders_answer_no_single_question() -> None:
    with pytest.raises(ValueError, match="both orders"):
        result_of(question(), judgement([sure()], [sure()]).to_json())
