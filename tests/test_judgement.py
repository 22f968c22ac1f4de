"""The record of a judgement: its JSON, and the schema that is made of its types."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from judgements import FINAL, TIED, TWO, call, check_record, judgement, sure, with_odds

import vrt_lite
from vrt_lite.errors import UsageError
from vrt_lite.measures import compare_values
from vrt_lite.measures.measured_preference import MeasuredPreference
from vrt_lite.protocol.messages import Reply
from vrt_lite.protocol.verdict import MIRROR
from vrt_lite.records.judgement import SCHEMA_VERSION, Judgement, exchange_clips, join_judgements, recompute_warnings
from vrt_lite.schema import make_schema

SCHEMA = Path(vrt_lite.__file__).parent / "schema" / "judgement.schema.json"
BOTH = judgement([call(9, 60), sure()], [sure()], warnings=("Beware.",))


@pytest.mark.parametrize("made", [BOTH, judgement([sure()]), judgement()], ids=["both", "one order", "one file"])
def test_json_and_back_is_the_same_judgement_and_follows_the_schema(made: Judgement) -> None:
    plain = json.loads(json.dumps(made.to_json()))
    check_record(plain)
    assert Judgement.from_json(plain) == made


def test_the_schema_in_the_package_is_the_one_of_the_types() -> None:
    schema = make_schema()
    jsonschema.validators.validator_for(schema).check_schema(schema)
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema, "run: python -m vrt_lite.schema"


def test_what_is_no_judgement_is_refused_in_one_line() -> None:
    plain, deep = BOTH.to_json(), list[Any]()
    for _ in range(100_000):
        deep = [deep]
    for bad in (
        *(None, [], 1, {}, deep),
        {**plain, "prompt": 1},
        {**plain, "orders": plain["orders"] * 2},
        {**plain, "timings": {**plain["timings"], "load": math.nan}},
        {**plain, "timings": {**plain["timings"], "load": math.inf}},
        {**plain, "counters": {**plain["counters"], "tokens_reused": 10**400}},
        {**plain, "verdict": {**plain["verdict"], "overall": {"winner": 0, "undecided": False, "leans": 2}}},
        {**plain, "schema_version": SCHEMA_VERSION - 1},
        {**plain, "warning_kinds": []},
    ):
        with pytest.raises(UsageError, match="no judgement of vrt-lite") as caught:
            Judgement.from_json(bad)
        assert "\n" not in str(caught.value)


def test_exchanging_the_clips_mirrors_everything() -> None:
    exchanged = exchange_clips(BOTH)
    assert exchanged.inputs == BOTH.inputs[::-1]
    assert exchanged.winner == MIRROR[BOTH.winner]
    assert [order.first for order in exchanged.orders] == [2, 1]
    assert exchange_clips(exchanged) == BOTH


def measured(reply: Reply) -> Judgement:
    """A judgement of clips of which the second is measured as stuttering, and is damaged; the first is short."""
    made = judgement([reply], warnings=("Beware.",))
    a, b = made.inputs
    odds, even = (0.02, 0.96, 0.02), (0.9, 0.05, 0.05)
    preference = MeasuredPreference({"VQ": even, "MQ": odds, "OA": even}, {"VQ": 0, "MQ": 1, "OA": 0}, same_scene=True)
    return recompute_warnings(
        replace(
            made,
            inputs=(replace(a, frames=2), replace(b, warnings=("It ends early.",))),
            measures=(compare_values("repeated", (0.0, 46.8)),),
            measured=preference,
        )
    )


def test_warnings_follow_the_clips_and_the_verdict() -> None:
    """The measures contradict the tie of one order, not the winner of the other order or of both."""
    named, tied = measured(sure()), measured(with_odds(FINAL.replace("MQ=1", "MQ=0"), TIED, TWO, TIED, TWO))
    always = ("Beware.", "Video 1 has 2 frame(s): the last was repeated.", "Video 2: It ends early.")
    assert named.warnings == always
    assert tied.warnings[:-1] == always
    assert tied.warnings[-1].startswith("In MQ the judge calls a tie, but video 2 is measured as far more stuttering")

    exchanged = exchange_clips(tied)
    assert exchanged.warnings[1:-1] == ("Video 1: It ends early.", "Video 2 has 2 frame(s): the last was repeated.")
    assert exchanged.warnings[-1].startswith("In MQ the judge calls a tie, but video 1 is measured")

    # Only one of them may have been measured: by an earlier version the other was not.
    bare = replace(tied, measures=None, measured=None)
    for one, other in ((named, bare), (replace(named, measures=None, measured=None), tied)):
        kept = join_judgements(one, replace(other, orders=exchange_clips(other).orders))
        assert (kept.measures, kept.measured) == (named.measures, named.measured)

    joined = join_judgements(named, replace(tied, orders=exchange_clips(tied).orders))
    assert joined.verdict.preferences["MQ"].winner == 1
    assert joined.warnings == always


def test_two_single_orders_join_to_both() -> None:
    joined = join_judgements(*(replace(BOTH, orders=(order,), verdict=order.verdict) for order in BOTH.orders))
    assert (joined.verdict, joined.orders, joined.disagreements) == (BOTH.verdict, BOTH.orders, BOTH.disagreements)
    assert joined.warnings == ("Beware.",)
    assert joined.timings.total == 2 * BOTH.timings.total
