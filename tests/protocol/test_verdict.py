from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.protocol.messages import KEYS, Choice, Odds
from vrt_lite.protocol.tags import Answer, parse
from vrt_lite.protocol.verdict import (
    TIE,
    Verdict,
    average,
    describe,
    disagreements,
    from_marks,
    join,
    make_verdict,
    prefer,
)

WEIGHTS = st.tuples(*[st.floats(0.001, 1.0)] * 3)


def as_odds(weights: tuple[float, ...]) -> Odds:
    total = sum(weights)
    return (weights[0] / total, weights[1] / total, weights[2] / total)


PREFERENCES = st.builds(prefer, st.sampled_from((0, 1, 2)), st.none() | WEIGHTS.map(as_odds))
VERDICTS = st.lists(PREFERENCES, min_size=4, max_size=4).map(
    lambda found: make_verdict(dict(zip(KEYS, found, strict=True)), "final")
)


def with_overall(winner: Choice, odds: Odds | None) -> Verdict:
    return make_verdict({key: prefer(winner, odds) for key in KEYS}, "final")


@given(VERDICTS)
def test_mirroring_twice_is_nothing(verdict: Verdict) -> None:
    assert verdict.mirrored().mirrored() == verdict


@given(VERDICTS, VERDICTS)
def test_averaging_mirrors_exactly(first: Verdict, second: Verdict) -> None:
    straight = average(first, second)
    exchanged = average(second.mirrored(), first.mirrored())
    assert straight.mirrored() == exchanged


@given(VERDICTS, VERDICTS)
def test_two_orders_are_undecided_if_and_only_if_they_name_opposite_winners(first: Verdict, second: Verdict) -> None:
    both = average(first, second)
    for key, own in both.preferences.items():
        named = {first.preferences[key].winner, second.preferences[key].winner}
        assert own.undecided == (named == {1, 2})
        assert not own.undecided or own.winner == 0
        if own.leans:
            assert own.odds and own.odds[own.leans] > own.odds[3 - own.leans]
        assert (own.odds is None) == (None in (first.preferences[key].odds, second.preferences[key].odds))


def test_a_judge_that_always_prefers_the_first_shown_is_undecided() -> None:
    biased = with_overall(1, (0.02, 0.9, 0.08))
    both = average(biased, biased.mirrored())
    assert (both.overall.winner, both.overall.leans) == (0, 0)
    assert disagreements(biased, biased.mirrored()) == KEYS


def test_undecided_orders_lean_to_the_surer_one() -> None:
    both = average(with_overall(1, (0.0, 0.95, 0.05)), with_overall(2, (0.0, 0.45, 0.55)))
    assert (both.overall.winner, both.overall.leans) == (0, 1)
    assert both.overall.odds == (0.0, (0.95 + 0.45) / 2, (0.05 + 0.55) / 2)
    assert both.mirrored().overall.leans == 2
    # A tie that is likelier than either winner changes nothing of that.
    assert join(prefer(1, (0.45, 0.5, 0.05)), prefer(2, (0.48, 0.03, 0.49))).leans == 2


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        ((0, (0.5, 0.45, 0.05)), (1, (0.1, 0.8, 0.1)), 1),
        ((0, (0.9, 0.05, 0.05)), (1, (0.4, 0.5, 0.1)), 0),
        ((0, None), (0, None), 0),
        ((1, None), (1, (0.1, 0.8, 0.1)), 1),
        ((2, None), (2, None), 2),
        ((0, None), (1, (0.1, 0.8, 0.1)), 0),
        ((0, None), (2, None), 0),
    ],
)
def test_a_tie_beside_a_winner_is_what_is_likelier(
    first: tuple[Choice, Odds | None], second: tuple[Choice, Odds | None], winner: Choice
) -> None:
    one, other = prefer(*first), prefer(*second)
    assert join(one, other) == join(other, one)
    assert (join(one, other).winner, join(one, other).undecided) == (winner, False)


@pytest.mark.parametrize("odds", [None, (0.1, 0.2, 0.7), (0.0, 0.0, 0.0)])
def test_without_probabilities_of_both_orders_none_are_made_up(odds: Odds | None) -> None:
    assert join(prefer(1), prefer(2, odds)) == prefer(0, None, 0)


def test_a_choice_in_words() -> None:
    leaning = prefer(0, (0.03, 0.57, 0.4), 1)
    assert describe(leaning) == "undecided, leans to video 1 (0.57)"
    assert describe(leaning.mirrored(), ("a.mp4", "b.mp4")) == "undecided, leans to b.mp4 (0.57)"
    told = [describe(prefer(0, None, 0)), describe(prefer(0)), describe(prefer(2))]
    assert told == ["undecided", "tie", "video 2"]


def test_odds_are_those_at_the_digits() -> None:
    parsed = parse("<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>")
    assert isinstance(parsed, Answer)
    offset = parsed.marks.offsets["VQ"]
    verdict = from_marks(parsed.marks, {offset: (0.1, 0.2, 0.7)}, "final")
    assert verdict.preferences["VQ"] == prefer(2, (0.1, 0.2, 0.7))
    assert verdict.preferences["TA"] == prefer(1, None)


def test_identical_clips_are_a_certain_tie() -> None:
    assert {p.winner for p in TIE.preferences.values()} == {0}
    assert TIE.source == "identical"
    assert TIE.mirrored() == TIE
