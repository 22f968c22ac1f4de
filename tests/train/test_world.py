"""Scenes, labels and scripts of the world: all that is known of a pair before a pixel is drawn. No torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from train.world import GRPO, SAMPLE, TEST, TRAIN, World, case_of, scene
from train.world.defects import MOTION, VISUAL, content_time, flicker_factor, jitter_offset, motion_step
from train.world.grounds import photographs
from train.world.labels import Points, count_mismatches, labels, labels_of, points, points_of
from train.world.script import NAMES, frames_to_call, script
from train.world.values import FIRST, GAPS, WINDOWS, Camera, ClipSpec, Defect, Ground, Looks, Scene, Shot, Stuff
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import UsageError
from vrt_lite.judge import Pair, judge_with
from vrt_lite.profile import default_profile
from vrt_lite.protocol.messages import FrameRef, shown_first

SOME = [scene(TRAIN + seed, hidden=0.5) for seed in range(400)]
STEADY = Shot(0, Ground("clouds", "0"), Camera((0.5, 0.5), 1.0, (0.1, 0.0)))


class NoFrames:
    """A store that nothing may ask: a script looks at no pixels."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        raise AssertionError(f"pixels of {frames} were asked for")


def clip(*defects: Defect, shots: tuple[Shot, ...] = (STEADY,)) -> ClipSpec:
    return ClipSpec(252, 140, 16, 48, shots, defects=defects)


def test_a_seed_is_one_scene_and_no_two_are_alike() -> None:
    assert [scene(seed, hidden=0.5) for seed in range(20)] == SOME[:20]
    drawn = [repr(replace(pair, seed=0)) for pair in SOME]
    assert len(set(drawn)) == len(drawn)
    assert len({repr(pair.clips[number]) for pair in SOME for number in (0, 1)}) > 1.7 * len(SOME)


def test_ranges_share_no_seed_and_tests_have_pictures_of_their_own() -> None:
    starts = [TRAIN, SAMPLE, GRPO, TEST]
    keys = [{case.key for case in World(start, 5)} for start in starts]
    assert len(set.union(*keys)) == 20
    with pytest.raises(UsageError, match="leave their range"):
        World(SAMPLE - 2, 3)
    assert not set(photographs(test=False)) & set(photographs(test=True))
    grounds = [
        {(s.ground.stuff, s.ground.source) for n in range(120) for c in scene(first + n).clips for s in c.shots}
        for first in (SAMPLE, TEST)
    ]
    assert len(grounds[0]) > 50
    assert not grounds[0] & grounds[1]


def test_a_world_is_a_sequence_of_cases() -> None:
    world = World(TRAIN, 6, hidden=0.5)
    assert len(world) == 6
    assert [case.key for case in world] == [f"world:{seed}" for seed in range(6)]
    assert world[-1].labels == labels_of(SOME[5])
    assert [case.key for case in world[1:3]] == ["world:1", "world:2"]
    with pytest.raises(IndexError):
        world[6]
    real = [case_of(scene(TEST))]
    mixed = World(TRAIN, 10, footage=real)
    assert [case.key == real[0].key for case in mixed] == [False] * 4 + [True] + [False] * 4 + [True]


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


def test_clocks_and_shapes_are_as_wide_as_promised() -> None:
    clips = [c for pair in SOME for c in pair.clips]
    assert {min(c.fps for c in clips), max(c.fps for c in clips)} == {8, 60}
    assert min(c.frames for c in clips) >= 48
    assert min(c.seconds for c in clips) < 2
    assert min(c.seconds for c in clips) >= 1
    assert 40 < max(c.seconds for c in clips) <= 60
    ratios = [c.width / c.height for c in clips]
    assert min(ratios) == pytest.approx(9 / 16, abs=0.01)
    assert max(ratios) == pytest.approx(21 / 9, abs=0.01)
    assert all(abs(tick - time) <= 0.5 for c in clips[:50] for tick, time in enumerate(c.ticks))


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


def test_points_of_alignment() -> None:
    looks = Looks("red", "circle", "left")
    assert count_mismatches(looks, looks) == 0
    assert count_mismatches(looks, Looks("blue", "circle", "up")) == 2
    assert count_mismatches(looks, None) == 3
    assert count_mismatches(None, looks) == 0


def test_what_faults_of_motion_do_to_time() -> None:
    held = clip(Defect("stutter", 2, spares=True, seed=1))
    assert [content_time(held, tick) for tick in (14, 15, 16, 17, 18, 19, 20)] == [13, 13, 16, 16, 16, 19, 19]
    assert [motion_step(held, tick) for tick in (20, 21, 22)] == ["still", "jump", "still"]
    turned = clip(Defect("reversal", 3, 20, 28))
    assert [content_time(turned, tick) for tick in (19, 20, 24, 28, 29)] == [19, 28, 24, 20, 29]
    assert motion_step(turned, 23) == "back"
    frozen = clip(Defect("freeze", 2, 20, 28))
    assert [content_time(frozen, tick) for tick in (19, 20, 25, 29)] == [19, 20, 20, 29]
    assert motion_step(frozen, 23) == "still"
    assert motion_step(clip(), 23) == "on"
    thrown = clip(Defect("jitter", 2, spares=True))
    assert jitter_offset(thrown, 16) == (0, 0)
    assert np.hypot(*jitter_offset(thrown, 17)) == pytest.approx(0.07)
    assert flicker_factor(clip(Defect("flicker", 1, 20, 25)), 22) == pytest.approx(1.13)


