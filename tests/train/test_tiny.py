"""The factory of the measured preference: its faults, scenes and pairs are known, and made twice they are equal."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("lightgbm")

from train.tiny import fit_networks as networks_module
from train.tiny import heads as heads_module
from train.tiny.drawn_pairs import Vectors, draw_pairs, labels
from train.tiny.encoders import BAD, GOOD, decode, encode
from train.tiny.fault_kinds import FAULTS, WITHHELD
from train.tiny.filming import Filmed, Spec, _load_worlds, _part_of
from train.tiny.fit_networks import fit_clips, fit_pairs
from train.tiny.footage.survey import SurveyedClip
from train.tiny.graphics import draw_picture
from train.tiny.heads import fit
from train.tiny.making import Specimen
from train.tiny.specimens import HARMLESS, Plan, make, plan
from train.tiny.spoiled_pictures import Frames
from train.tiny.world import scene
from vrt_lite.measures.clip_measures import ClipMeasures
from vrt_lite.measures.definitions import DEFINITIONS
from vrt_lite.measures.networks import read_networks
from vrt_lite.measures.preference import describe_pairs, load_heads, prefer_by_measures, vector_of


@cache
def frames() -> tuple[NDArray[np.uint8], ...]:
    """A pan over a coloured texture, 24 frames of 192x108."""
    rng = np.random.default_rng(0)
    coarse = np.kron(rng.integers(20, 236, (20, 30, 3)), np.ones((8, 8, 1)))
    fine = coarse + rng.normal(0, 12, coarse.shape)
    wide = fine.clip(0, 255).astype(np.uint8)
    return tuple(wide[20 : 20 + 108, t : t + 192] for t in range(24))


def difference(one: Frames, two: Frames) -> float:
    return float(np.mean([np.abs(a.astype(int) - b).mean() for a, b in zip(one, two, strict=True)]))


def spoil(kind: str, strength: float, seed: int = 3) -> Frames:
    fault, chance = FAULTS[kind], np.random.default_rng(seed)
    clean = list(frames())
    if fault.paint:
        return fault.paint(clean, strength, chance)
    assert fault.reorder
    return [clean[min(max(n, 0), 23)] for n in fault.reorder(24, 24.0, strength, chance)]


@pytest.mark.parametrize("kind", [kind for kind, fault in FAULTS.items() if not fault.codec])
def test_a_fault_grows_with_its_strength_and_is_the_same_twice(kind: str) -> None:
    light, plain = (
        np.mean([difference(spoil(kind, s, seed), list(frames())) for seed in range(4)]) for s in (0.1, 1.0)
    )
    assert plain > 1.15 * light
    assert plain > 1
    again = spoil(kind, 1.0)
    assert all(f.shape == (108, 192, 3) and f.dtype == np.uint8 for f in again)
    assert difference(again, spoil(kind, 1.0)) == 0


@pytest.mark.parametrize("codec", BAD)
def test_a_bad_encoder_is_worse_than_a_good_one(codec: str) -> None:
    low, high = (difference(decode(encode(list(frames()), 24, codec, q)), list(frames())) for q in BAD[codec])
    assert high > 1.3 * low
    for good, (best, _) in GOOD.items():
        assert difference(decode(encode(list(frames()), 24, good, best)), list(frames())) < high


def test_every_kind_has_a_way_and_a_name() -> None:
    for fault in FAULTS.values():
        assert sum((fault.paint is not None, fault.reorder is not None, bool(fault.codec))) == 1
        assert fault.keys and fault.name
    assert set(WITHHELD) < set(FAULTS)
    assert len(WITHHELD) == 4


def test_a_scene_is_in_one_part_only() -> None:
    clip = SurveyedClip("train/package/a/b.mp4", "0", 640, 360, 24.0, 60)
    assert _part_of(clip) == _part_of(replace(clip, path="train/package/c.mp4"))
    assert _part_of(replace(clip, path="test/other/b.mp4")) == "test"
    parts = {_part_of(replace(clip, path=f"train/p{n}/a.jpg")) for n in range(80)}
    assert parts == {"train", "held", "test"}


@cache
def world() -> Filmed:
    return Filmed(
        Spec(3, "train", "world/train/3", "world", None, (192, 108), 24.0, 16, False, 1.0, 0.0, 1), Path("unused")
    )


def test_drawn_pictures_are_all_kinds_and_the_same_twice() -> None:
    drawn = [np.asarray(draw_picture(np.random.default_rng(seed), (96, 64))) for seed in range(40)]
    assert all(each.shape == (64, 96, 3) and each.dtype == np.uint8 for each in drawn)
    assert np.array_equal(drawn[7], draw_picture(np.random.default_rng(7), (96, 64)))
    edges = [float(np.abs(np.diff(each.astype(int), axis=1)).mean()) for each in drawn]
    assert min(edges) < 3 and max(edges) > 12, "smooth ones and sharp ones"
    spec = Spec(3, "train", "picture/train/3", "picture", None, (96, 64), 24.0, 12, False, 1.0, 0.0, 1)
    filmed = [np.stack(Filmed(spec, Path("unused")).frames([0, 5, 9])) for _ in range(2)]
    assert np.array_equal(*filmed)


def test_the_worlds_of_the_specimens_are_stored() -> None:
    stored = _load_worlds()
    assert len(stored) == 93
    number = next(int(name.split("/")[2]) for name in stored if name.startswith("world/train/"))
    spec = replace(world().spec, seed=number, scene=f"world/train/{number}")
    assert Filmed(spec, Path("unused"))._world == stored[spec.scene] != scene(number).clips[0]


def test_planned_clips_are_made_twice_alike_and_withheld_kinds_are_not_planned() -> None:
    plans = [plan(world(), np.random.default_rng(seed)) for seed in range(40)]
    kinds = {each.fault for plans_ in plans for each in plans_} - {""}
    assert not kinds & set(WITHHELD)
    assert len(kinds) > 30
    assert plans[0] == plan(world(), np.random.default_rng(0))
    for version in HARMLESS:
        what = Plan("", 0, version, 2, 5)
        data = make(world(), what)
        assert data == make(world(), what)
        assert data and difference(decode(data)[:8], decode(data)[:8]) == 0


def specimen(part: str, seed: int, fault: str, strength: float, version: str = "") -> Specimen:
    """Measures that only know one fault: noise moves with it, the rest is the scene's."""
    rng = np.random.default_rng(zlib.crc32(f"{part}{seed}".encode()))
    values = {name: float(rng.uniform(0.2, 2)) for name in DEFINITIONS}
    values["noise"] *= 1 + 4 * strength if fault else rng.uniform(0.98, 1.02)
    look = rng.integers(0, 256, 336).astype(np.uint8).tobytes()
    return Specimen(part, seed, f"{part}{seed}", fault, strength, version, 1, (), ClipMeasures(values, 9, 9, look))


