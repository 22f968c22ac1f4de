"""Scenes of the world: all that is known of a pair before a pixel is drawn. No torch."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from train.tiny.world import TEST, TRAIN, scene
from train.tiny.world.describing import count_mismatches, list_mismatches
from train.tiny.world.grounds import photographs
from train.tiny.world.values import GAPS, Looks, Stuff

SOME = [scene(TRAIN + seed) for seed in range(400)]


def test_ranges_share_no_seed_and_tests_have_pictures_of_their_own() -> None:
    assert not set(photographs(test=False)) & set(photographs(test=True))
    grounds = [
        {(s.ground.stuff, s.ground.source) for n in range(120) for c in scene(first + n).clips for s in c.shots}
        for first in (TRAIN, TEST)
    ]
    assert len(grounds[0]) > 50
    assert not grounds[0] & grounds[1]


def test_everything_promised_is_drawn_and_alignment_is_balanced() -> None:
    assert {shot.ground.stuff for pair in SOME for c in pair.clips for shot in c.shots} == set(get_args(Stuff))
    assert {len(c.shots) for pair in SOME for c in pair.clips} == {1, 2, 3}
    assert any(c.occluder for pair in SOME for c in pair.clips)
    assert any(c.still for pair in SOME for c in pair.clips)
    assert {True, False} == {bool(pair.caption) for pair in SOME}
    assert all(pair.clips[0] != pair.clips[1] for pair in SOME)
    given = Counter(
        _compare(*(count_mismatches(pair.caption_looks, clip.looks) for clip in pair.clips)) for pair in SOME
    )
    assert min(given.values()) > 0.1 * len(SOME), given


def _compare(one: int, two: int) -> int:
    return (one > two) - (one < two)


def test_a_cut_is_early_in_a_gap() -> None:
    cuts = [shot.start for pair in SOME for clip in pair.clips for shot in clip.shots[1:]]
    assert len(cuts) > 50
    assert all(any(first <= cut < first + 5 for first, _ in GAPS) for cut in cuts)


def test_a_caption_that_cannot_be_checked_is_a_tie() -> None:
    unchecked = [pair for pair in SOME if pair.caption_looks is None]
    assert 0.3 < len(unchecked) / len(SOME) < 0.6
    assert all(not count_mismatches(None, clip.looks) for pair in unchecked for clip in pair.clips)
    for pair in SOME:
        looks = pair.caption_looks
        for word in (looks.colour, looks.form, looks.direction) if looks else ():
            assert word in pair.caption.lower()


@pytest.mark.parametrize(
    ("shown", "wrong", "words"),
    [
        (Looks("red", "star", "left"), 0, []),
        (Looks("blue", "star", "left"), 1, ["wrong colour"]),
        (Looks("red", "circle", "up"), 2, ["wrong shape", "wrong direction"]),
        (None, 3, ["no shape"]),
    ],
)
def test_mismatches_are_counted_and_named(shown: Looks | None, wrong: int, words: list[str]) -> None:
    asked = Looks("red", "star", "left")
    assert count_mismatches(asked, shown) == wrong
    assert list_mismatches(asked, shown, held=False) == words
