"""A clip's worst moments; what the parts of the measured preference compute, and who is better by them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.measures.clip_measures import LOOK, ClipMeasures
from vrt_lite.measures.definitions import DEFINITIONS
from vrt_lite.measures.measured_preference import MeasuredPreference, NamedFault
from vrt_lite.measures.moments import MOST_MOMENTS, FindingMoments
from vrt_lite.measures.networks import Networks, Scale
from vrt_lite.measures.preference import HEADS_FILE, Heads, load_heads, prefer_by_measures
from vrt_lite.measures.trees import Forest, softmax
from vrt_lite.protocol.messages import Choice, Odds
from vrt_lite.protocol.report import MEASURED_KEYS, MeasuredKey

DOUBT: dict[MeasuredKey, Odds] = dict.fromkeys(MEASURED_KEYS, (0.2, 0.35, 0.45))


def walk(forest: Forest, row: list[float]) -> list[float]:
    """The same trees, one node after the other."""
    sums = [0.0] * forest.classes
    for tree, root in enumerate(forest.root.tolist()):
        at = root
        while forest.right[at]:
            at += 1 if row[forest.feature[at]] <= forest.value[at] else int(forest.right[at])
        sums[tree % forest.classes] += float(forest.value[at])
    return sums


def test_trees_are_walked_as_they_are_written() -> None:
    forest = Forest(
        feature=np.array([1, 0, 0, 0, 0, 0, 0, 0], np.uint8),
        right=np.array([4, 2, 0, 0, 0, 2, 0, 0], np.uint8),
        value=np.array([0.5, -1, 10, 20, 30, 2, 1, 2], np.float32),
        root=np.array([0, 5], np.int32),
        classes=2,
    )
    rows = np.array([[-1, 0.5], [0, 0.5], [3, 0.6]], np.float32)
    assert forest.scores(rows).tolist() == [[10, 1], [20, 1], [30, 2]]
    heads = load_heads()
    row = np.random.default_rng(0).normal(0, 1, 2 * len(heads.measures) + 1).astype(np.float32)  # some are not read
    for bundled in (*heads.pair_forests.values(), *heads.fault_forests.values(), heads.naming, heads.strength):
        assert bundled.scores(row[None])[0] == pytest.approx(walk(bundled, row.tolist()), abs=1e-4)


def test_networks_answer_as_a_sum_by_hand_does() -> None:
    first = np.array([[[1.0, -2], [0.5, 3]], [[0, 1], [1, 0]]]), np.array([[0.1, 0.2], [0, -1]])
    second = np.array([[[2.0], [-1]], [[1], [4]]]), np.array([[0.5], [0]])
    rows = [[0.3, -0.7], [2.0, 1.0]]
    by_hand: list[float] = []
    for row in rows:
        answers = 0.0
        for network in range(2):
            inner = [sum(row[i] * first[0][network, i, o] for i in range(2)) + first[1][network, o] for o in range(2)]
            active = [value / (1 + math.exp(-value)) for value in inner]
            answers += sum(active[i] * second[0][network, i, 0] for i in range(2)) + second[1][network, 0]
        by_hand.append(answers / 2)
    networks = Networks((first, second))
    assert networks.scores(np.array(rows))[:, 0] == pytest.approx(by_hand)
    assert networks.scores(np.array(rows[1:]))[0] == networks.scores(np.array(rows))[1]


def test_a_scale_places_by_rank_and_leaves_out_what_is_no_merit() -> None:
    scale = Scale(np.array([[0.0, 0], [10, 1], [100, 2]]), np.array([2.0, np.inf]))
    vectors = np.array([[-5, 0], [5, 1], [10, 1.5], [55, 2], [1e9, 9]], np.float32)
    assert scale.place(vectors).tolist() == [[-1, -1], [-0.5, 0], [0, 0.5], [0.5, 1], [1, 1]]
    one, two = vectors[1:2], vectors[2:3]
    [[there, turned]], [[back, _]] = scale.compare(one, two), scale.compare(two, one)
    assert np.array_equal(turned, back)
    assert there.tolist() == pytest.approx([math.tanh(5 / 6), 0, math.tanh(5 / 24), 0, 2, 0, -0.25, 0.25])
    assert (there[:6].tolist(), there[6:].tolist()) == ((-back[:6]).tolist(), back[6:].tolist())


@pytest.mark.parametrize(
    ("key", "odds", "same_scene", "winner"),
    [
        ("OA", (0.02, 0.68, 0.3), True, None),
        ("OA", (0.0, 0.7, 0.3), True, 1),
        ("OA", (0.4, 0.45, 0.15), True, 1),
        ("OA", (0.4, 0.3, 0.3), False, 0),
        ("MQ", (0.1, 0.19, 0.71), False, None),
        ("MQ", (0.1, 0.19, 0.71), True, 2),
    ],
)
def test_below_the_bound_no_winner_is_named(
    key: MeasuredKey, odds: Odds, same_scene: bool, winner: Choice | None
) -> None:
    """A bound is a share of what both winners have together: a tie takes nothing from the lead."""
    bounds = np.full((3, 2), 0.7)
    bounds[MEASURED_KEYS.index("MQ"), 0] = 0.8
    assert replace(load_heads(), bounds=bounds).decide(key, odds, same_scene=same_scene) == winner


def test_files_that_are_no_heads_are_refused(tmp_path: Path) -> None:
    with np.load(HEADS_FILE) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["measures"] = np.array([*arrays["measures"][:-1], "charm"])
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match=r"other\.npz needs measures that are unknown: charm"):
        load_heads(tmp_path / "other.npz")
    assert HEADS_FILE.stat().st_size < 2_500_000


def test_probabilities_are_those_of_softmax() -> None:
    assert softmax(np.array([[0.0, np.log(3)], [700, 700]])).tolist() == [pytest.approx([0.25, 0.75]), [0.5, 0.5]]


def test_an_undecided_dimension_leans_to_no_video_whose_fault_is_named() -> None:
    said = MeasuredPreference(DOUBT, {"VQ": None, "MQ": None, "OA": None}, True)
    assert {preference.leans for preference in said.preferences.values()} == {2}
    named = replace(said, faults=(NamedFault(2, "noise", "strong", 0.9),))
    for side in (named, named.mirrored()):
        assert {preference.leans for preference in side.preferences.values()} == {0}


@pytest.mark.parametrize(("quality", "motion", "leans"), [(0, 1, 1), (0, 2, 2), (1, 2, 2), (0, None, 2)])
def test_an_undecided_overall_leans_to_the_one_video_that_is_better_in_a_dimension(
    monkeypatch: pytest.MonkeyPatch, quality: Choice, motion: Choice | None, leans: Choice
) -> None:
    known = {"VQ": quality, "MQ": motion, "OA": None}
    monkeypatch.setattr(Heads, "odds", lambda *_, **__: dict(DOUBT))
    monkeypatch.setattr(Heads, "decide", lambda _, key, *__, **___: known[key])
    some = ClipMeasures(dict.fromkeys(DEFINITIONS, 0.5), 1, 1, bytes(math.prod(LOOK)))
    said = prefer_by_measures(some, some)
    assert said.preferences["OA"].leans == leans
    assert said.odds["OA"] == ((0.2, 0.35, 0.45) if leans == 2 else (0.2, 0.45, 0.35))


FRAMES = 60
Pictures = NDArray[np.float32]


def panned() -> Pictures:
    ground = np.random.default_rng(5).uniform(0, 255, (60, 60 + 2 * FRAMES)).astype(np.float32)
    ground = (ground[:, 2:] + ground[:, 1:-1] + ground[:, :-2]) / 3
    return np.stack([ground[:, frame : frame + 100 - FRAMES // 2] for frame in range(FRAMES)])


def blur(pictures: Pictures) -> Pictures:
    blurred = sum(np.roll(pictures, by, axis=2) for by in range(-4, 5)) / 9
    return np.concatenate([pictures[:20], blurred[20:30], pictures[30:]])


def flash(pictures: Pictures, lights: dict[int, float]) -> Pictures:
    return pictures + np.array([lights.get(frame, 0) for frame in range(FRAMES)], np.float32)[:, None, None]


def find(pictures: Pictures) -> tuple[float, ...]:
    finding = FindingMoments(len(pictures))
    finding.add(range(len(pictures)), pictures)
    return finding.worst()


@pytest.mark.parametrize(
    "spoiled", [panned()[np.r_[0:20, [19] * 10, 30:FRAMES]], blur(panned()), flash(panned(), {25: 60})]
)
def test_a_short_fault_is_a_moment(spoiled: Pictures) -> None:
    moments = find(spoiled)
    assert 1 <= len(moments) <= MOST_MOMENTS
    assert 19 / 59 <= moments[0] <= 31 / 59


def test_an_even_clip_has_none() -> None:
    assert find(panned()) == ()
    assert find(np.full((30, 20, 30), 90, np.float32)) == ()
    assert find(panned()[:2]) == ()


def test_moments_are_apart_and_the_worst_is_first() -> None:
    moments = find(flash(panned(), {5: 30, 20: 90, 22: 80, 40: 40, 50: 20}))
    assert len(moments) == MOST_MOMENTS
    assert abs(moments[0] - 20 / 59) < 0.02
    assert min(abs(a - b) for a in moments for b in moments if a != b) >= 1 / 8
