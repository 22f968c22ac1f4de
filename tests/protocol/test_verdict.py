from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import KEYS, Answer, Choice, parse
from vrt_lite.protocol.verdict import TIE, Preference, Verdict, average, disagreements, from_marks

WEIGHTS = st.tuples(*[st.floats(0.001, 1.0)] * 3)


def as_odds(weights: tuple[float, ...]) -> Odds:
    total = sum(weights)
    return (weights[0] / total, weights[1] / total, weights[2] / total)


PREFERENCES = st.builds(Preference, st.sampled_from((0, 1, 2)), st.none() | WEIGHTS.map(as_odds))
VERDICTS = st.lists(PREFERENCES, min_size=4, max_size=4).map(
    lambda found: Verdict(dict(zip(KEYS, found, strict=True)), "final")
)


def with_overall(winner: Choice, odds: Odds | None) -> Verdict:
    return Verdict({key: Preference(winner, odds) for key in KEYS}, "final")


@given(VERDICTS)
def test_mirroring_twice_is_nothing(verdict: Verdict) -> None:
    assert verdict.mirrored().mirrored() == verdict


@given(VERDICTS, VERDICTS)
def test_averaging_mirrors_exactly(first: Verdict, second: Verdict) -> None:
    straight = average(first, second)
    exchanged = average(second.mirrored(), first.mirrored())
    assert straight.mirrored() == exchanged


def test_a_judge_that_always_prefers_the_first_shown_gets_a_tie() -> None:
    biased = with_overall(1, (0.02, 0.9, 0.08))
    both = average(biased, biased.mirrored())
    assert both.overall.winner == 0
    assert disagreements(biased, biased.mirrored()) == KEYS


def test_the_surer_order_decides() -> None:
    both = average(with_overall(1, (0.0, 0.95, 0.05)), with_overall(2, (0.0, 0.45, 0.55)))
    assert both.overall.winner == 1
    assert both.overall.odds == (0.0, (0.95 + 0.45) / 2, (0.05 + 0.55) / 2)


def test_odds_are_those_at_the_digits() -> None:
    parsed = parse("<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>")
    assert isinstance(parsed, Answer)
    offset = parsed.marks.offsets["VQ"]
    verdict = from_marks(parsed.marks, {offset: (0.1, 0.2, 0.7)}, "final")
    assert verdict.preferences["VQ"] == Preference(2, (0.1, 0.2, 0.7))
    assert verdict.preferences["TA"] == Preference(1, None)


def test_identical_clips_are_a_certain_tie() -> None:
    assert {p.winner for p in TIE.preferences.values()} == {0}
    assert TIE.source == "identical"
    assert TIE.mirrored() == TIE
