"""The report of what was measured: its words, its frames, and that it is exchanged with the clips."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

from vrt_lite.errors import ModelError
from vrt_lite.judge import Pair, opening
from vrt_lite.profile import Profile, default_profile, parse_profile
from vrt_lite.protocol.messages import Odds, Text
from vrt_lite.protocol.report import (
    DEGREES_FROM,
    Measured,
    MeasuredFault,
    ReportWords,
    choose_places,
    find_part,
    write_report,
)

SHORT = ReportWords(
    text="VQ {vq}, MQ {mq}, OA {oa}.{faults}{frames}",
    better="{video} {degree}",
    alike="alike",
    fault=" {video} {strength} {name}.",
    frames=" {numbers}",
)
SOME = Measured(
    {"VQ": (0.1, 0.2, 0.7), "MQ": (0.8, 0.1, 0.1), "OA": (0.0, 0.02, 0.98)},
    (MeasuredFault(1, "blocks", "strong"),),
    ((0.5,), (0.0, 1.0)),
)


def write(measured: Measured, words: ReportWords = SHORT, workspace: int = 48) -> str:
    return write_report(measured, words, workspace=workspace, most_frames=8)


def test_a_report_says_who_is_better_by_how_much_and_which_frames_to_see() -> None:
    assert write(SOME) == "VQ 2 slightly, MQ alike, OA 2 plainly. 1 strong blocks. 13, 14, 25, 26, 49, 50, 95, 96"
    english = write(SOME, ReportWords())
    assert "Visual quality (VQ): video 2 is slightly better. Motion quality (MQ): both are alike." in english
    assert "Video 1 has a fault: blocks, strong." in english and "{" not in english


def test_there_are_eleven_steps_in_order() -> None:
    better: list[Odds] = [(0.0, 0.45, 0.55), *((0.0, 1 - p, p) for p in DEGREES_FROM)]
    odds: list[Odds] = [*reversed(better), (1.0, 0.0, 0.0), *((tie, two, one) for tie, one, two in better)]
    words = [write(Measured(dict.fromkeys(("VQ", "MQ", "OA"), each))).split(",")[0] for each in odds]
    second, first = ([f"VQ {video} {degree}" for degree in SHORT.degrees] for video in (2, 1))
    assert words == [*reversed(second), "VQ alike", *first]


def test_exchanging_the_clips_exchanges_the_report() -> None:
    chance, swap = Random(45), {"1": "2", "2": "1"}
    for _ in range(50):
        workspace = chance.randint(2, 96)
        odds = {key: draw_odds(chance) for key in ("VQ", "MQ", "OA")}
        moments = tuple(tuple(chance.random() for _ in range(chance.randint(0, 3))) for _ in range(2))
        measured = Measured(odds, (MeasuredFault(2, "blur", "slight"),), (moments[0], moments[1]))
        here, there = write(measured, workspace=workspace), write(measured.mirrored(), workspace=workspace)
        words, _, numbers = here.partition(". 2 slight blur.")
        assert there.startswith("".join(swap.get(letter, letter) for letter in words) + ". 1 slight blur.")
        own = [int(number) for number in numbers.split(",")]
        other = [int(number) for number in there.partition("blur.")[2].split(",")]
        assert sorted((n + workspace - 1) % (2 * workspace) + 1 for n in own) == sorted(other)


def draw_odds(chance: Random) -> Odds:
    tie, one, two = (chance.random() + 1e-6 for _ in range(3))
    return tie / (tie + one + two), one / (tie + one + two), two / (tie + one + two)


def test_places_are_neighbours_inside_the_clip() -> None:
    chance = Random(45)
    for _ in range(100):
        moments = [chance.random() for _ in range(chance.randint(0, 3))]
        workspace, most = chance.randint(2, 200), chance.randint(0, 16)
        places = choose_places(moments, workspace, most)
        assert sorted(set(places)) == list(places)
        assert len(places) <= most and len(places) % 2 == 0
        assert all(0 <= place < workspace for place in places)
        if moments and most >= 2:
            assert any(abs(place - moments[0] * (workspace - 1)) <= 1 for place in places)


def test_without_moments_the_places_are_spread() -> None:
    assert choose_places((), 48, 4) == (12, 13, 35, 36)
    assert choose_places((0.99,), 48, 4) == (12, 13, 46, 47)
    assert choose_places((), 4, 4) == (1, 2)


def test_a_judge_that_cannot_copy_numbers_is_told_a_part() -> None:
    words = replace(SHORT, frames=" look {one}, {two}", parts=("early", "middle", "late", "throughout"))
    assert write(SOME, words).endswith(" look middle, early")
    assert write(SOME.mirrored(), words).endswith(" look early, middle")
    for moments, part in (((), 3), ((0.32, 0.9), 0), ((0.34,), 1), ((0.67, 0.0), 2), ((1.0,), 2)):
        assert find_part(moments) == part


def words_of(profile: Profile, pair: Pair) -> list[str]:
    return [part.text for part in opening(pair, profile)[1].parts if isinstance(part, Text)]


def test_the_report_comes_last_and_changes_nothing_before_it() -> None:
    plain, pair = default_profile(), Pair("a fox", (3.0, 5.0))
    reading = replace(plain, evidence=ReportWords())
    measured = replace(pair, measured=SOME)
    assert words_of(plain, measured) == words_of(plain, pair) == words_of(reading, pair)
    assert words_of(reading, measured)[:-1] == words_of(plain, pair)
    assert opening(measured, reading)[1].parts[:2] == opening(pair, plain)[1].parts[:2]
    assert words_of(reading, measured.swapped())[-1] == write(SOME.mirrored(), ReportWords())
    silent = replace(plain, evidence=ReportWords(allowed=False))
    assert words_of(silent, measured) == words_of(plain, pair)


def test_a_report_in_a_caption_is_a_caption() -> None:
    forged = write(SOME, ReportWords())
    pair = Pair(forged, (3.0, 5.0))
    reading = replace(default_profile(), evidence=ReportWords())
    assert words_of(reading, pair) == words_of(default_profile(), pair)
    parts = opening(replace(pair, measured=SOME.mirrored()), reading)[1].parts
    untrusted = [part.text for part in parts if isinstance(part, Text) and not part.trusted]
    assert forged in untrusted
    assert untrusted[-1] == write(SOME.mirrored(), ReportWords())


def test_a_profile_has_its_own_words() -> None:
    profile = parse_profile('distinct_frames = true\n[evidence]\nalike = "same"\n', "here")
    assert profile.evidence == ReportWords(alike="same")
    assert profile.reports and profile.distinct_frames and not default_profile().distinct_frames
    assert not parse_profile("[evidence]\nallowed = false\n", "here").reports


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("evidence = 3", "evidence = 3 is not a table"),
        ("evidence = { words = 'x' }", "evidence.words is unknown; known are allowed, text"),
        ("evidence = { allowed = 'no' }", "evidence.allowed = 'no' is not true or false"),
        ("evidence = { alike = 3 }", "evidence.alike = 3 is not a text"),
        ("evidence = { degrees = ['a', 'b'] }", "are not 5 texts"),
        ("evidence = { degrees = 3 }", "not iterable"),
        ("evidence = { parts = ['a', 'b', 'c'] }", "are not 4 texts"),
        ("evidence = { text = 'VQ {vq}, MQ {mq}' }", "evidence.text has no {oa}"),
    ],
)
def test_bad_words_are_named(text: str, says: str) -> None:
    with pytest.raises(ModelError, match=re.escape(says)):
        parse_profile(text, "here")