def replay_rollout(pair: Scene) -> tuple[dict[str, int], tuple[str, ...], int]:
    """The verdict of a script that the judge's own loop plays, each round's outcome, the most frames of a call."""
    durations = (pair.clips[0].seconds, pair.clips[1].seconds)
    trial = judge_with(Pair(pair.caption, durations), default_profile(), ScriptedBackend(script(pair)), NoFrames())
    assert trial.verdict.source == "final"
    asked = [r.shown for r in trial.rounds[1:]]
    assert tuple(asked) == tuple(tuple(replace(frame, called=True) for frame in call) for call in frames_to_call(pair))
    winners = {key: found.winner for key, found in trial.verdict.preferences.items()}
    return winners, tuple(r.outcome for r in trial.rounds), max((len(shown) for shown in asked), default=0)


def test_scripts_replay_to_the_labels() -> None:
    rounds = Counter[int]()
    for pair in SOME[:200]:
        winners, outcomes, most = replay_rollout(pair)
        assert winners == labels_of(pair)
        assert outcomes == ("tool",) * (len(outcomes) - 1) + ("final",)
        assert most <= 8
        assert (len(outcomes) == 1) == pair.still
        rounds[len(outcomes)] += 1
    assert set(rounds) == {1, 2, 3}
    assert rounds[2] > 0.8 * 200


def test_a_script_claims_nothing_that_was_not_shown() -> None:
    for pair in SOME:
        seen = {ref for number in (0, 1) for ref in shown_first(48, 4, number)}
        calls = (*frames_to_call(pair), ())
        for reply, call in zip(script(pair), calls, strict=True):
            for d in {d for number, c in enumerate(pair.clips) for d in c.defects if not _shown(d, number, seen)}:
                same = (o for n, c in enumerate(pair.clips) for o in c.defects if _shown(o, n, seen))
                if NAMES[d.kind] not in {NAMES[o.kind] for o in same}:
                    assert NAMES[d.kind] not in reply.split("<recommend answer>")[0]
            seen |= set(call)


def _shown(defect: Defect, number: int, seen: set[FrameRef]) -> bool:
    return any(ref.clip == number and defect.at(ref.index) for ref in seen)


def test_points_said_are_the_points_counted() -> None:
    for pair in SOME[:50]:
        last = script(pair)[-1]
        a, b = points_of(pair)
        compared, total = last.splitlines()[1], last.split("Sum: ")[1]
        assert [f". TA {counted.ta}.\n" in last for counted in (a, b)] == [True, True]
        differences = {"TA": a.ta - b.ta, "VQ": a.vq - b.vq, "MQ": a.mq - b.mq, "OA": a.total - b.total}
        for key, more in differences.items():
            said = f"{key}={1 if more < 0 else 2} by {abs(more)}" if more else f"{key}=0"
            assert re.search(rf"{said}[,.]", total)
            assert (key in ("TA", "OA")) or re.search(rf"{said}[,:]", compared)


def test_a_script_compares_the_clips_first() -> None:
    def line(a: tuple[Defect, ...], b: tuple[Defect, ...]) -> str:
        scene = Scene(0, "A fox.", None, (clip(*a, shots=()), clip(*b, shots=())), False)
        return script(scene)[0].splitlines()[1]

    assert line((), ()) == "Compare: VQ=0, MQ=0: nothing."
    assert line((Defect("blur", 2),), (Defect("blur", 2),)) == "Compare: VQ=0, MQ=0: nothing."
    # One name, one level.
    assert line((Defect("h264", 2),), (Defect("h265", 2),)) == "Compare: VQ=0, MQ=0: nothing."
    assert line((Defect("blur", 1),), (Defect("blur", 3), Defect("noise", 1))) == (
        "Compare: VQ=1 by 3, MQ=0: blur in video 2, noise in video 2."
    )
    assert line((Defect("blur", 1),), (Defect("noise", 3),)) == (
        "Compare: VQ=1 by 2, MQ=0: noise in video 2, blur in video 1."
    )
    assert line((Defect("flicker", 3),), ()) == "Compare: VQ=0, MQ=2 by 3: flicker in video 1."


def test_a_script_of_clips_that_the_world_did_not_draw() -> None:
    bad = clip(Defect("noise", 2), shots=())
    first, second = script(Scene(0, "A fox.", None, (bad, clip(shots=())), False))
    assert "Video 1: no shape in real footage; clear noise." in first
    assert "<final answer>TA=0, VQ=2, MQ=0, OA=2</final answer>" in second