def specimens() -> list[Specimen]:
    return [
        each
        for part, count in (("train", 24), ("held", 8))
        for seed in range(count)
        for each in (
            specimen(part, seed, "", 0),
            specimen(part, seed, "", 0, "mirrored"),
            specimen(part, seed, "noise", 0.3),
            specimen(part, seed, "noise", 0.9),
        )
    ]


def test_pairs_are_labelled_by_dimension() -> None:
    made = [each for each in specimens() if each.part == "train"]
    pairs = draw_pairs(made)
    for pair, label in zip(pairs, labels(pairs), strict=True):
        one, two = made[pair.one], made[pair.two]
        assert one.part == two.part
        assert label.tolist() == ([0, 0, 0] if not two.fault else [1, 0, 1])
        assert (one.seed == two.seed) == pair.same_scene
        assert one.strength <= two.strength
    rows = describe_pairs(*Vectors(made, tuple(DEFINITIONS)).sides(pairs), tuple(DEFINITIONS))
    merits = sum(each.source != "file" for each in DEFINITIONS.values())
    assert np.array_equal(rows[:, 0, :merits], -rows[:, 1, :merits])
    assert np.array_equal(rows[:, 0, merits:], rows[:, 1, merits:])


def test_networks_learn_what_is_plain_and_answer_as_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks_module, "_NETWORKS", 2)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (4096, 6))
    faults = np.stack((np.abs(rows[:, 0]), (1 + rows[:, 1] * rows[:, 2]) / 2), axis=1)
    clips = read_networks({f"x.{part}": array for part, array in fit_clips(rows, faults, np.ones(4096)).items()}, "x")
    rated = 1 / (1 + np.exp(-clips.scores(rows[:500])))
    assert np.abs(rated - faults[:500]).mean() < np.abs(faults[:500] - faults.mean(0)).mean() / 3
    change, common = rows[:, :3], rows[:, 3:]
    leads = np.stack((change.sum(1), change[:, 0] * 1.2), axis=1)
    better = np.where(leads > 1, 1, np.where(leads < -1, 2, 0))
    orders = np.stack([np.concatenate((sign * change, common), axis=1) for sign in (1, -1)], axis=1)
    pairs = read_networks({f"x.{part}": array for part, array in fit_pairs(orders, better, np.ones(4096)).items()}, "x")
    tie, first = pairs.scores(orders[:500, 0]).reshape(500, 2, 2).transpose(2, 0, 1)
    assert np.mean((first > tie) == (better[:500] == 1)) > 0.93


def test_heads_learn_and_are_the_same_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(heads_module).copy().items():
        if isinstance(value, heads_module.Growth):
            monkeypatch.setattr(heads_module, name, value._replace(rounds=30, leaves=8))
    made = specimens()
    for name in ("a.npz", "b.npz"):
        fit(made, tuple(DEFINITIONS), tmp_path / name, say=lambda line: None)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    heads = load_heads(tmp_path / "a.npz")
    fresh = [specimen("test", seed, fault, 0.9) for seed in range(10) for fault in ("", "noise")]
    said = [
        prefer_by_measures(a.measures, b.measures, heads=heads) for a, b in zip(fresh[::2], fresh[1::2], strict=True)
    ]
    assert sum(each.odds["OA"][1] > each.odds["OA"][2] for each in said) >= 9
    assert sum(each.odds["MQ"][0] > 0.5 for each in said) >= 9
    assert len(vector_of(fresh[0].measures, heads.measures)) == len(DEFINITIONS)
