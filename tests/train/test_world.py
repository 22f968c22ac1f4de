"""Scenes and labels of the world: all that is known of a pair before a pixel is drawn. No torch."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from train.tiny.world import TEST, TRAIN, scene
from train.tiny.world.defects import MOTION, VISUAL
from train.tiny.world.grounds import photographs
from train.tiny.world.labels import Points, count_mismatches, labels, labels_of, points
from train.tiny.world.values import FIRST, GAPS, WINDOWS, Defect, Stuff

SOME = [scene(TRAIN + seed, hidden=0.5) for seed in range(400)]


def test_ranges_share_no_seed_and_tests_have_pictures_of_their_own() -> None:
    assert not set(photographs(test=False)) & set(photographs(test=True))
    grounds = [
        {(s.ground.stuff, s.ground.source) for n in range(120) for c in scene(first + n).clips for s in c.shots}
        for first in (TRAIN, TEST)
    ]
    assert len(grounds[0]) > 50
    assert not grounds[0] & grounds[1]


@pytest.mark.parametrize(("asked", "least", "most"), [(0.0, 0.0, 0.0), (0.35, 0.28, 0.42), (1.0, 1.0, 1.0)])
def test_hidden_is_the_share_of_pairs_whose_label_needs_more_frames(asked: float, least: float, most: float) -> None:
    pairs = [scene(seed, hidden=asked) for seed in range(400)]
    assert least <= sum(pair.hidden for pair in pairs) / len(pairs) <= most
    for pair in pairs:
        at_first = (tuple(d for d in c.defects if not d.hidden) for c in pair.clips)
        seen = [
            points(d, count_mismatches(pair.caption_looks, c.looks)) for d, c in zip(at_first, pair.clips, strict=True)
        ]
        assert (labels(*seen) != labels_of(pair)) == pair.hidden


def test_everything_promised_is_drawn_and_answers_are_balanced() -> None:
    kinds = Counter(d.kind for pair in SOME for c in pair.clips for d in c.defects)
    assert set(kinds) == {*VISUAL, *MOTION}
    assert {shot.ground.stuff for pair in SOME for c in pair.clips for shot in c.shots} == set(get_args(Stuff))
    assert {len(c.shots) for pair in SOME for c in pair.clips} == {1, 2, 3}
    assert any(c.occluder for pair in SOME for c in pair.clips)
    assert any(d.region for pair in SOME for c in pair.clips for d in c.defects)
    assert {True, False} == {bool(pair.caption) for pair in SOME}
    for key in ("TA", "VQ", "MQ", "OA"):
        given = Counter(labels_of(pair)[key] for pair in SOME)
        assert min(given.values()) > 0.07 * len(SOME), (key, given)


def test_a_caption_that_cannot_be_checked_is_a_tie() -> None:
    unchecked = [pair for pair in SOME if pair.caption_looks is None]
    assert 0.3 < len(unchecked) / len(SOME) < 0.6
    assert {labels_of(pair)["TA"] for pair in unchecked} == {0}
    for pair in SOME:
        looks = pair.caption_looks
        for word in (looks.colour, looks.form, looks.direction) if looks else ():
            assert word in pair.caption.lower()


def test_a_burst_lies_in_a_gap_that_a_judge_looks_into() -> None:
    bursts = [(c, d) for pair in SOME for c in pair.clips for d in c.defects if d.brief]
    assert len(bursts) > 50
    for c, d in bursts:
        [gap] = [g for g in c.gaps if GAPS[g][0] <= d.first <= d.last <= GAPS[g][1]]
        assert all(d.at(tick) for tick in WINDOWS[gap])
        assert d.hidden
        assert not any(d.at(tick) for tick in FIRST)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Points(), Points(), (0, 0, 0, 0)),
        (Points(vq=2), Points(), (0, 2, 0, 2)),
        (Points(ta=1), Points(vq=2), (2, 1, 0, 0)),  # a wrong subject weighs as a clear fault
        (Points(ta=1), Points(vq=3), (2, 1, 0, 1)),
        (Points(vq=1, mq=3), Points(vq=3), (0, 1, 2, 2)),
        (Points(vq=2, mq=1), Points(vq=1, mq=2), (0, 2, 1, 0)),
        (Points(ta=3), Points(ta=1, vq=3), (2, 1, 0, 2)),
    ],
)
def test_labels_follow_the_points(first: Points, second: Points, expected: tuple[int, ...]) -> None:
    assert tuple(labels(first, second).values()) == expected
    mirrored = {0: 0, 1: 2, 2: 1}
    assert tuple(labels(second, first).values()) == tuple(mirrored[label] for label in expected)


@pytest.mark.parametrize(
    ("defect", "expected"),
    [
        (Defect("blur", 3), Points(vq=3)),
        (Defect("blur", 3, 20, 27), Points(vq=2)),
        (Defect("noise", 3, region=(0, 0, 0.5, 0.5)), Points(vq=2)),
        (Defect("noise", 1, 20, 27), Points(vq=1)),
        (Defect("stutter", 3, 20, 27), Points(mq=3)),
        (Defect("jitter", 1, spares=True), Points(mq=1)),
    ],
)
def test_points_of_a_fault(defect: Defect, expected: Points) -> None:
    assert points((defect,), 0) == expected
