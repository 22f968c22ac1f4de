"""What is asked, by content, and the light columns of what came of it."""

from __future__ import annotations

from dataclasses import replace as replace_in
from pathlib import Path

from judgements import TWO, call, judgement, sure
from made import JUDGED, question
from msgspec.structs import replace

from vrt_lite.errors import NoVerdictError, VideoError
from vrt_lite.records.conditions import conditions_of
from vrt_lite.records.pairs import failure_of, join_results, result_of
from vrt_lite.runs.store import Store


def test_each_of_the_four_makes_another_key() -> None:
    asked = question()
    assert asked.key == question().key
    others = [replace(asked, **{name: "x"}) for name in asked.__struct_fields__]
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
    judged = judgement([call(1, 49), sure()])
    [order] = judged.orders
    tokens = zip(order.rounds, ((100, 10), (150, 20)), strict=True)
    rounds = tuple(replace_in(r, tokens_in=read, tokens_out=written) for r, (read, written) in tokens)
    judged = replace_in(judged, orders=(replace_in(order, rounds=rounds),))
    result = result_of(question(), judged)
    assert (result.rounds, result.calls, result.tokens) == (2, 1, 280)


def test_without_probabilities_there_are_no_odds() -> None:
    assert set(
        result_of(question(), judgement([call(1), "<final answer>TA=1,VQ=1,MQ=1,OA=1</final answer>"])).odds.values()
    ) == {None}


def test_one_file_twice_is_a_tie_without_a_round() -> None:
    result = result_of(question(), judgement())
    assert (set(result.winners.values()), result.source, result.rounds) == ({0}, "identical", 0)


def test_a_failure_has_no_winners() -> None:
    result = failure_of(question(), NoVerdictError("No verdict."))
    assert (dict(result.winners), dict(result.odds), result.source, result.error) == ({}, {}, "", "No verdict.")
    assert result.failure == "no_verdict"
    assert failure_of(question(), VideoError("a.mp4", "is empty")).failure == "broken_clip"


def test_both_orders_judged_at_once_count_alone() -> None:
    both = result_of(question(), judgement([sure()], [sure()]))
    assert both.disagreements == ("VQ", "MQ", "OA")
    alone = result_of(question(), judgement([sure()]))
    assert alone.disagreements is None
    turned = replace(alone, first=alone.second, second=alone.first)
    [pair] = join_results([turned, both])
    assert pair.overall == both.preferences["OA"].mirrored()
    assert pair.disagreements == both.disagreements
    [pair] = join_results([alone, turned])
    assert (pair.of_both, pair.disagreements, pair.overall and pair.overall.undecided) == (
        None,
        ("VQ", "MQ", "OA"),
        True,
    )


def test_warnings_and_what_was_chosen_for_memory_travel_with_the_result(tmp_path: Path) -> None:
    judged = judgement([sure()], warnings=("The clips differ.", "Video 1: too dark."))
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("r", kind="rank", about={})
        run.add(question(), judged)
        [kept] = run.results()
    assert kept == result_of(question(), judged)
    assert [warning.text for warning in kept.warnings] == list(judged.warnings)
    assert [warning.kind for warning in kept.warnings] == list(judged.warning_kinds)
    assert kept.max_pixels == judged.settings.max_pixels
    assert kept.tool_max_pixels == judged.settings.tool_max_pixels


def test_conditions_count_pixels_and_kinds_of_warnings() -> None:
    made = result_of(question(), judgement([sure()], warnings=("One.", "Two.")))
    [kind] = {warning.kind for warning in made.warnings}
    unknown = replace(made, max_pixels=None, tool_max_pixels=None, warnings=())
    smaller = replace(made, max_pixels=784, kv_type="q8_0")
    failed = failure_of(question(), NoVerdictError("None."))
    alike = conditions_of([made, made, unknown, failed])
    assert alike.comparable
    assert [of.judgements for of in alike.made_with] == [2, 1]
    assert [(of.kind, of.judgements) for of in alike.warnings] == [(kind, 2)]
    mixed = conditions_of([made, made, smaller])
    assert not mixed.comparable
    assert [(of.max_pixels, of.kv_type, of.judgements) for of in mixed.made_with] == [
        (made.max_pixels, "", 2),
        (784, "q8_0", 1),
    ]
