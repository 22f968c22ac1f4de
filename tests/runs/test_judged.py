"""What is asked, by content, and the light columns of what came of it."""

from __future__ import annotations

from judgements import judgement, sure
from made import question
from msgspec.structs import replace

from vrt_lite.errors import NoVerdictError
from vrt_lite.records.conditions import conditions_of
from vrt_lite.records.pairs import failure_of, join_results, result_of


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
