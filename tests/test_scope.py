"""What a profile says of its judge: how far its probabilities go, what it sees, and which captions it understands."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judgements import with_odds
from test_judge import PAIR, NoFrames
from test_show import flat, panel

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import Event, RoundEnded, Wrote
from vrt_lite.judge import Trial, judge_with
from vrt_lite.models import find
from vrt_lite.profile import Profile, default_profile, parse_profile
from vrt_lite.protocol.messages import Reply
from vrt_lite.protocol.verdict import TEMPERATURES, TIE_SUFFIX, choose_temperature, soften
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings, key_of
from vrt_lite.show.pair_words import verdict_lines
from vrt_lite.withholding import observe_without_alignment, withhold_alignment

STAR, CIRCLE = (Path(__file__).parents[1] / "examples" / name for name in ("star.mp4", "circle.mp4"))
TEXT = "<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>"
ONE, TWO, TIED = (0.05, 0.9, 0.05), (0.02, 0.08, 0.9), (0.7, 0.2, 0.1)
SENTENCES = {"sentences": ["[{article}] red circle [moves]"], "article": ["a", "the"]}
SIMPLE = replace(default_profile(), captions=SENTENCES, scope="a judge of circles")


UNALIKE, OTHERWISE = with_odds(TEXT, ONE, TWO, TIED, ONE), with_odds(TEXT, ONE, TWO, TIED, TWO)
SUPPORTED = with_odds(TEXT.replace("VQ=2", "VQ=1"), ONE, ONE, TIED, ONE)
OF_TIES = {"VQ": 2.0, "MQ": 2.0, "MQ_tie": 5.0, "VQ_tie": 7.0, "OA_tie": 9.0}
UNREAD = {"VQ": 2.0, "VQ_unread": 3.0, "MQ_tie": 5.0, "MQ_tie_unread": 6.0, "OA": 4.0}


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
    assert soften((0.0, 1.0, 0.0), value) == (0.0, 1.0, 0.0)
    assert soften((0.0, 0.0, 0.0), value) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("temperatures", "caption", "reply", "expected"),
    [
        ({"VQ": 2.0, "OA": 0.5}, "a fox", UNALIKE, {"TA": 1.0, "VQ": 2.0, "MQ": 1.0, "OA": 0.5}),
        ({"MQ": 2.0}, "a fox", UNALIKE, {"MQ": 2.0}),
        (OF_TIES, "a fox", UNALIKE, {"VQ": 2.0, "MQ": 5.0, "OA": 1.0}),
        (UNREAD, "a red circle", UNALIKE, {"VQ": 2.0, "MQ": 5.0}),
        (UNREAD, "a fox", UNALIKE, {"VQ": 3.0, "MQ": 6.0}),
        (UNREAD, "", UNALIKE, {"VQ": 3.0, "MQ": 6.0}),
        (UNREAD, "a fox", SUPPORTED, {"OA": 4.0}),  # it has one for all captions
    ],
)
def test_temperatures_soften_their_dimension(
    temperatures: dict[str, float], caption: str, reply: Reply, expected: dict[str, float]
) -> None:
    profile = SIMPLE if temperatures is UNREAD else default_profile()
    plain, _ = trial(caption, profile, reply)
    softened, _ = trial(caption, replace(profile, temperatures=temperatures), reply)
    for key, preference in softened.verdict.preferences.items():
        before = plain.verdict.preferences[key]
        assert preference.winner == before.winner
        if key in expected:
            assert before.odds
            assert preference.odds == soften(before.odds, expected[key])


def test_the_first_temperature_that_a_profile_has_is_chosen() -> None:
    order = ["VQ_tie_unread", "VQ_unread", "VQ_tie", "VQ"]
    for number, name in enumerate(order):
        kept = {key: 2.0 + order.index(key) for key in order[number:]}
        assert choose_temperature(kept, "VQ", 0, unread=True) == kept[name]


def test_odds_are_softened_before_orders_are_averaged() -> None:
    backend = ScriptedBackend([UNALIKE] * 2)
    with Judge(settings=Settings(both_orders=True), backend=backend, measures=False) as both:
        both.mode.profile = replace(both.mode.profile, temperatures={"TA": 2.0})
        odds = both.compare(STAR, CIRCLE, prompt="A red circle moves up.").verdict.preferences["TA"].odds
    first, second = soften(ONE, 2.0), soften((ONE[0], ONE[2], ONE[1]), 2.0)
    assert odds == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])


def test_what_a_profile_does_not_state_changes_no_digest() -> None:
    plain, warm = default_profile(), replace(default_profile(), temperatures={"TA": 2.0})
    assert plain.sha256 == "44210aeb0337622d4b6b628000097f07570fb968127fcfd36cce05eb2d6d535d"
    keys = {key_of(Settings(), profile, judge={}) for profile in (plain, warm, SIMPLE)}
    assert len(keys) == 3


def test_a_caption_is_understood_if_it_is_a_sentence_of_the_profile() -> None:
    for caption in ("A red circle moves.", "the RED circle", "red, circle; moves!"):
        assert SIMPLE.understands(caption)
    strange = ("A red", "A moves red circle", "A the red circle", "A red circle moves moves", "A red circle in Rome.")
    for caption in (*strange, "", "…"):
        assert not SIMPLE.understands(caption)
    assert default_profile().understands("")
    bundled = find("vrt-tiny-2").profile
    assert bundled.understands("A blue star moves up.")
    assert not bundled.understands("A fox runs through snow.")
    assert "by measuring" in bundled.scope
    assert set(bundled.temperatures) == {"TA", "TA" + TIE_SUFFIX} < TEMPERATURES  # the others are measured


@pytest.mark.parametrize(("name", "count", "understood"), [("everyday.txt", 200, False), ("own_kind.txt", 50, True)])
def test_the_bundled_judge_reads_captions_of_its_own_kind_alone(name: str, count: int, understood: bool) -> None:
    lines = (Path(__file__).parent / "protocol" / "captions" / name).read_text("utf-8").splitlines()
    captions = {line for line in lines if not line.startswith("#")}
    assert len(captions) >= count
    assert [caption for caption in captions if find().profile.understands(caption) != understood] == []


@pytest.mark.parametrize("word", ["a", "red", "circle", "moves", "the video of", "across the scene"])
def test_a_long_caption_is_read_in_time(word: str) -> None:
    assert not find().profile.understands(f"{word} " * 8000)


def test_a_caption_that_is_not_understood_changes_nothing() -> None:
    told, shown = trial("a fox", SIMPLE, OTHERWISE)
    untold, shown_without = trial("", SIMPLE, OTHERWISE)
    assert (told.verdict, shown) == (untold.verdict, shown_without)
    assert "fox" not in shown
    assert (told.verdict.not_judged, told.verdict.dimensions["TA"]) == (("TA",), None)
    understood, shown = trial("a red circle", SIMPLE, OTHERWISE)
    assert understood.verdict.preferences["TA"].winner == 1
    assert "a red circle" in shown


def test_alignment_that_was_not_judged_never_decides() -> None:
    only_alignment = with_odds(TEXT, (0.0, 1.0, 0.0), TWO, TIED, ONE)  # video 1 overall, and neither quality says so
    assert trial("a red circle", SIMPLE, only_alignment)[0].verdict.overall.winner == 1
    overall = trial("", SIMPLE, only_alignment)[0].verdict.overall
    assert overall.winner == 2
    assert overall.odds == pytest.approx([(a + b) / 2 for a, b in zip(TWO, TIED, strict=True)])
    assert trial("", SIMPLE, Reply(TEXT))[0].verdict.overall.winner == 0
    assert trial("", SIMPLE, SUPPORTED)[0].verdict.overall.odds == ONE


def test_the_verdict_says_what_was_not_judged_and_what_the_judge_sees() -> None:
    with Judge(backend=ScriptedBackend([OTHERWISE])) as small:
        judgement = small.compare(STAR, CIRCLE, prompt="A fox runs.")
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
    with Judge("vrt-tiny-0", backend=ScriptedBackend([OTHERWISE])) as other:
        plain = other.compare(STAR, CIRCLE, prompt="A fox runs.").to_json()
    assert plain["verdict"]["dimensions"]["TA"]
    assert "scope" not in plain


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("temperatures = { TA = 0.0 }", "temperatures.TA = 0.0"),
        ("temperatures = { TA = nan }", "temperatures.TA = nan"),
        ("temperatures = { TA = 'hot' }", "temperatures.TA = 'hot'"),
        ("temperatures = { OA_tie = 101 }", "temperatures.OA_tie = 101"),
        ("temperatures = { OA_unread_tie = 2 }", "temperatures.OA_unread_tie = 2"),
        ("temperatures = 2.0", "temperatures = 2.0 is not a dict"),
        ("captions = 'a b'", "captions = 'a b' is not a dict"),
        ("captions = { form = ['star'] }", "captions have no sentences"),
        ("captions = { sentences = 'a star' }", "captions.sentences is not a list of texts"),
        ("captions = { sentences = ['A star'] }", "captions.sentences is not a list of texts in lower case"),
        ("captions = { sentences = ['a {form}'] }", "'a {form}' is not made of words, listed {roles}"),
        ("captions = { sentences = ['a [star'] }", "'a \\[star' is not made of words"),
        ("captions = { sentences = ['{form}'], form = ['a b'] }", "captions.form are not single words"),
        ("refusals = { too_many = 9 }", "refusals.too_many = 9 is not a text"),
        ("refusals = { other = 'no' }", "refusals.other is unknown"),
        ("scope = '''two\nlines'''", "scope is not one line"),
    ],
)
def test_a_bad_value_is_named(text: str, says: str) -> None:
    with pytest.raises(ModelError, match=says.replace(".", r"\.")):
        parse_profile(text, "here")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Sum: TA=2 by 3, VQ=1 by 2.", "Sum: TA not judged, VQ=1 by 2."),
        ("clear blur. TA 0.\nTA : 1", "clear blur. TA not judged.\nTA not judged"),
        ("DATA 5, VTA=1, TAB 1, TA is", "DATA 5, VTA=1, TAB 1, TA is"),
    ],
)
def test_only_values_of_alignment_are_withheld(text: str, shown: str) -> None:
    assert withhold_alignment(text) == shown


PARTS = ("TA", "T", "A", "X", "=", ":", " ", "\t", "\n", "0", "12", " by ", "b", ",", "VQ=1", "DATA 5", "é")


@given(st.lists(st.sampled_from(PARTS)).map("".join), st.lists(st.integers(0, 60)))
def test_values_are_withheld_wherever_the_pieces_of_a_text_end(text: str, cuts: list[int]) -> None:
    told: list[Event] = []
    observe = observe_without_alignment(told.append)
    places = [0, *sorted(cuts), len(text)]
    for start, end in pairwise(places):
        observe(Wrote(text[start:end]))
        assert not re.search(r"\bTA[ \t]*[=:]?[ \t]*\d", "".join(e.text for e in told if isinstance(e, Wrote)))
    assert all(event.text for event in told if isinstance(event, Wrote))
    ended = RoundEnded(0, 1, "final")
    observe(ended)
    assert told[-1] is ended
    assert "".join(event.text for event in told if isinstance(event, Wrote)) == withhold_alignment(text)
