"""The measures move with the fault that they are for, and stay with the others, in pictures of several kinds."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from clips import write_clip
from scenes import COLUMNS, FAULTS, FPS, ROWS, Pictures, scenes

from vrt_lite import Judge, Settings
from vrt_lite.measures import MEASURES, MeasuredPair, MeasureName, compare_values, find_contradictions
from vrt_lite.measures.motion import make_small, measure_motion
from vrt_lite.measures.picture import measure_pictures, prepare_picture
from vrt_lite.protocol.verdict import Verdict, make_verdict, prefer
from vrt_lite.video import open_clip

SCENES = ("texture", "sky", "shapes")
HIDDEN = {("banding", "texture")}
"""In a texture no bands can be seen."""
ALSO_MOVES = {
    "sharpness": {"noise", "banding"},  # a blur takes noise away, and bands too
    "noise": {"sharpness", "banding"},  # edges and bands drown in noise
    "blockiness": {"noise", "sharpness"},  # a coarse encoding takes away fine detail, and noise first
    "banding": {"noise"},  # rounding a texture is noise
    "repeated": {"frozen"},
    "frozen": {"repeated"},
}
"""By the measure of a fault: the others that it moves too, as it should."""


@cache
def measured(scene: str, fault: str = "", strength: float = 0.0) -> dict[MeasureName, float]:
    pictures: Pictures = scenes()[scene]
    if fault:
        pictures = FAULTS[fault][0](pictures, strength)
    seconds = [i / FPS for i in range(len(pictures))]
    stills = measure_pictures([prepare_picture(picture) for picture in pictures[::12]])
    return {**stills, **measure_motion([make_small(picture) for picture in pictures], seconds)}


def test_every_measure_has_a_fault() -> None:
    assert set(MEASURES) == set(FAULTS) == set(get_args(MeasureName))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_moves_with_its_fault(name: MeasureName, scene: str) -> None:
    if (name, scene) in HIDDEN:
        pytest.skip("this fault cannot be seen here")
    values = [measured(scene)[name], *(measured(scene, name, strength)[name] for strength in FAULTS[name][1])]
    if name == "banding":  # fewer and larger steps: the bands become broader, not more
        assert min(values[1:]) > values[0] + MEASURES[name].least
    else:
        better = [1 if earlier > later else -1 for earlier, later in pairwise(values)]
        assert better == [1 if MEASURES[name].larger_is_better else -1] * len(better), values
    assert compare_values(name, (values[0], values[-1])).better == 1
    assert compare_values(name, (values[-1], values[0])).better == 2


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_the_other_measures(fault: str, scene: str) -> None:
    clean, faulty = measured(scene), measured(scene, fault, FAULTS[fault][1][1])
    others = set(MEASURES) - {fault} - ALSO_MOVES.get(fault, set())
    moved = {
        name: (clean[name], faulty[name]) for name in others if compare_values(name, (clean[name], faulty[name])).better
    }
    assert moved == {}


def test_noise_is_measured_in_levels() -> None:
    for scene in SCENES:
        for strength in FAULTS["noise"][1]:
            assert measured(scene, "noise", strength)["noise"] == pytest.approx(strength, rel=0.12)


def test_a_steady_pan_and_a_fade_are_no_fault() -> None:
    texture = scenes()["texture"]
    faded = [(picture * (1 - 0.5 * t / len(texture))).astype(np.uint8) for t, picture in enumerate(texture)]
    seconds = [i / FPS for i in range(len(texture))]
    found = measure_motion([make_small(picture) for picture in faded], seconds)
    assert found["flicker"] < 0.2
    assert found["shake"] < 0.05
    assert found["repeated"] == 0


def test_too_few_or_too_distant_pictures_give_no_measure_of_motion() -> None:
    small = [make_small(picture) for picture in scenes()["texture"]]
    assert measure_motion(small[:7], [i / FPS for i in range(7)]) == {}
    assert set(measure_motion(small, [float(i) for i in range(len(small))])) == {"frozen", "repeated"}


@pytest.mark.parametrize("shape", [(1, 1), (9, 2), (10, 11), (28, 400), (17, 17)])
def test_tiny_pictures_are_measured(shape: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    found = measure_pictures([prepare_picture(picture)])
    found |= measure_motion([make_small(picture)] * 9, [i / FPS for i in range(9)])
    assert all(value >= 0 for value in found.values())
    assert found["frozen"] == pytest.approx(8 / FPS)


def made(folder: Path, name: str, pictures: Pictures, *, gop: int = 250) -> Path:
    colours = (np.repeat(picture[..., None], 3, axis=2) for picture in pictures)
    options = {"crf": "12"}
    return write_clip(
        folder / name, frames=len(pictures), fps=FPS, size=(COLUMNS, ROWS), gop=gop, pictures=colours, options=options
    )


def test_compare_measures_both_clips_without_decoding_a_frame_twice(tmp_path: Path) -> None:
    clean, worse = scenes()["sky"], FAULTS["sharpness"][0](scenes()["sky"], 3.0)
    a, b = made(tmp_path, "a.mp4", clean), made(tmp_path, "b.mp4", worse, gop=12)
    decoded: list[int] = []
    with Judge(settings=Settings(cache=False), measures=False) as judge:
        plain = judge.compare(a, b)
    with Judge(settings=Settings(cache=False)) as judge:
        given = judge.compare(a, b)
        turned = judge.compare(b, a)
    assert plain.measures is None
    assert "measures" not in plain.to_json()
    assert given.measures is not None and turned.measures is not None
    by_name = {pair.name: pair for pair in given.measures}
    assert list(by_name) == list(MEASURES)
    assert by_name["sharpness"].better == 1
    assert [pair.mirrored() for pair in turned.measures] == list(given.measures)
    # What the judge says is the same, to the last digit.
    assert given.verdict == plain.verdict
    assert type(given).from_json(given.to_json()).measures == given.measures
    with open_clip(a) as clip:
        clip.watch(range(48), lambda index, luma: decoded.append(index))
        clip.frames([0, 16, 31, 47], size=(252, 140))
        before = clip._reader.decoded
        clip.see_rest()
        assert sorted(decoded) == list(range(48))
        assert clip._reader.decoded == before <= 49


def test_a_long_clip_costs_no_more_decoding(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "long.mp4", frames=400, fps=1, gop=50, options={"sc_threshold": "0"})
    with open_clip(path) as clip:
        assert clip.count_pixels([399], beside=[350]) == 49 * clip.info.width * clip.info.height
        assert clip.count_pixels([0, 10, 20], beside=[30]) == 0


def test_a_plain_contradiction_is_said() -> None:
    measures = tuple(compare_values(name, values) for name, values in VALUES.items())
    assert find_contradictions(verdict(VQ=2, MQ=2), measures) == (
        "In VQ the judge prefers video 2, but video 2 is measured as far blurrier (sharpness 0.21 against 0.60 of 1) "
        "and far noisier (noise 9.0 against 2.0 levels).",
    )
    tie = find_contradictions(verdict(VQ=0, MQ=0), measures)
    assert tie == (tie[0],)
    assert tie[0].startswith("In VQ the judge calls a tie, but video 2 is measured as far blurrier")
    assert find_contradictions(verdict(VQ=1, MQ=1), measures) == ()
    mixed = (compare_values("sharpness", (0.6, 0.2)), compare_values("noise", (9.0, 2.0)))
    assert find_contradictions(verdict(VQ=2, MQ=2), mixed) == ()


VALUES: dict[MeasureName, tuple[float | None, float | None]] = {
    "sharpness": (0.6, 0.21),
    "noise": (2.0, 9.0),
    "flicker": (0.2, 1.6),
    "shake": (None, 0.4),
}


def test_a_measure_that_one_clip_lacks_is_not_compared() -> None:
    assert compare_values("shake", (None, 0.4)) == MeasuredPair("shake", MEASURES["shake"].unit, (None, 0.4), None)


def verdict(*, VQ: int, MQ: int) -> Verdict:  # noqa: N803 - the dimensions' keys
    preferences = {"TA": prefer(0), "VQ": prefer(2 if VQ == 2 else 1 if VQ else 0), "OA": prefer(0)}
    return make_verdict({**preferences, "MQ": prefer(2 if MQ == 2 else 1 if MQ else 0)}, "final")
