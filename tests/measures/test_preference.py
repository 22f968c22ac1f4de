"""The measured preference: exact in both orders, honest about what is not sure, and right about plain drawn faults."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scenes as drawn
from scenes import scenes
from test_all_measures import FAULTS, HARMLESS, measure

from vrt_lite.measures.clip_measures import LOOK, ClipMeasures
from vrt_lite.measures.looks import compare_looks
from vrt_lite.measures.measured_preference import MeasuredPreference, NamedFault
from vrt_lite.measures.networks import Networks, Scale
from vrt_lite.measures.preference import HEADS_FILE, Heads, load_heads, prefer_by_measures
from vrt_lite.measures.trees import Forest, softmax
from vrt_lite.protocol.messages import Choice
from vrt_lite.protocol.report import MEASURED_KEYS

PLAIN = ("blur", "noise", "blocks", "bands", "flicker", "holds", "jitter", "veil", "lost blocks", "boiling", "wobble")
"""Faults that are drawn so strong that no judge may prefer them."""


@cache
def heads() -> Heads:
    return load_heads()


@cache
def measured(scene: str, change: str = "", *, coded: bool = False) -> ClipMeasures:
    """Measure a scene, changed; `coded` before that, as every file is."""
    pictures = drawn.encode_well(scenes()[scene]) if coded else scenes()[scene]
    if change in HARMLESS:
        pictures = HARMLESS[change](pictures)
    elif change:
        pictures = FAULTS[change][0](pictures, FAULTS[change][1])
    return measure(pictures)


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
    rng = np.random.default_rng(0)
    row = rng.normal(0, 1, 2 * len(heads().measures) + 1).astype(np.float32)  # a few more than are read
    for bundled in (*heads().pair_forests.values(), *heads().fault_forests.values(), heads().naming, heads().strength):
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


def test_exchanged_clips_exchange_the_answer() -> None:
    for change in ("", "recoded", "noise", "holds"):
        one, two = measured("shapes"), measured("texture", change)
        given, turned = prefer_by_measures(one, two), prefer_by_measures(two, one)
        assert given.winners == turned.mirrored().winners
        for key in MEASURED_KEYS:
            assert given.odds[key] == turned.mirrored().odds[key]
            assert math.isclose(sum(given.odds[key]), 1)


@pytest.mark.parametrize("scene", ["texture", "sky", "shapes"])
def test_equal_and_harmless_versions_have_no_winner(scene: str) -> None:
    for change in ("", *HARMLESS):
        said = prefer_by_measures(measured(scene, coded=True), measured(scene, change, coded=True))
        assert said.winners["OA"] in (0, None), change
        assert said.same_scene
        assert not said.faults


@pytest.mark.parametrize("change", PLAIN)
def test_a_plain_fault_never_wins(change: str) -> None:
    for scene in ("texture", "sky", "shapes"):
        said = prefer_by_measures(measured(scene), measured(scene, change))
        assert said.winners["OA"] != 2, scene
        assert said.odds["OA"][1] > said.odds["OA"][2], scene


def test_below_the_bound_no_winner_is_named() -> None:
    bounds = np.full((3, 2), 0.7)
    strict = replace(heads(), bounds=bounds)
    assert strict.decide("OA", (0.1, 0.69, 0.21), same_scene=True) is None
    assert strict.decide("OA", (0.1, 0.7, 0.2), same_scene=True) == 1
    assert strict.decide("OA", (0.4, 0.3, 0.3), same_scene=False) == 0
    strict.bounds[MEASURED_KEYS.index("MQ"), 0] = 0.8
    assert strict.decide("MQ", (0.1, 0.15, 0.75), same_scene=False) is None
    assert strict.decide("MQ", (0.1, 0.15, 0.75), same_scene=True) == 2


def test_a_named_fault_is_that_of_the_faulty_clip() -> None:
    sure = replace(heads(), sure=0.0)
    for change, names in (("noise", {"noise", "grain"}), ("holds", {"stutter"})):
        for scene in ("texture", "shapes"):
            clean, faulty = measured(scene), measured(scene, change)
            [fault] = prefer_by_measures(clean, faulty, heads=sure).faults
            assert (fault.video, fault.name in names) == (2, True), (scene, change, fault)
            [turned] = prefer_by_measures(faulty, clean, heads=sure).faults
            assert turned == replace(fault, video=1)


def test_looks_know_a_scene_again() -> None:
    for scene in ("texture", "sky", "shapes"):
        for change in (*HARMLESS, "noise", "blur", "flicker", "veil"):
            assert compare_looks(measured(scene).look, measured(scene, change).look) > heads().same_look, (
                scene,
                change,
            )
    for one, two in (("texture", "sky"), ("sky", "shapes"), ("shapes", "texture")):
        assert compare_looks(measured(one).look, measured(two).look) < heads().same_look
    grey = bytes([128] * math.prod(LOOK))
    assert compare_looks(grey, grey) == 0


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
    doubt = dict.fromkeys(MEASURED_KEYS, (0.2, 0.35, 0.45))
    said = MeasuredPreference(doubt, {"VQ": None, "MQ": None, "OA": None}, True)
    assert {key: of.leans for key, of in said.preferences.items()} == {"VQ": 2, "MQ": 2, "OA": 2}
    named = replace(said, faults=(NamedFault(2, "noise", "strong", 0.9),))
    for side in (named, named.mirrored()):
        assert {key: of.leans for key, of in side.preferences.items()} == {"VQ": 0, "MQ": 0, "OA": 0}


def test_an_undecided_overall_leans_to_the_one_video_that_is_better_in_a_dimension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doubt = dict.fromkeys(MEASURED_KEYS, (0.2, 0.35, 0.45))
    cases: tuple[tuple[Choice, Choice | None, Choice], ...] = ((0, 1, 1), (0, 2, 2), (1, 2, 2), (0, None, 2))
    for quality, motion, leans in cases:
        known = {"VQ": quality, "MQ": motion, "OA": None}
        monkeypatch.setattr(Heads, "odds", lambda *_, **__: dict(doubt))
        monkeypatch.setattr(Heads, "decide", lambda _, key, *__, known=known, **___: known[key])
        said = prefer_by_measures(measured("texture"), measured("sky"))
        assert said.preferences["OA"].leans == leans
        assert said.odds["OA"] == ((0.2, 0.35, 0.45) if leans == 2 else (0.2, 0.45, 0.35))


def test_a_named_fault_is_that_of_the_worse_video() -> None:
    lax = replace(heads(), sure=0.0, bounds=np.zeros((3, 2)))
    clean, noisy = measured("texture"), measure(drawn.add_noise(scenes()["texture"], 24))
    (fault,) = prefer_by_measures(clean, noisy, heads=lax).faults
    (turned,) = prefer_by_measures(noisy, clean, heads=lax).faults
    assert (fault.video, turned.video) == (2, 1)
    assert fault.name == turned.name
    assert fault.name in heads().names
