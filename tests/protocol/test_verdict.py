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


def join_both(first: Verdict, second: Verdict) -> BothOrders:
    both = join_orders(first, second)
    assert both
    return both


def average(first: Verdict, second: Verdict) -> Verdict:
    return join_both(first, second).verdict


@given(VERDICTS, VERDICTS)
def test_mirroring_is_exact(first: Verdict, second: Verdict) -> None:
    assert first.mirrored().mirrored() == first
    assert average(first, second).mirrored() == average(second.mirrored(), first.mirrored())
    assert join_both(first, first.mirrored()).disagreements == tuple(
        key for key, own in first.preferences.items() if own.winner
    )


@given(VERDICTS, VERDICTS)
def test_two_orders_are_undecided_if_and_only_if_they_name_opposite_winners(first: Verdict, second: Verdict) -> None:
    for key, own in average(first, second).preferences.items():
        one, other = first.preferences[key], second.preferences[key]
        assert own.undecided == ({one.winner, other.winner} == {1, 2})
        assert not own.undecided or own.winner == 0
        if own.leans:
            assert own.odds and own.odds[own.leans] > own.odds[3 - own.leans]
        assert (own.odds is None) == (None in (one.odds, other.odds))


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        # A judge that always prefers the first shown.
        (prefer(1, (0.0, 0.75, 0.25)), prefer(2, (0.0, 0.25, 0.75)), prefer(0, (0.0, 0.5, 0.5), 0)),
        # Undecided orders lean to the surer one, and a tie that is likelier than either changes nothing of that.
        (prefer(1, (0.0, 0.875, 0.125)), prefer(2, (0.0, 0.375, 0.625)), prefer(0, (0.0, 0.625, 0.375), 1)),
        (prefer(1, (0.5, 0.375, 0.125)), prefer(2, (0.5, 0.0, 0.5)), prefer(0, (0.5, 0.1875, 0.3125), 2)),
        # A tie beside a winner is what is likelier.
        (prefer(0, (0.5, 0.5, 0.0)), prefer(1, (0.25, 0.75, 0.0)), prefer(1, (0.375, 0.625, 0.0))),
        (prefer(0, (0.875, 0.125, 0.0)), prefer(1, (0.375, 0.625, 0.0)), prefer(0, (0.625, 0.375, 0.0))),
        # Without probabilities of both orders none are made up.
        (prefer(1), prefer(1, (0.1, 0.8, 0.1)), prefer(1)),
        (prefer(0), prefer(0), prefer(0)),
        (prefer(0), prefer(1, (0.1, 0.8, 0.1)), prefer(0)),
        (prefer(0), prefer(2), prefer(0)),
        (prefer(1), prefer(2), prefer(0, None, 0)),
        (prefer(1), prefer(2, (0.1, 0.2, 0.7)), prefer(0, None, 0)),
    ],
)
def test_two_choices_are_joined(first: Preference, second: Preference, joined: Preference) -> None:
    assert join(first, second) == join(second, first) == joined
    assert join(first.mirrored(), second.mirrored()) == joined.mirrored()


@pytest.mark.parametrize(
    ("preference", "words", "sentence"),
    [
        (prefer(1, (0.15, 0.75, 0.1)), "a.mp4", "a.mp4 is better (0.75)"),
        (prefer(2, (0.2, 0.17, 0.63)), "b.mp4, narrowly", "b.mp4 is narrowly better (0.63)"),
        (prefer(1, (0.1, 0.49, 0.41)), "leans to a.mp4", "Leans to a.mp4 (0.49)"),
        (prefer(1, (0.15, 0.746, 0.104)), "a.mp4", "a.mp4 is better (0.75)"),
        (prefer(2, (0.2, 0.204, 0.596)), "b.mp4, narrowly", "b.mp4 is narrowly better (0.60)"),
        (prefer(1), "a.mp4", "a.mp4 is better"),
        (prefer(0, (0.62, 0.2, 0.18)), "tie", "A tie (0.62)"),
        (prefer(0, (0.03, 0.57, 0.4), 1), "undecided, leans to a.mp4 (0.57)", "Undecided, leans to a.mp4 (0.57)"),
        (prefer(0, None, 0), "undecided", "Undecided"),
    ],
)
def test_the_words_follow_the_probability(preference: Preference, words: str, sentence: str) -> None:
    names = ("a.mp4", "b.mp4")
    assert (describe(preference, names), headline(preference, names)) == (words, sentence)
    assert (describe(prefer(2)), describe(None)) == ("video 2", "not judged")


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
    without = without_alignment(written)
    assert without.not_judged == ("TA",)
    assert decide_by_measures(without, numbers, ["OA"]).overall == numbers["OA"]
    mirrored = {key: p.mirrored() for key, p in numbers.items()}
    exchanged = decide_by_measures(written.mirrored(), mirrored, ["VQ", "MQ", "OA"])
    assert exchanged.preferences["MQ"] == decided.preferences["MQ"].mirrored()
    assert exchanged.overall == decided.overall.mirrored()


@pytest.mark.parametrize(
    ("quality", "alignment", "choice", "undecided"),
    [
        (prefer(1, (0.05, 0.9, 0.05)), prefer(0, (0.9, 0.05, 0.05)), 1, False),
        (prefer(0, (0.9, 0.05, 0.05)), prefer(2, (0.05, 0.05, 0.9)), 2, False),
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


@given(VERDICTS)
def test_one_order_alone_stands_for_both(only: Verdict) -> None:
    assert join_orders(only, None) == join_orders(None, only) == BothOrders(only)
    assert join_orders(None, None) is None


def test_odds_are_those_at_the_digits() -> None:
    parsed = parse("<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>")
    assert isinstance(parsed, Answer)
    verdict = from_marks(parsed.marks, {parsed.marks.offsets["VQ"]: (0.1, 0.2, 0.7)}, "final")
    assert (verdict.preferences["VQ"], verdict.preferences["TA"]) == (prefer(2, (0.1, 0.2, 0.7)), prefer(1))


def test_identical_clips_are_a_certain_tie() -> None:
    assert {preference.winner for preference in TIE.preferences.values()} == {0}
    assert (TIE.source, TIE.mirrored()) == ("identical", TIE)
