from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.protocol.messages import KEYS, Choice, Odds
from vrt_lite.protocol.tags import Answer, parse
from vrt_lite.protocol.verdict import (
    TIE,
    BothOrders,
    Preference,
    Verdict,
    decide_by_measures,
    describe,
    from_marks,
    headline,
    join,
    join_orders,
    join_with_alignment,
    make_verdict,
    prefer,
    withdraw_contradicted,
    without_alignment,
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


def join_both(first: Verdict, second: Verdict) -> BothOrders:
    both = join_orders(first, second)
    assert both
    return both


def average(first: Verdict, second: Verdict) -> Verdict:
    return join_both(first, second).verdict


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
    assert join_both(biased, biased.mirrored()).disagreements == KEYS


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
    told = [describe(prefer(0, None, 0)), describe(prefer(0)), describe(prefer(2)), describe(None)]
    assert told == ["undecided", "tie", "video 2", "not judged"]


@pytest.mark.parametrize(
    ("preference", "words", "sentence"),
    [
        (prefer(1, (0.05, 0.84, 0.11)), "a.mp4", "a.mp4 is better (0.84)"),
        (prefer(1, (0.15, 0.75, 0.1)), "a.mp4", "a.mp4 is better (0.75)"),
        (prefer(2, (0.2, 0.17, 0.63)), "b.mp4, narrowly", "b.mp4 is narrowly better (0.63)"),
        (prefer(1, (0.1, 0.49, 0.41)), "leans to a.mp4", "Leans to a.mp4 (0.49)"),
        (prefer(1), "a.mp4", "a.mp4 is better"),
        (prefer(0, (0.62, 0.2, 0.18)), "tie", "A tie (0.62)"),
        (prefer(0, (0.03, 0.57, 0.4), 1), "undecided, leans to a.mp4 (0.57)", "Undecided, leans to a.mp4 (0.57)"),
        (prefer(0, None, 0), "undecided", "Undecided"),
    ],
)
def test_the_words_follow_the_probability(preference: Preference, words: str, sentence: str) -> None:
    names = ("a.mp4", "b.mp4")
    assert (describe(preference, names), headline(preference, names)) == (words, sentence)


@given(VERDICTS, VERDICTS, st.sets(st.sampled_from(("TA", "VQ", "MQ"))))
def test_what_was_not_judged_has_no_preference(first: Verdict, second: Verdict, absent: set[str]) -> None:
    def leave_out(verdict: Verdict) -> Verdict:
        return make_verdict({k: p for k, p in verdict.preferences.items() if k not in absent}, "final")

    one, other = leave_out(first), leave_out(second)
    both = join_both(one, other)
    for verdict in (one, one.mirrored(), both.verdict):
        assert set(verdict.not_judged) == absent == set(KEYS) - set(verdict.preferences)
        assert all(verdict.dimensions[key] is None for key in verdict.not_judged)
    assert not absent & set(both.disagreements)
    # What was judged is joined as if the rest were not there; of two orders that differ, what both judged.
    kept = {k: p for k, p in average(first, second).preferences.items() if k not in absent}
    assert both.verdict.preferences == join_both(one, second).verdict.preferences == kept


@given(VERDICTS)
def test_without_alignment_nothing_is_said_of_it(verdict: Verdict) -> None:
    without = without_alignment(verdict)
    assert without.not_judged == ("TA",)
    assert without.preferences["VQ"] == verdict.preferences["VQ"]


@given(VERDICTS, VERDICTS, st.dictionaries(st.sampled_from(KEYS), st.sampled_from((1, 2))))
def test_a_contradicted_winner_is_withdrawn_in_one_order_and_in_both(
    first: Verdict, second: Verdict, measured: dict[str, Choice]
) -> None:
    one, other = (withdraw_contradicted(verdict, measured) for verdict in (first, second))
    both, plain = average(one, other), average(first, second)
    for key, better in measured.items():
        assert one.preferences[key].winner in (0, better)
        assert one.preferences[key].choice == first.preferences[key].choice
        if plain.preferences[key].winner == better:
            assert both.preferences[key] == plain.preferences[key]
        if first.preferences[key].winner == 3 - better == second.preferences[key].winner:
            assert both.preferences[key].winner in (0, better)
    assert join_both(one, other).disagreements == join_both(first, second).disagreements
    assert withdraw_contradicted(one, measured) == one


@given(VERDICTS, VERDICTS)
def test_what_was_measured_decides_where_it_may(written: Verdict, measured: Verdict) -> None:
    numbers = {key: p for key, p in measured.preferences.items() if key != "TA"}
    decided = decide_by_measures(written, numbers, ["VQ", "MQ", "OA"])
    assert decided.preferences["VQ"] == numbers["VQ"]
    assert decided.preferences["TA"] == written.preferences["TA"]
    assert decide_by_measures(written, numbers, []) == written
    assert decide_by_measures(without_alignment(written), numbers, ["OA"]).overall == numbers["OA"]
    mirrored = {key: p.mirrored() for key, p in numbers.items()}
    exchanged = decide_by_measures(written.mirrored(), mirrored, ["VQ", "MQ", "OA"])
    assert exchanged.preferences["MQ"] == decided.preferences["MQ"].mirrored()
    assert exchanged.overall == decided.overall.mirrored()


@pytest.mark.parametrize(
    ("quality", "alignment", "choice", "undecided"),
    [
        (prefer(1, (0.05, 0.9, 0.05)), prefer(0, (0.9, 0.05, 0.05)), 1, False),
        (prefer(0, (0.9, 0.05, 0.05)), prefer(2, (0.05, 0.05, 0.9)), 2, False),
        (prefer(1, (0.05, 0.9, 0.05)), prefer(1, (0.05, 0.9, 0.05)), 1, False),
        (prefer(1, (0.02, 0.96, 0.02)), prefer(2, (0.1, 0.2, 0.7)), 1, False),
        (prefer(1, (0.3, 0.4, 0.3)), prefer(2, (0.1, 0.1, 0.8)), 2, False),
        (prefer(1, (0.1, 0.8, 0.1)), prefer(2, (0.1, 0.1, 0.8)), 0, False),
        (prefer(0, (0.3, 0.4, 0.3), 1), prefer(0), 1, True),
        (prefer(1), prefer(2), 0, False),
    ],
)
def test_quality_and_alignment_weigh_the_same_overall(
    quality: Preference, alignment: Preference, choice: Choice, undecided: bool
) -> None:
    overall = join_with_alignment(quality, alignment)
    assert (overall.choice, overall.undecided) == (choice, undecided)
    assert overall.odds is None or sum(overall.odds) == pytest.approx(1)
    assert join_with_alignment(quality.mirrored(), alignment.mirrored()) == overall.mirrored()


def test_one_order_alone_stands_for_both() -> None:
    only = with_overall(1, (0.1, 0.8, 0.1))
    assert join_orders(only, None) == join_orders(None, only) == BothOrders(only)
    assert join_orders(None, None) is None


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
