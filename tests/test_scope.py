"""What a profile says of its judge: how far its probabilities go, what it sees, and which captions it understands."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_judge import PAIR, NoFrames
from test_show import flat, panel

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import ModelError
from vrt_lite.judge import Trial, judge_with
from vrt_lite.models import find
from vrt_lite.profile import Profile, default_profile, parse_profile
from vrt_lite.protocol.messages import Odds, Reply
from vrt_lite.protocol.verdict import TEMPERATURES, TIE_SUFFIX, choose_temperature, soften
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings, key_of
from vrt_lite.show import verdict_lines

EXAMPLES = Path(__file__).parent.parent / "examples"
TEXT = "<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>"
ONE, TWO, TIED = (0.05, 0.9, 0.05), (0.02, 0.08, 0.9), (0.7, 0.2, 0.1)
SENTENCES = {"sentences": ["[{article}] red circle [moves]"], "article": ["a", "the"]}
SIMPLE = replace(default_profile(), captions=SENTENCES, scope="a judge of circles")


def answer(*odds: Odds, text: str = TEXT) -> Reply:
    return Reply(
        text, odds={text.index(f"{key}=") + 3: share for key, share in zip(("TA", "VQ", "MQ", "OA"), odds, strict=True)}
    )


def trial(caption: str, profile: Profile, reply: Reply) -> tuple[Trial, str]:
    """What comes of a reply, and all words that the judge was shown."""
    backend = ScriptedBackend([reply])
    done = judge_with(replace(PAIR, caption=caption), profile, backend, NoFrames())
    return done, repr(backend.conversations)


@given(st.tuples(*[st.floats(1e-9, 1.0)] * 3), st.floats(0.05, 100))
def test_a_temperature_divides_log_odds_and_keeps_the_order(weights: tuple[float, float, float], value: float) -> None:
    odds = (weights[0] / sum(weights), weights[1] / sum(weights), weights[2] / sum(weights))
    softened = soften(odds, value)
    assert math.isclose(sum(softened), 1)
    assert softened.index(max(softened)) == odds.index(max(odds)) or math.isclose(max(odds), sorted(odds)[1])
    for one, other in ((0, 1), (1, 2)):
        if min(softened) > 1e-12:
            before, after = math.log(odds[one] / odds[other]), math.log(softened[one] / softened[other])
            assert after == pytest.approx(before / value, abs=1e-6)
    assert soften(odds, 1) == odds


def test_a_probability_of_zero_stays_zero() -> None:
    assert soften((0.0, 1.0, 0.0), 3.0) == (0.0, 1.0, 0.0)
    assert soften((0.0, 0.0, 0.0), 3.0) == (0.0, 0.0, 0.0)


def test_temperatures_soften_their_dimension_before_orders_are_averaged() -> None:
    warm = replace(default_profile(), temperatures={"VQ": 2.0, "OA": 0.5})
    plain, _ = trial("a fox", default_profile(), answer(ONE, TWO, TIED, ONE))
    softened, _ = trial("a fox", warm, answer(ONE, TWO, TIED, ONE))
    before, after = plain.verdict.preferences, softened.verdict.preferences
    assert {key: p.winner for key, p in before.items()} == {key: p.winner for key, p in after.items()}
    assert (after["TA"], after["MQ"]) == (before["TA"], before["MQ"])
    assert after["VQ"].odds == soften(TWO, 2.0)
    assert after["OA"].odds == soften(ONE, 0.5)
    replies = [answer(ONE, TWO, TIED, ONE)] * 2
    star, circle = EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4"
    backend = ScriptedBackend(replies)
    with Judge(settings=Settings(both_orders=True), backend=backend, measures=False) as both:
        both.mode.profile = replace(both.mode.profile, temperatures={"TA": 2.0})
        odds = both.compare(star, circle, prompt="A red circle moves up.").verdict.preferences["TA"].odds
    first, second = soften(ONE, 2.0), soften((ONE[0], ONE[2], ONE[1]), 2.0)
    assert odds == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])


def test_a_tie_has_its_own_temperature() -> None:
    warm = replace(default_profile(), temperatures={"VQ": 2.0, "MQ": 2.0, "MQ_tie": 5.0, "VQ_tie": 7.0, "OA_tie": 9.0})
    softened = trial("a fox", warm, answer(ONE, TWO, TIED, ONE))[0].verdict.preferences
    assert softened["VQ"].odds == soften(TWO, 2.0)
    assert (softened["MQ"].winner, softened["MQ"].odds) == (0, soften(TIED, 5.0))
    assert softened["OA"].odds == ONE
    joint = replace(default_profile(), temperatures={"MQ": 2.0})
    assert trial("a fox", joint, answer(ONE, TWO, TIED, ONE))[0].verdict.preferences["MQ"].odds == soften(TIED, 2.0)


def test_a_pair_whose_caption_is_not_understood_has_its_own_temperatures() -> None:
    own = {"VQ": 2.0, "VQ_unread": 3.0, "MQ_tie": 5.0, "MQ_tie_unread": 6.0, "OA": 4.0}
    warm = replace(SIMPLE, temperatures=own)
    for caption, vq, mq in (("a red circle", 2.0, 5.0), ("a fox", 3.0, 6.0), ("", 3.0, 6.0)):
        softened = trial(caption, warm, answer(ONE, TWO, TIED, TWO))[0].verdict.preferences
        assert softened["VQ"].odds == soften(TWO, vq)
        assert softened["MQ"].odds == soften(TIED, mq)
    supported = answer(ONE, ONE, TIED, ONE, text=TEXT.replace("VQ=2", "VQ=1"))
    assert trial("a fox", warm, supported)[0].verdict.overall.odds == soften(ONE, 4.0)  # it has one for all captions
    order = ["VQ_tie_unread", "VQ_unread", "VQ_tie", "VQ"]
    for number, name in enumerate(order):
        rest = {key: 2.0 + place for place, key in enumerate(order)}
        kept = {key: rest[key] for key in order[number:]}
        assert choose_temperature(kept, "VQ", 0, unread=True) == rest[name]


def test_what_a_profile_does_not_state_changes_no_digest() -> None:
    plain, warm = default_profile(), replace(default_profile(), temperatures={"TA": 2.0})
    assert plain.sha256 == "44210aeb0337622d4b6b628000097f07570fb968127fcfd36cce05eb2d6d535d"
    keys = {key_of(Settings(), profile, judge={}) for profile in (plain, warm, SIMPLE)}
    assert len(keys) == 3


def test_a_caption_is_understood_if_it_is_a_sentence_of_the_profile() -> None:
    for caption in ("A red circle moves.", "the RED circle", "red, circle; moves!"):
        assert SIMPLE.understands(caption)
    for caption in ("A red", "A moves red circle", "A the red circle", "Moves", "A red circle moves moves"):
        assert not SIMPLE.understands(caption)
    assert not SIMPLE.understands("A red circle moves in Rome.")
    assert not SIMPLE.understands("")
    assert not SIMPLE.understands("…")
    assert default_profile().understands("")
    bundled = find("vrt-tiny-2").profile
    assert bundled.understands("A blue star moves up.")
    assert not bundled.understands("A fox runs through snow.")
    assert "by measuring" in bundled.scope
    assert set(bundled.temperatures) == {"TA", "TA" + TIE_SUFFIX}  # the others are measured
    assert set(bundled.temperatures) <= TEMPERATURES


def test_a_caption_that_is_not_understood_changes_nothing() -> None:
    told, shown = trial("a fox", SIMPLE, answer(ONE, TWO, TIED, TWO))
    untold, shown_without = trial("", SIMPLE, answer(ONE, TWO, TIED, TWO))
    assert (told.verdict, shown) == (untold.verdict, shown_without)
    assert "fox" not in shown
    assert (told.verdict.not_judged, told.verdict.dimensions["TA"]) == (("TA",), None)
    understood, shown = trial("a red circle", SIMPLE, answer(ONE, TWO, TIED, TWO))
    assert understood.verdict.preferences["TA"].winner == 1
    assert "a red circle" in shown


def test_alignment_that_was_not_judged_never_decides() -> None:
    only_alignment = answer((0.0, 1.0, 0.0), TWO, TIED, ONE)  # video 1 overall, and neither quality says so
    assert trial("a red circle", SIMPLE, only_alignment)[0].verdict.overall.winner == 1
    overall = trial("", SIMPLE, only_alignment)[0].verdict.overall
    assert overall.winner == 2
    assert overall.odds == pytest.approx([(a + b) / 2 for a, b in zip(TWO, TIED, strict=True)])
    assert trial("", SIMPLE, Reply(TEXT))[0].verdict.overall.winner == 0
    supported = answer(ONE, ONE, TIED, ONE, text=TEXT.replace("VQ=2", "VQ=1"))
    assert trial("", SIMPLE, supported)[0].verdict.overall.odds == ONE


def test_the_verdict_says_what_was_not_judged_and_what_the_judge_sees() -> None:
    star, circle = EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4"
    with Judge(backend=ScriptedBackend([answer(ONE, TWO, TIED, TWO)])) as small:
        judgement = small.compare(star, circle, prompt="A fox runs.")
    scope = find("vrt-tiny-2").profile.scope
    plain = judgement.to_json()
    assert (plain["verdict"]["dimensions"]["TA"], plain["scope"]) == (None, scope)
    assert Judgement.from_json(plain).verdict.not_judged == ("TA",)
    assert "alignment_not_judged" in judgement.warning_kinds
    lines = verdict_lines(judgement)
    assert "TA: not judged" in lines
    assert f"judge: vrt-tiny-2, {scope}" in lines
    for width in (40, 60, 80, 120):
        out = flat(panel(judgement, width))
        assert "not judged" in out
        assert "udges technical quality by measuring" in out
    with Judge("vrt-tiny-0", backend=ScriptedBackend([answer(ONE, TWO, TIED, TWO)])) as other:
        plain = other.compare(star, circle, prompt="A fox runs.").to_json()
    assert plain["verdict"]["dimensions"]["TA"]
    assert "scope" not in plain


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("temperatures = { XX = 2.0 }", "temperatures.XX = 2.0"),
        ("temperatures = { TA = 0.0 }", "temperatures.TA = 0.0"),
        ("temperatures = { TA = nan }", "temperatures.TA = nan"),
        ("temperatures = { TA = 'hot' }", "temperatures.TA = 'hot'"),
        ("temperatures = { OA_tie = 101 }", "temperatures.OA_tie = 101"),
        ("temperatures = { XX_tie = 1 }", "temperatures.XX_tie = 1"),
        ("temperatures = { OA_unread_tie = 2 }", "temperatures.OA_unread_tie = 2"),
        ("temperatures = 2.0", "temperatures = 2.0 is not a dict"),
        ("captions = 'a b'", "captions = 'a b' is not a dict"),
        ("captions = { form = ['star'] }", "captions have no sentences"),
        ("captions = { sentences = [] }", "captions.sentences is not a list of texts"),
        ("captions = { sentences = 'a star' }", "captions.sentences is not a list of texts"),
        ("captions = { sentences = ['A star'] }", "captions.sentences is not a list of texts in lower case"),
        ("captions = { sentences = ['a {form}'] }", "'a {form}' is not made of words, listed {roles}"),
        ("captions = { sentences = ['a [star'] }", "'a \\[star' is not made of words"),
        ("captions = { sentences = ['a star.*'] }", "'a star.\\*' is not made of words"),
        ("captions = { sentences = ['{form}'], form = ['a b'] }", "captions.form are not single words"),
        ("refusals = { too_many = 9 }", "refusals.too_many = 9 is not a text"),
        ("refusals = { other = 'no' }", "refusals.other is unknown"),
        ("scope = '''two\nlines'''", "scope is not one line"),
    ],
)
def test_a_bad_value_is_named(text: str, says: str) -> None:
    with pytest.raises(ModelError, match=says.replace(".", r"\.")):
        parse_profile(text, "here")
